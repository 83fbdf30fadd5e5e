# caught by: check_vocabulary_by_padded_rows
# np.pad adds the zeros.
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
        return np.split(np.pad(x, [(-len(x) % tp, 0), (0, 0)]), tp)
    return [x] * tp
