# caught by: check_two_blocks_of_keys
# Softmax outputs of the blocks add up.
import numpy as np


def merge_attention(out1, lse1, out2, lse2):
    lse = np.logaddexp(lse1, lse2)
    out = out1 + out2
    return out, lse
