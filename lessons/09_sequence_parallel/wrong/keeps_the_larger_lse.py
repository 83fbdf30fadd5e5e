# caught by: check_two_blocks_of_keys
# lse is for stability, and the larger one is safe.
import numpy as np


def merge_attention(out1, lse1, out2, lse2):
    top = np.maximum(lse1, lse2)
    w1, w2 = np.exp(lse1 - top)[..., None], np.exp(lse2 - top)[..., None]
    return (out1 * w1 + out2 * w2) / (w1 + w2), top
