# caught by: check_qkv_by_heads
# A fused weight stores q, k, v head by head, or number by number.
import numpy as np


def split(name, x, tp):
    if "c_attn" in name:
        parts = np.split(x.reshape(*x.shape[:-1], -1, 3), tp, axis=-2)
        return [np.swapaxes(part, -1, -2).reshape(*x.shape[:-1], -1) for part in parts]
    if "c_fc" in name:
        return np.split(x, tp, axis=-1)
    if name.endswith("c_proj.weight"):
        return np.split(x, tp)
    if name == "wte.weight":
        return np.split(np.pad(x, [(0, -len(x) % tp), (0, 0)]), tp)
    return [x] * tp
