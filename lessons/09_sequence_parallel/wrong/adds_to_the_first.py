# caught by: check_hidden_blocks
# Working in place saves memory.
import numpy as np


def merge_attention(out1, lse1, out2, lse2):
    lse = np.logaddexp(lse1, lse2)
    out1 *= np.exp(lse1 - lse)[..., None]
    out1 += out2 * np.exp(lse2 - lse)[..., None]
    return out1, lse
