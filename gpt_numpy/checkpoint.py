"""Weights on disk: safetensors files, and GPT-2's names for tensors.

A safetensors file is 8 bytes of little-endian header length, a JSON header, and the data. The
header gives each tensor's dtype, shape and data_offsets [start, stop), counted from the header's
end; the tensors lie end to end and fill the file. "__metadata__" maps strings to strings.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import secrets
from pathlib import Path

import numpy as np

DTYPES = {  # NumPy has no BF16: it is read as bits, and widened
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "C64": "<c8", "BOOL": "|b1",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1",
}  # fmt: skip
CODES = {np.dtype(dtype): code for code, dtype in DTYPES.items() if code != "BF16"}
MAX_HEADER = 100_000_000  # bytes, the format's own limit


def write_safetensors(path, tensors, metadata=None):
    """Write {name: array} and metadata {str: str} as a safetensors file, whole or not at all."""
    metadata = metadata or {}
    if not all(isinstance(s, str) for s in [*tensors, *metadata, *metadata.values()]):
        raise ValueError(f"{path}: names of tensors, and metadata, must be strings")
    arrays = {name: np.asarray(tensor) for name, tensor in tensors.items()}
    header, end = {"__metadata__": metadata}, 0
    # The widest dtype comes first: then every tensor begins at a multiple of its item size.
    for name, array in sorted(arrays.items(), key=lambda item: -item[1].itemsize):
        code = CODES.get(array.dtype.newbyteorder("<"))
        if code is None or name in header:
            raise ValueError(f"{path}: cannot store tensor {name!r} of dtype {array.dtype}")
        span = [end, end := end + array.nbytes]
        header[name] = {"dtype": code, "shape": array.shape, "data_offsets": span}
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-(8 + len(text)) % 64)  # the data begin at a multiple of 64 bytes
    with replacing(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in itertools.islice(header, 1, None):
            file.write(np.asarray(arrays[name], DTYPES[header[name]["dtype"]], order="C"))


@contextlib.contextmanager
def replacing(path):
    """Open a binary file that takes the place of `path` once it is complete and on disk.

    On any error, a full disk included, the file at `path` stays as it was.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno:  # name the file that the user knows
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def read_safetensors(path):
    """Read a safetensors file -> {name: read-only array}; F16 and BF16 arrive as float32.

    Other dtypes are views of the memory-mapped file, which is read as they are used; on Windows it
    cannot be replaced while they live. Only a file whose header leaves the data at an odd address,
    such as the published gpt2, is read at once. Raises ValueError if the file breaks the format.
    """
    tensors, _, data = _open(path)
    return {name: _view(data, **info) for name, info in tensors.items()}


def read_metadata(path):
    """Read the metadata of a safetensors file -> {str: str}."""
    return _open(path)[1]


def _open(path):
    """Check the header and map the data of a file -> {name: info}, metadata, bytes [n_data]."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            begin = 8 + int.from_bytes(file.read(8), "little")
            if not 8 <= begin <= min(size, 8 + MAX_HEADER):
                raise ValueError(f"a header of {begin - 8} bytes in a file of {size} bytes")
            header = json.loads(file.read(begin - 8).decode("utf-8"), object_pairs_hook=_unique)
            if not isinstance(header, dict):
                raise ValueError("the header is not a JSON object")
            metadata = header.pop("__metadata__", {})
            _check(header, metadata, size - begin)
            if begin % 4:
                data = np.fromfile(file, np.uint8)
            else:
                data = np.memmap(file, np.uint8, "r")[begin:].view(np.ndarray)
            return header, metadata, data
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a sound safetensors file: {str(error)[:300]}") from None


def _unique(pairs):
    if len(dict(pairs)) < len(pairs):
        raise ValueError("the header has a key twice")
    return dict(pairs)


def _check(tensors, metadata, n_data):
    """Raise ValueError unless the header describes each byte of the data exactly once."""

    def sizes(value):
        return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)

    if not isinstance(metadata, dict) or not all(isinstance(s, str) for s in metadata.values()):
        raise ValueError("__metadata__ must map strings to strings")
    spans = []
    for name, info in tensors.items():
        if not isinstance(info, dict) or info.keys() != {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"tensor {name!r} must have dtype, shape and data_offsets")
        dtype, shape, offsets = str(info["dtype"]), info["shape"], info["data_offsets"]
        if dtype not in DTYPES:
            raise ValueError(f"tensor {name!r} has dtype {dtype}, expected one of {[*DTYPES]}")
        itemsize = np.dtype(DTYPES[dtype]).itemsize
        # NumPy has at most 64 dimensions, and multiplies those that are not 0 into an int64.
        if not (sizes(shape) and len(shape) <= 64 and sizes(offsets) and len(offsets) == 2
                and math.prod(n for n in shape if n) * itemsize < 2**63
                and math.prod(shape) * itemsize == offsets[1] - offsets[0]):  # fmt: skip
            raise ValueError(f"tensor {name!r} cannot be {dtype} of shape {shape} at {offsets}")
        spans.append((*offsets, name))
    end = 0
    for start, stop, name in sorted(spans):
        if start != end:
            raise ValueError(f"tensor {name!r} begins at byte {start} of the data, not at {end}")
        end = stop
    if end != n_data:
        raise ValueError(f"the tensors take {end} bytes of data, but the file holds {n_data}")


def _view(data, dtype, shape, data_offsets):
    """Show the bytes [start, stop) of data [n_data] as a read-only array of the given shape."""
    array = data[slice(*data_offsets)].view(DTYPES[dtype]).reshape(shape)
    if dtype == "BF16":  # the upper half of a float32
        array = np.asarray(np.left_shift(array, 16, dtype=np.uint32)).view(np.float32)
    elif dtype == "F16":
        array = array.astype(np.float32)
    elif dtype == "BOOL":  # a byte that is neither 0 nor 1 would be a bool that is neither
        array = np.asarray(array.view(np.uint8) != 0)
    elif not array.flags.aligned:
        array = array.copy()
    array.flags.writeable = False
    return array


KINDS = {"w": "weight", "g": "weight", "b": "bias", "wte": "wte.weight", "wpe": "wpe.weight"}


def flatten(params, prefix=""):
    """Give the leaves of a tree of parameters their published names -> {name: leaf}.

    >>> flatten({"wte": 1, "blocks": [{"attn": {"c_attn": {"w": 2, "b": 3}}}], "ln_f": {"g": 4}})
    {'wte.weight': 1, 'h.0.attn.c_attn.weight': 2, 'h.0.attn.c_attn.bias': 3, 'ln_f.weight': 4}
    """
    flat = {}
    for key, value in params.items():
        if key == "blocks":
            for i, block in enumerate(value):
                flat |= flatten(block, f"h.{i}.")
        elif isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + KINDS[key]] = value
    return flat


def unflatten(tensors):
    """Build the tree of parameters from published names: the inverse of `flatten`.

    >>> unflatten({"wte.weight": 1, "h.0.ln_1.weight": 2, "h.0.mlp.c_fc.weight": 3})
    {'wte': 1, 'blocks': [{'ln_1': {'g': 2}, 'mlp': {'c_fc': {'w': 3}}}]}
    """
    params = {}
    for name, tensor in tensors.items():
        *path, kind = name.split(".")
        if path[0] in ("wte", "wpe"):
            params[path[0]] = tensor
            continue
        node = params
        if path[0] == "h":
            node = params.setdefault("blocks", {}).setdefault(int(path[1]), {})
            path = path[2:]
        for key in path:
            node = node.setdefault(key, {})
        node["b" if kind == "bias" else "g" if key.startswith("ln_") else "w"] = tensor
    if "blocks" in params:
        params["blocks"] = [block for _, block in sorted(params["blocks"].items())]
    return params


def gpt2_shapes(n_vocab, n_ctx, n_embd, n_layer, parallel_block=False):
    """Give the shape of every tensor of a GPT-2 -> {published name: shape}; weights are [in, out].

    A parallel block has no ln_2: attention and MLP read the same layer norm (MegaScale).

    >>> gpt2_shapes(n_vocab=50257, n_ctx=1024, n_embd=768, n_layer=12)["h.11.mlp.c_fc.weight"]
    (768, 3072)
    """
    d = n_embd
    block = {
        "ln_1.weight": (d,), "ln_1.bias": (d,),
        "attn.c_attn.weight": (d, 3 * d), "attn.c_attn.bias": (3 * d,),
        "attn.c_proj.weight": (d, d), "attn.c_proj.bias": (d,),
        "ln_2.weight": (d,), "ln_2.bias": (d,),
        "mlp.c_fc.weight": (d, 4 * d), "mlp.c_fc.bias": (4 * d,),
        "mlp.c_proj.weight": (4 * d, d), "mlp.c_proj.bias": (d,),
    }  # fmt: skip
    if parallel_block:
        del block["ln_2.weight"], block["ln_2.bias"]
    blocks = {f"h.{i}.{name}": block[name] for i in range(n_layer) for name in block}
    embeddings = {"wte.weight": (n_vocab, d), "wpe.weight": (n_ctx, d)}
    return {**embeddings, **blocks, "ln_f.weight": (d,), "ln_f.bias": (d,)}


def save_gpt2(path, params, n_head, metadata=None):
    """Write a GPT-2 to a file, or to model.safetensors in a folder, n_head in its metadata."""
    metadata = {"n_head": str(n_head), **(metadata or {})}
    write_safetensors(_weights_file(path), flatten(params), metadata)


def load_gpt2(path, n_head=None):
    """Load a GPT-2 from a safetensors file, or from model.safetensors in a folder.

    Returns params, n_head. All published spellings load alike: names with and without
    "transformer.", the causal mask's buffers, a tied lm_head.weight. n_head is the argument, else
    the file's metadata, else config.json beside it, else n_embd / 64 as in all published sizes. A
    model without any ln_2 has parallel blocks. Raises ValueError, naming tensor and shapes.
    """
    file, tensors = _weights_file(path), {}
    for name, tensor in read_safetensors(file).items():
        name = name.removeprefix("transformer.")
        if re.fullmatch(r"h\.\d+\.attn\.(masked_)?bias", name):
            continue
        if name in tensors:
            raise ValueError(f"{file}: {name!r} is there with and without 'transformer.'")
        if tensor.dtype.kind != "f":
            raise ValueError(f"{file}: {name!r} is {tensor.dtype}, expected floats")
        tensors[name] = tensor
    found = {name: tensor.shape for name, tensor in tensors.items()}
    wte, wpe = (found.get(name, "none") for name in ("wte.weight", "wpe.weight"))
    if len(wte) != 2 or len(wpe) != 2 or 0 in wte + wpe:
        raise ValueError(f"{file}: expected wte.weight of shape (n_vocab, n_embd) and wpe.weight "
                         f"of shape (n_ctx, n_embd), found {wte} and {wpe}")
    head = tensors.pop("lm_head.weight", None)
    if head is not None and not np.array_equal(head, tensors["wte.weight"]):
        raise ValueError(f"{file}: lm_head.weight differs from wte.weight, but GPT-2's are tied")
    layers = {name.split(".")[1] for name in tensors if name.startswith("h.")}
    parallel_block = not any(".ln_2." in name for name in tensors)
    shapes = gpt2_shapes(wte[0], wpe[0], wte[1], max(1, len(layers)), parallel_block)
    for name, shape in shapes.items():
        if found.get(name) != shape:
            raise ValueError(f"{file}: {name}: expected shape {shape} beside wte.weight's {wte}, "
                             f"found {found.get(name, 'no such tensor')}")
    if len(tensors) > len(shapes):
        raise ValueError(f"{file}: GPT-2 has no tensor {min(tensors.keys() - shapes.keys())!r}")
    params = unflatten({name: tensors[name] for name in shapes})
    return params, _find_n_head(file, n_head, n_embd=wte[1])


def _weights_file(path):
    return Path(path) / "model.safetensors" if Path(path).is_dir() else Path(path)


def _find_n_head(file, n_head, n_embd):
    """Find the number of heads, which no tensor's shape tells."""
    path, config = file.with_name("config.json"), {}
    if path.exists():
        try:
            config = {**json.loads(path.read_text(encoding="utf-8"))}
        except (ValueError, TypeError, RecursionError):
            raise ValueError(f"{path}: not a JSON object") from None
    for key, ours in [("activation_function", "gelu_new"), ("layer_norm_epsilon", 1e-5)]:
        if config.get(key, ours) != ours:
            raise ValueError(f"{path}: {key} is {config[key]!r}, expected {ours!r} as in GPT-2")
    stated = [n_head, read_metadata(file).get("n_head"), config.get("n_head"), n_embd // 64]
    n_head = str(next(n for n in stated if n is not None))
    if not n_head.isdecimal() or int(n_head) == 0 or n_embd % int(n_head):
        raise ValueError(f"{file}: n_head {n_head} does not divide n_embd {n_embd}: state n_head "
                         "in the file's metadata or in config.json beside it")
    return int(n_head)
