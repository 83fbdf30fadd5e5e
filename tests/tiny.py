"""The fixture TINY: a GPT-2 of n_embd 4, n_layer 2, n_head 2, n_ctx 6 and n_vocab 5.

Its weights follow a formula, so that any other program can build it: element k, in row-major
order, of tensor t is 0.6 sin(0.7 k + t); the layer norms' gains are 1 + half of that.
"""

import numpy as np

from gpt_numpy.checkpoint import unflatten

N_HEAD = 2
BLOCK = {
    "ln_1.weight": (4,), "ln_1.bias": (4,),
    "attn.c_attn.weight": (4, 12), "attn.c_attn.bias": (12,),
    "attn.c_proj.weight": (4, 4), "attn.c_proj.bias": (4,),
    "ln_2.weight": (4,), "ln_2.bias": (4,),
    "mlp.c_fc.weight": (4, 16), "mlp.c_fc.bias": (16,),
    "mlp.c_proj.weight": (16, 4), "mlp.c_proj.bias": (4,),
}  # fmt: skip
SHAPES = {
    "wte.weight": (5, 4), "wpe.weight": (6, 4),
    **{f"h.0.{name}": shape for name, shape in BLOCK.items()},
    **{f"h.1.{name}": shape for name, shape in BLOCK.items()},
    "ln_f.weight": (4,), "ln_f.bias": (4,),
}  # fmt: skip
# By another program (transformers' GPT-2 in float64) for the ids [1, 3, 2, 0].
TOKENS = [1, 3, 2, 0]
LAST_LOGITS = [-0.900334, 1.611039, -2.135580, 2.413344, -2.412232]


def tiny_tensors(dtype=np.float64):
    """Build TINY -> {published name: array}, in the order of t."""
    tensors = {}
    for t, (name, shape) in enumerate(SHAPES.items()):
        values = 0.6 * np.sin(0.7 * np.arange(np.prod(shape)) + t).reshape(shape)
        if "ln_" in name and name.endswith(".weight"):
            values = 1 + 0.5 * values
        tensors[name] = values.astype(dtype)
    return tensors


def tiny_params(dtype=np.float64):
    """Build TINY -> params."""
    return unflatten(tiny_tensors(dtype))
