# caught by: check_hidden_units_by_columns
# A block's arrays are those that begin with h.0 to h.9.
import numpy as np


def split(name, x, tp):
    kind = name[4:] if name.startswith("h.") else name
    if kind.startswith("attn.c_attn"):
        parts = np.split(x.reshape(*x.shape[:-1], 3, -1), tp, axis=-1)
        return [part.reshape(*x.shape[:-1], -1) for part in parts]
    if kind.startswith("mlp.c_fc"):
        return np.split(x, tp, axis=-1)
    if kind.endswith("c_proj.weight"):
        return np.split(x, tp)
    if kind == "wte.weight":
        return np.split(np.pad(x, [(0, -len(x) % tp), (0, 0)]), tp)
    return [x] * tp
