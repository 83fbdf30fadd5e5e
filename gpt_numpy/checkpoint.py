"""Weights on disk: safetensors files, GPT-2's names for tensors, and GPT-2 from the hub.

A safetensors file is 8 bytes of little-endian header length, a JSON header, and the data. The
header gives each tensor's dtype, shape and data_offsets [start, stop), counted from the header's
end; the tensors lie end to end and fill the file. "__metadata__" maps strings to strings.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import re
import secrets
import sys
import time
from pathlib import Path
from urllib.parse import urljoin

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


MODELS = ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl")
FILES = ("merges.txt", "model.safetensors")  # GPT-2's ids follow from the merges alone
REVISIONS = {"gpt2": "607a30d783dfa663caf39e06633721c8d4cfcd7e"}  # of the others, main
PINNED = {  # (model, file) -> bytes, SHA-256; what the others are, the hub states
    ("gpt2", "merges.txt"):
        (456_318, "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"),
    ("gpt2", "model.safetensors"):
        (548_105_171, "248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707"),
}  # fmt: skip
TIMEOUT = (10, 60)  # seconds to connect, and to wait for the next piece of an answer
MAX_WAIT = 60  # seconds that a busy server may ask us to wait


def fetch_gpt2(model, cache=None):
    """Download a published GPT-2 into the cache, if need be -> folder of weights and merges.

    The cache is `cache`, else $GPT_NUMPY_CACHE, else gpt_numpy in the user's cache folder; a file
    in it was verified when it arrived, and is not hashed again. $HF_ENDPOINT, if set, replaces
    https://huggingface.co. Raises OSError if the hub does not deliver.
    """
    if model not in MODELS:
        raise ValueError(f"unknown model {model!r}, expected one of {', '.join(MODELS)}")
    folder = Path(cache or os.environ.get("GPT_NUMPY_CACHE") or _user_cache()).expanduser() / model
    if all((folder / name).exists() for name in FILES):
        return folder
    endpoint = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / ".lock"):
        for name in FILES:
            if not (folder / name).exists():
                revision = REVISIONS.get(model, "main")
                url = f"{endpoint}/openai-community/{model}/resolve/{revision}/{name}"
                download(url, folder / name, *(PINNED.get((model, name)) or _stated(url)))
    return folder


def download(url, path, size, digest):
    """Fetch url to path, where it appears only once it is whole and verified.

    size: bytes, or None if unknown. digest: SHA-256 (64 hex digits) or git blob SHA-1 (40). What
    has come when the line is cut, or Ctrl-C pressed, stays in a .part file for the next call to
    resume; the digest in its name keeps the parts of two versions of a file apart.
    """
    path = Path(path)
    part = path.with_name(f"{path.name}.{digest[:16]}.part")
    if not part.exists() or part.stat().st_size != size:
        _receive(url, part, size)
    found = part.stat().st_size
    hasher = hashlib.sha256() if len(digest) == 64 else hashlib.sha1(b"blob %d\0" % found)
    with open(part, "rb") as file:
        while chunk := file.read(1 << 20):
            hasher.update(chunk)
    if hasher.hexdigest() != digest:
        part.unlink()
        raise OSError(f"{url}: expected {size} bytes of hash {digest}, received {found} of hash "
                      f"{hasher.hexdigest()}; they are deleted, try again")
    os.replace(part, path)


def _receive(url, part, size):
    """Append what the .part file lacks, or begin it anew where the server cannot resume."""
    have = part.stat().st_size if part.exists() else 0
    for start in (have, 0):
        with _ask("GET", url, {"Range": f"bytes={start}-"} if start else {}) as answer:
            resumes = _continues(answer, start)
            if resumes or answer.status_code == 200:
                return _save(answer, url, part, start if resumes else 0, size)
    raise OSError(f"{url}: the server answers {answer.status_code} {answer.reason}")


def _save(answer, url, part, have, size):
    """Write an answer, which begins at byte `have` of the file, to the .part file."""
    import requests
    from tqdm import tqdm

    try:
        chunks = answer.iter_content(1 << 16)
        first = next(chunks, b"")
        _refuse_another_file(answer, url, have, first, size)
        with open(part, "ab" if have else "wb") as file, tqdm(
            total=size, initial=have, unit="B", unit_scale=True, desc=url.split("/")[-1]
        ) as bar:  # fmt: skip
            for chunk in itertools.chain([first], chunks):
                file.write(chunk)
                bar.update(len(chunk))
                have += len(chunk)
                if size is not None and have > size:
                    break  # wrong already: the disk need not be filled with it
            file.flush()
            os.fsync(file.fileno())
        whole = size is None or have >= size
    except requests.RequestException:
        whole = False
    if not whole:
        raise OSError(f"{url}: the line was cut after {have} bytes; run again to resume")


def _continues(answer, have):
    """Tell whether an answer is the rest of a file of which we have so many bytes."""
    content_range = answer.headers.get("Content-Range", "")
    plain = "Content-Encoding" not in answer.headers
    return answer.status_code == 206 and plain and content_range.startswith(f"bytes {have}-")


def _refuse_another_file(answer, url, have, first, size):
    """Raise OSError, before a byte is written, if the answer's beginning or length is wrong."""
    length, what = answer.headers.get("Content-Length", ""), None
    if length.isdecimal() and "Content-Encoding" not in answer.headers:
        what = f"{have + int(length)} bytes"
    wrong = what and size is not None and have + int(length) != size
    for start, kind in [(b"<!doctype html", "an HTML page"), (b"<html", "an HTML page"),
                        (b"version https://git-lfs", "a Git LFS pointer")]:
        if not have and first.lstrip().lower().startswith(start):
            wrong, what = True, kind
    if wrong:
        raise OSError(f"{url}: the server sends {what}, expected a file of {size} bytes")


def _ask(method, url, headers=None):
    """Send a request; if the server is busy, wait as it asks, within bounds."""
    import requests

    headers = {"Accept-Encoding": "identity", **(headers or {})}
    for pause in (1, 2, 4, 8, math.inf):  # seconds, where the server does not say
        try:
            answer = requests.request(method, url, headers=headers, timeout=TIMEOUT, stream=True,
                                      allow_redirects=method == "GET")
        except requests.RequestException as error:
            raise OSError(f"cannot reach {url} ({type(error).__name__}): set HF_ENDPOINT to a "
                          f"mirror, or give a FOLDER with {' and '.join(FILES)}") from None
        asked = answer.headers.get("Retry-After", "")
        wait = int(asked) if asked.isdecimal() and pause < math.inf else pause
        if answer.status_code not in (429, 503) or wait > MAX_WAIT:
            break
        answer.close()
        time.sleep(wait)
    if answer.status_code >= 400 and answer.status_code != 416:
        answer.close()
        raise OSError(f"{url}: the server answers {answer.status_code} {answer.reason}")
    return answer


def _stated(url):
    """Ask the hub what a file must be -> size in bytes or None, digest as for `download`.

    For a file in LFS the hub answers with a redirect to its storage, and X-Linked-ETag is the
    SHA-256; the ETag of a small file is its git blob SHA-1. Redirects within the hub are followed.
    """
    target = url
    for _ in range(5):
        with _ask("HEAD", target) as answer:
            headers = answer.headers
        location = headers.get("Location", "")
        if "X-Linked-ETag" in headers or not location.startswith("/"):
            break
        target = urljoin(target, location)
    etag = headers.get("X-Linked-ETag") or headers.get("ETag", "")
    size = headers.get("X-Linked-Size") or ("" if location else headers.get("Content-Length", ""))
    digest = etag.removeprefix("W/").strip('"')
    if not re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", digest):
        raise OSError(f"{url}: the server states no hash to verify the file by (ETag: {etag!r})")
    return int(size) if size.isdecimal() else None, digest


def _user_cache():
    folders = {"win32": os.environ.get("LOCALAPPDATA"), "darwin": "~/Library/Caches"}
    folder = folders.get(sys.platform) or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(folder) / "gpt_numpy"


@contextlib.contextmanager
def _locked(path):
    """Hold a lock file, after other processes; the system frees it when a process is killed."""
    with open(path, "ab") as file:
        while True:
            try:
                if sys.platform == "win32":
                    import msvcrt
                    msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
                else:
                    import fcntl
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except (BlockingIOError, PermissionError):
                time.sleep(0.2)
        yield
