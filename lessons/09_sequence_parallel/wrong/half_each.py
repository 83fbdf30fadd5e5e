# caught by: check_two_blocks_of_keys
# Two halves of the keys, so half each.
import numpy as np


def merge_attention(out1, lse1, out2, lse2):
    lse = np.logaddexp(lse1, lse2)
    out = (out1 + out2) / 2
    return out, lse
