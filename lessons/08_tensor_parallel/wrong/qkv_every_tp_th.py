# caught by: check_qkv_by_heads
# Any d/tp columns of Q will do.
import numpy as np


def split(name, x, tp):
    if "c_attn" in name:
        parts = [x.reshape(*x.shape[:-1], 3, -1)[..., r::tp] for r in range(tp)]
        return [part.reshape(*x.shape[:-1], -1) for part in parts]
    if "c_fc" in name:
        return np.split(x, tp, axis=-1)
    if name.endswith("c_proj.weight"):
        return np.split(x, tp)
    if name == "wte.weight":
        return np.split(np.pad(x, [(0, -len(x) % tp), (0, 0)]), tp)
    return [x] * tp
