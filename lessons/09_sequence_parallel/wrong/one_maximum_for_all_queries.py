# caught by: check_large_scores
# The largest lse is subtracted, so no exponential is too large.
import numpy as np


def merge_attention(out1, lse1, out2, lse2):
    top = max(lse1.max(), lse2.max())
    a, b = np.exp(lse1 - top), np.exp(lse2 - top)
    out = (out1 * a[..., None] + out2 * b[..., None]) / (a + b)[..., None]
    return out, top + np.log(a + b)
