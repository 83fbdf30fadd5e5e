# caught by: check_last_matrices_by_rows
# Tensor parallelism splits the columns of every matrix.
import numpy as np


def split(name, x, tp):
    if "c_attn" in name:
        parts = np.split(x.reshape(*x.shape[:-1], 3, -1), tp, axis=-1)
        return [part.reshape(*x.shape[:-1], -1) for part in parts]
    if "c_fc" in name:
        return np.split(x, tp, axis=-1)
    if name.endswith("c_proj.weight"):
        return np.split(x, tp, axis=1)
    if name == "wte.weight":
        return np.split(np.pad(x, [(0, -len(x) % tp), (0, 0)]), tp)
    return [x] * tp
