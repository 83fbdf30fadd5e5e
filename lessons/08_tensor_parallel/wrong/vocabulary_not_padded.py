# caught by: check_vocabulary_by_padded_rows
# Ranks may have one token more or less.
import numpy as np


def split(name, x, tp):
    if "c_attn" in name:
        parts = np.split(x.reshape(*x.shape[:-1], 3, -1), tp, axis=-1)
        return [part.reshape(*x.shape[:-1], -1) for part in parts]
    if "c_fc" in name:
        return np.split(x, tp, axis=-1)
    if name.endswith("c_proj.weight"):
        return np.split(x, tp)
    if name == "wte.weight":
        return np.array_split(x, tp)
    return [x] * tp
