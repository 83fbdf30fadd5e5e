# caught by: check_two_blocks_of_keys
# The weights are the lse values.
import numpy as np


def merge_attention(out1, lse1, out2, lse2):
    lse = np.logaddexp(lse1, lse2)
    out = (out1 * lse1[..., None] + out2 * lse2[..., None]) / (lse1 + lse2)[..., None]
    return out, lse
