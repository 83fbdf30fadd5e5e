# caught by: check_large_scores
# exp(lse) is how much a block weighs, so take it.
import numpy as np


def merge_attention(out1, lse1, out2, lse2):
    with np.errstate(all="ignore"):
        w1, w2 = np.exp(lse1)[..., None], np.exp(lse2)[..., None]
        return (out1 * w1 + out2 * w2) / (w1 + w2), np.log(w1 + w2)[..., 0]
