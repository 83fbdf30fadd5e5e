# caught by: check_qkv_by_heads
# Only queries are split by heads: every rank reads all keys and values.
import numpy as np


def split(name, x, tp):
    if "c_attn" in name:
        q, kv = x[..., : x.shape[-1] // 3], x[..., x.shape[-1] // 3 :]
        return [np.concatenate([part, kv], axis=-1) for part in np.split(q, tp, axis=-1)]
    if "c_fc" in name:
        return np.split(x, tp, axis=-1)
    if name.endswith("c_proj.weight"):
        return np.split(x, tp)
    if name == "wte.weight":
        return np.split(np.pad(x, [(0, -len(x) % tp), (0, 0)]), tp)
    return [x] * tp
