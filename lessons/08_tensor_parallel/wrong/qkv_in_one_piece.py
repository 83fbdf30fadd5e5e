# caught by: check_qkv_by_heads
# Splitting the fused matrix splits its parts.
import numpy as np


def split(name, x, tp):
    if "c_attn" in name:
        return np.split(x, tp, axis=-1)
    if "c_fc" in name:
        return np.split(x, tp, axis=-1)
    if name.endswith("c_proj.weight"):
        return np.split(x, tp)
    if name == "wte.weight":
        return np.split(np.pad(x, [(0, -len(x) % tp), (0, 0)]), tp)
    return [x] * tp
