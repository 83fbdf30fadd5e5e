# caught by: check_two_blocks_of_keys
# Logarithms of sums are added.
import numpy as np


def merge_attention(out1, lse1, out2, lse2):
    lse = lse1 + lse2
    out = out1 * np.exp(lse1 - lse)[..., None] + out2 * np.exp(lse2 - lse)[..., None]
    return out, lse
