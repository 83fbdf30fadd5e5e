"""Oracles: files put together by hand with struct and json; TINY's logits by another program."""

import errno
import json
import os
import random
import struct
import subprocess
import sys

import numpy as np
import pytest

from gpt_numpy.checkpoint import (
    flatten,
    gpt2_shapes,
    load_gpt2,
    read_metadata,
    read_safetensors,
    save_gpt2,
    unflatten,
    write_safetensors,
)
from tests.tiny import LAST_LOGITS, N_HEAD, SHAPES, TOKENS, tiny_params, tiny_tensors


def raw_file(path, header, data=b"", length=None):
    """Build a file by hand; header is an object or the JSON text itself."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def info(dtype, shape, *offsets):
    return {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}


# ---- safetensors: reading what is right


def test_bf16_and_f16_arrive_as_float32(tmp_path):
    header = {
        "b": info("BF16", [4], 0, 8),
        "h": info("F16", [2], 8, 12),
        "f": info("F32", [1], 12, 16),
    }
    data = bytes.fromhex("803F 00C0 4940 807F  003C 00C0") + struct.pack("<f", 0.1)
    tensors = read_safetensors(raw_file(tmp_path / "a", header, data))
    assert all(tensor.dtype == np.float32 for tensor in tensors.values())
    assert tensors["b"].tolist() == [1.0, -2.0, 3.140625, np.inf]
    assert tensors["h"].tolist() == [1.0, -2.0]
    assert tensors["f"].tolist() == [np.float32(0.1)]


@pytest.mark.parametrize("pad", range(9))
def test_values_are_right_at_any_alignment_and_read_only(tmp_path, pad):
    # An odd header length is what the published gpt2 has.
    header = {
        "u": info("U8", [3], 0, 3), "f": info("F32", [2, 2], 3, 19), "d": info("F64", [], 19, 27),
        "b": info("BF16", [], 27, 29), "t": info("BOOL", [2], 29, 31),
        "z": info("F64", [0, 7], 31, 31),
    }  # fmt: skip
    data = b"\x01\x02\xff" + struct.pack("<4fd", 1.5, -2, 3, 4, 0.1) + b"\x49\x40" + b"\x00\x02"
    text = json.dumps(header).encode() + b" " * pad
    tensors = read_safetensors(raw_file(tmp_path / "a", text, data))
    assert list(tensors) == list(header)
    assert tensors["u"].tolist() == [1, 2, 255]
    assert tensors["f"].tolist() == [[1.5, -2], [3, 4]]
    assert tensors["d"].shape == () and tensors["d"] == 0.1 and tensors["b"] == 3.140625
    assert tensors["t"].dtype == bool and tensors["t"].view(np.uint8).tolist() == [0, 1]
    assert tensors["z"].shape == (0, 7) and tensors["z"].dtype == np.float64
    for tensor in tensors.values():
        assert tensor.flags.aligned and not tensor.flags.writeable


def test_what_one_header_order_says_another_may_too(tmp_path):
    # Offsets, not the order of the keys, say where a tensor lies; an empty one lies anywhere.
    header = {
        "b": info("I16", [2], 2, 6), "e": info("I16", [0], 2, 2), "a": info("I16", [1], 0, 2),
    }  # fmt: skip
    tensors = read_safetensors(raw_file(tmp_path / "a", header, struct.pack("<3h", 7, -8, 9)))
    assert (tensors["a"].tolist(), tensors["b"].tolist()) == ([7], [-8, 9])


def test_no_tensors_at_all(tmp_path):
    assert read_safetensors(raw_file(tmp_path / "a", {})) == {}
    write_safetensors(tmp_path / "b", {})
    assert read_safetensors(tmp_path / "b") == {} == read_metadata(tmp_path / "b")


def test_f32_is_mapped_not_copied(tmp_path):
    path = tmp_path / "a"
    write_safetensors(path, {"x": np.zeros((3, 5), np.float32), "y": np.zeros(7, np.float32)})
    tensors = read_safetensors(path)
    size = path.stat().st_size
    with open(path, "r+b") as file:  # change the last float under the reader's feet
        file.seek(size - 4)
        file.write(struct.pack("<f", 42))
    assert tensors["y"][-1] == 42
    assert not tensors["x"].flags.owndata


def test_an_odd_header_costs_one_read_not_a_copy_of_each_tensor(tmp_path):
    header = {"a": info("F32", [1], 0, 4), "b": info("F32", [1], 4, 8)}
    text = json.dumps(header).encode()
    text += b" " * (5 - len(text) % 4)
    tensors = read_safetensors(raw_file(tmp_path / "x", text, struct.pack("<2f", 1, 2)))
    a, b = (tensor.__array_interface__["data"][0] for tensor in tensors.values())
    assert b - a == 4 and tensors["b"].flags.aligned


# ---- safetensors: writing


@pytest.mark.parametrize("dtype", ["f8", "f4", "c8", *"qihbQIHB?"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3, 4)])
def test_round_trip_keeps_bits_dtype_and_shape(tmp_path, dtype, shape):
    rng = np.random.default_rng(0)
    array = rng.integers(0, 2 if dtype == "?" else 100, shape).astype(dtype)
    write_safetensors(tmp_path / "a", {"x": array}, {"k": "v\u00e9\U0001f600"})
    back = read_safetensors(tmp_path / "a")["x"]
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(back, array)
    assert read_metadata(tmp_path / "a") == {"k": "v\u00e9\U0001f600"}


def test_the_file_is_the_format_byte_for_byte(tmp_path):
    tensors = {
        "half": np.array([1, -2], np.float16),
        "fortran": np.asfortranarray(np.arange(6, dtype=">f4").reshape(2, 3)),
        "strided": np.arange(10, dtype=np.int64)[::-3],
    }
    write_safetensors(tmp_path / "a", tensors, {"n_head": "2"})
    raw = (tmp_path / "a").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    assert (8 + length) % 64 == 0
    assert header.pop("__metadata__") == {"n_head": "2"}
    assert {name: (i["dtype"], i["shape"]) for name, i in header.items()} == {
        "half": ("F16", [2]), "fortran": ("F32", [2, 3]), "strided": ("I64", [4]),
    }  # fmt: skip
    want = {
        "half": struct.pack("<2e", 1, -2),
        "fortran": struct.pack("<6f", *range(6)),
        "strided": struct.pack("<4q", 9, 6, 3, 0),
    }
    for name, i in header.items():
        start, stop = i["data_offsets"]
        assert data[start:stop] == want[name]
        assert start % tensors[name].itemsize == 0
    assert len(data) == sum(map(len, want.values()))


@pytest.mark.parametrize(
    ("tensors", "metadata"),
    [
        ({"x": np.array(["text"])}, None),
        ({"x": np.array([object()])}, None),
        ({"x": np.zeros(1, np.complex128)}, None),
        ({"__metadata__": np.zeros(1)}, None),
        ({7: np.zeros(1)}, None),
        ({}, {"step": 7}),
        ({}, {7: "step"}),
    ],
)
def test_what_the_format_cannot_hold_is_refused_and_nothing_written(tmp_path, tensors, metadata):
    with pytest.raises(ValueError, match="a.safetensors: "):
        write_safetensors(tmp_path / "a.safetensors", tensors, metadata)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_failed_save_leaves_the_previous_file_and_no_litter(tmp_path, monkeypatch, call, error):
    path = tmp_path / "a"
    write_safetensors(path, {"x": np.arange(3.0)})
    before = path.read_bytes()

    def fail(*_):
        raise error

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(type(error)) as caught:
        write_safetensors(path, {"x": np.arange(9.0)})
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
    if isinstance(error, OSError):
        assert str(caught.value) == f"[Errno {errno.ENOSPC}] No space left: {str(path)!r}"


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX file size limits")
def test_a_disk_that_fills_up_leaves_the_previous_file(tmp_path):
    path = tmp_path / "a"
    write_safetensors(path, {"x": np.arange(3.0)})
    before = path.read_bytes()
    code = (
        "import resource, sys, numpy as np\n"
        "from gpt_numpy.checkpoint import write_safetensors\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "try: write_safetensors(sys.argv[1], {'x': np.zeros(10**6)})\n"
        "except OSError as e: sys.exit(0 if e.filename == sys.argv[1] else 'not named')\n"
        "sys.exit('no error')"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_an_unwritable_or_missing_folder_is_named(tmp_path):
    path = tmp_path / "none" / "a"
    with pytest.raises(FileNotFoundError) as caught:
        write_safetensors(path, {"x": np.zeros(1)})
    assert repr(str(path)) in str(caught.value)
    if sys.platform != "win32" and os.getuid() != 0:  # root may write anywhere
        tmp_path.chmod(0o500)
        with pytest.raises(PermissionError):
            write_safetensors(tmp_path / "a", {"x": np.zeros(1)})
        tmp_path.chmod(0o700)


def test_a_file_can_be_written_over_itself_while_mapped(tmp_path):
    if sys.platform == "win32":
        pytest.skip("Windows refuses to replace a mapped file, as documented")
    path = tmp_path / "a"
    write_safetensors(path, {"x": np.arange(1000.0)})
    tensors = read_safetensors(path)
    write_safetensors(path, {"x": tensors["x"] * 2})
    assert tensors["x"][7] == 7 and read_safetensors(path)["x"][7] == 14


# ---- safetensors: damaged and hostile files

F = "F32"
BAD = {
    "empty file": (b"", None),
    "header beyond the file": (({}, b"", 3), "header of 3 bytes"),
    "header of 2**63 bytes": (({}, b"", 2**63), "header of 9223372036854775808 bytes"),
    "not JSON": ((b"{]", b""), None),
    "not UTF-8": ((b'{"\xff": 1}', b""), None),
    "UTF-16": (('{"a":1}'.encode("utf-16"), b""), None),
    "not an object": ((b"[1]", b""), "not a JSON object"),
    "null": ((b"null", b""), "not a JSON object"),
    "nested without end": ((b"[" * 100_000, b""), "recursion"),
    "endless number": ((b'{"a":' + b"9" * 10_000 + b"}", b""), None),
    "a name twice": ((b'{"a":1,"a":1}', b""), "twice"),
    "dtype twice": (
        (b'{"a":{"dtype":"U8","dtype":"I8","shape":[0],"data_offsets":[0,0]}}', b""), "twice"),
    "metadata no object": (({"__metadata__": []}, b""), "__metadata__"),
    "metadata of numbers": (({"__metadata__": {"a": 1}}, b""), "__metadata__"),
    "tensor no object": (({"a": 1}, b""), "'a'"),
    "no shape": (({"a": {"dtype": F, "data_offsets": [0, 0]}}, b""), "'a'"),
    "unknown dtype": (({"a": info("F8_E4M3", [1], 0, 1)}, b"x"), "'a' has dtype F8_E4M3"),
    "dtype no string": (({"a": info(["F32"], [1], 0, 4)}, b"abcd"), "'a' has dtype"),
    "data missing": (({"a": info(F, [2], 0, 8)}, b"1234567"), "7"),
    "trailing data": (({"a": info(F, [2], 0, 8)}, b"123456789"), "9"),
    "trailing data after nothing": (({}, b"1"), "1"),
    "overlap": (({"a": info(F, [2], 0, 8), "b": info(F, [1], 4, 8)}, b"12345678"), "'b'"),
    "same place twice": (({"a": info(F, [1], 0, 4), "b": info(F, [1], 0, 4)}, b"1234"), "'b'"),
    "gap": (({"a": info(F, [1], 0, 4), "b": info(F, [1], 8, 12)}, b"1" * 12), "'b'"),
    "gap before the first": (({"a": info(F, [1], 4, 8)}, b"1" * 8), "'a'"),
    "descending offsets": (({"a": info(F, [1], 4, 0)}, b"1234"), "'a'"),
    "negative offset": (({"a": info(F, [1], -4, 0)}, b""), "'a'"),
    "one offset": (({"a": info(F, [1], 4)}, b"1234"), "'a'"),
    "three offsets": (({"a": info(F, [1], 0, 4, 8)}, b"1234"), "'a'"),
    "offsets no list": (({"a": {"dtype": F, "shape": [1], "data_offsets": "04"}}, b"1234"), "'a'"),
    "fractional offset": (({"a": info(F, [1], 0.0, 4.0)}, b"1234"), "'a'"),
    "shape too large": (({"a": info(F, [3], 0, 8)}, b"12345678"), "'a'"),
    "shape too small": (({"a": info(F, [1], 0, 8)}, b"12345678"), "'a'"),
    "negative shape": (({"a": info(F, [-1, -2], 0, 8)}, b"12345678"), "'a'"),
    "shape -1": (({"a": info(F, [-1], 0, 8)}, b"12345678"), "'a'"),
    "fractional shape": (({"a": info(F, [2.0], 0, 8)}, b"12345678"), "'a'"),
    "shape of bools": (({"a": info(F, [True], 0, 4)}, b"1234"), "'a'"),
    "shape no list": (({"a": info(F, 1, 0, 4)}, b"1234"), "'a'"),
    "shape that wraps around 2**64": (({"a": info(F, [2**62, 4], 0, 0)}, b""), "'a'"),
    "shape beyond an int64": (({"a": info(F, [0, 2**63], 0, 0)}, b""), "'a'"),
    "empty shape that overflows": (({"a": info(F, [0, 2**62, 2**62], 0, 0)}, b""), "'a'"),
    "65 dimensions": (({"a": info(F, [1] * 65, 0, 4)}, b"1234"), "'a'"),
    "an error as long as the file": (({"a" * 10**6: 1}, b""), None),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("read", [read_safetensors, read_metadata, load_gpt2])
def test_a_damaged_file_gets_one_line_that_begins_with_its_name(tmp_path, case, read):
    content, says = BAD[case]
    path = tmp_path / "bad.safetensors"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        raw_file(path, *content)
    with pytest.raises(ValueError) as caught:
        read(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message and len(message) < 600
    if says is not None:
        assert says in message


def test_64_dimensions_and_offsets_of_empty_tensors_are_fine(tmp_path):
    header = {"a": info(F, [1] * 64, 0, 4), "z": info(F, [0, 2**59], 4, 4)}
    assert read_safetensors(raw_file(tmp_path / "a", header, b"1234"))["a"].ndim == 64


def test_flipped_bits_and_cut_files_raise_nothing_but_value_error(tmp_path):
    path = tmp_path / "a"
    write_safetensors(path, {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(7),
        "h": np.ones(3, np.float16), "t": np.array([True]), "z": np.zeros((0, 2)),
    }, {"n_head": "2"})  # fmt: skip
    good, rng, refused = path.read_bytes(), random.Random(0), 0
    (length,) = struct.unpack("<Q", good[:8])
    for i in range(1000):
        bad = bytearray(good)
        if i % 4 == 0:
            del bad[rng.randrange(len(bad)) :]
        else:
            for _ in range(rng.choice([1, 1, 2, 8])):
                bad[rng.randrange(8 + length)] ^= 1 << rng.randrange(8)
        path.write_bytes(bad)
        try:
            for tensor in read_safetensors(path).values():
                assert tensor.nbytes <= 2 * len(good)
                tensor.sum()
        except ValueError as error:
            refused += 1
            assert str(error).startswith(f"{path}: ") and "\n" not in str(error)
    assert 500 < refused < 1000


def test_a_lying_header_allocates_nothing(tmp_path):
    import tracemalloc

    files = [
        raw_file(tmp_path / "a", {}, b"", 2**40),
        raw_file(tmp_path / "b", {"a": info(F, [2**40], 0, 2**42)}, b""),
        raw_file(tmp_path / "c", {"h.999999999.ln_1.weight": info(F, [1], 0, 4),
                                  "wte.weight": info(F, [1, 1], 4, 8),
                                  "wpe.weight": info(F, [1, 1], 8, 12)}, b"1" * 12),
    ]  # fmt: skip
    for path in files:
        tracemalloc.start()
        with pytest.raises(ValueError):
            load_gpt2(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1_000_000


def test_the_safetensors_library_and_we_read_each_other(tmp_path):
    peer = pytest.importorskip("safetensors.numpy", reason="the safetensors library is not here")
    tensors = {**tiny_tensors(np.float32), "i": np.arange(3), "z": np.zeros((2, 0))}
    tensors["s"] = np.array(1.0)
    write_safetensors(tmp_path / "ours", tensors, {"k": "v"})
    peer.save_file(tensors, tmp_path / "theirs", {"k": "v"})
    for found in (peer.load_file(tmp_path / "ours"), read_safetensors(tmp_path / "theirs")):
        assert found.keys() == tensors.keys()
        for name, tensor in tensors.items():
            np.testing.assert_array_equal(found[name], tensor)
            assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape
    assert read_metadata(tmp_path / "theirs") == {"k": "v"}


# ---- names


def test_flatten_gives_the_published_names_and_copies_nothing():
    params = tiny_params()
    flat = flatten(params)
    assert {name: array.shape for name, array in flat.items()} == SHAPES
    assert flat["wte.weight"] is params["wte"]
    assert flat["h.1.mlp.c_fc.weight"] is params["blocks"][1]["mlp"]["c_fc"]["w"]
    assert flat["h.0.ln_2.weight"] is params["blocks"][0]["ln_2"]["g"]
    assert flat["ln_f.bias"] is params["ln_f"]["b"]


def test_unflatten_is_the_inverse_in_any_order_and_of_any_leaf():
    names = list(gpt2_shapes(5, 6, 4, 12))  # h.10 comes before h.2 in the order of text
    params = unflatten({name: ("leaf", name) for name in sorted(names)})
    assert len(params["blocks"]) == 12
    assert params["blocks"][10]["attn"]["c_attn"]["b"] == ("leaf", "h.10.attn.c_attn.bias")
    assert flatten(params) == {name: ("leaf", name) for name in names}
    assert list(flatten(unflatten(dict.fromkeys(names)))) == names


def test_a_parallel_block_has_no_ln_2():
    shapes = gpt2_shapes(5, 6, 4, 2, parallel_block=True)
    assert shapes == {name: shape for name, shape in SHAPES.items() if "ln_2" not in name}
    assert "ln_2" not in unflatten(shapes)["blocks"][1]
    assert flatten(unflatten(shapes)) == shapes


# ---- load_gpt2


def masks():
    buffers = {}
    for i in range(2):
        buffers[f"h.{i}.attn.bias"] = np.tril(np.ones((1, 1, 6, 6)))
        buffers[f"h.{i}.attn.masked_bias"] = np.array(-1e4)
    return buffers


def prefixed(tensors):
    return {f"transformer.{name}": tensor for name, tensor in tensors.items()}


SPELLINGS = {
    "bare": lambda t: t,
    "transformer.": prefixed,
    "mask buffers": lambda t: {**t, **masks()},
    "transformer. and mask buffers": lambda t: prefixed({**t, **masks()}),
    "tied head": lambda t: {**t, "lm_head.weight": t["wte.weight"]},
    "all": lambda t: {**prefixed({**t, **masks()}), "lm_head.weight": t["wte.weight"]},
    "bool masks": lambda t: {**t, "h.0.attn.bias": np.ones((1, 1, 6, 6), bool)},
    "last first": lambda t: dict(reversed(t.items())),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_all_published_spellings_give_the_published_logits(tmp_path, spelling):
    from gpt_numpy.gpt2 import gpt2

    write_safetensors(tmp_path / "model.safetensors", SPELLINGS[spelling](tiny_tensors()))
    params, n_head = load_gpt2(tmp_path, n_head=N_HEAD)
    assert list(flatten(params)) == list(SHAPES)
    logits = gpt2(np.array(TOKENS), **params, n_head=n_head)
    np.testing.assert_allclose(logits[-1], LAST_LOGITS, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("stored", "loaded"), [("f8", "f8"), ("f4", "f4"), ("f2", "f4")])
def test_float64_stays_and_float16_is_widened(tmp_path, stored, loaded):
    save_gpt2(tmp_path, tiny_params(stored), N_HEAD)
    params, _ = load_gpt2(tmp_path)
    for name, tensor in flatten(params).items():
        assert tensor.dtype == loaded
        np.testing.assert_array_equal(tensor, tiny_tensors(stored)[name])


def test_parallel_blocks_load(tmp_path):
    flat = {name: tensor for name, tensor in tiny_tensors().items() if "ln_2" not in name}
    save_gpt2(tmp_path / "a", unflatten(flat), N_HEAD)
    assert flatten(load_gpt2(tmp_path / "a")[0]).keys() == flat.keys()


def without(*names):
    return {name: tensor for name, tensor in tiny_tensors().items() if name not in names}


def test_every_missing_tensor_is_named_with_its_shape(tmp_path):
    for name, shape in SHAPES.items():
        write_safetensors(tmp_path / "a", without(name))
        with pytest.raises(ValueError) as caught:
            load_gpt2(tmp_path / "a", N_HEAD)
        assert str(caught.value).startswith(f"{tmp_path / 'a'}: ") and name in str(caught.value)
        if not name.startswith("w"):
            assert f"{name}: expected shape {shape}" in str(caught.value)


def test_every_misshaped_tensor_is_named_with_both_shapes(tmp_path):
    for name, shape in SHAPES.items():
        found = (*shape[:-1], shape[-1] + 1)
        write_safetensors(tmp_path / "a", {**tiny_tensors(), name: np.zeros(found)})
        with pytest.raises(ValueError) as caught:
            load_gpt2(tmp_path / "a", N_HEAD)
        assert name in str(caught.value) and str(found) in str(caught.value)
        if name != "wte.weight":  # which sets n_embd: the next tensor then seems to differ
            assert f"{name}: expected shape {shape}" in str(caught.value)


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ({**tiny_tensors(), "h.0.attn.c_attn.weight": np.zeros((12, 4))}, r"\(4, 12\).*\(12, 4\)"),
        ({**tiny_tensors(), "wte.weight": np.zeros((5, 4), int)}, "'wte.weight'.*int"),
        ({**tiny_tensors(), "wte.weight": np.zeros(20)}, r"wte.weight.*\(20,\)"),
        ({**tiny_tensors(), "wte.weight": np.zeros((0, 4))}, r"wte.weight.*\(0, 4\)"),
        ({**tiny_tensors(), "h.0.attn.rotary": np.zeros(1)}, "h.0.attn.rotary"),
        ({**tiny_tensors(), "extra": np.zeros(1)}, "'extra'"),
        ({**tiny_tensors(), "h.7.ln_1.weight": np.zeros(4)}, "h.2.ln_1.weight"),
        ({**tiny_tensors(), "h.x.ln_1.weight": np.zeros(4)}, "h.2.ln_1.weight"),
        ({**tiny_tensors(), "lm_head.weight": np.zeros((5, 4))}, "lm_head.weight"),
        ({**tiny_tensors(), "lm_head.weight": np.zeros((7, 4))}, "lm_head.weight"),
        ({**tiny_tensors(), "lm_head.bias": np.zeros(5)}, "lm_head.bias"),
        ({**tiny_tensors(), "transformer.wte.weight": np.zeros((5, 4))}, "with and without"),
        (without("h.1.ln_2.weight", "h.1.ln_2.bias"), "h.1.ln_2.weight"),
        ({n: t for n, t in tiny_tensors().items() if not n.startswith("h.0")}, "h.0.ln_1.weight"),
        ({n: t for n, t in tiny_tensors().items() if not n.startswith("h.")}, "h.0.ln_1.weight"),
        ({}, "wte.weight"),
    ],
)
def test_a_file_that_is_not_gpt2_is_refused(tmp_path, tensors, says):
    write_safetensors(tmp_path / "a.safetensors", tensors)
    with pytest.raises(ValueError, match=r"a\.safetensors: .*" + says):
        load_gpt2(tmp_path / "a.safetensors", N_HEAD)


def test_an_untied_head_in_the_last_digit_is_not_ignored(tmp_path):
    head = tiny_tensors()["wte.weight"]
    head[-1, -1] = np.nextafter(head[-1, -1], 1)
    write_safetensors(tmp_path / "a", {**tiny_tensors(), "lm_head.weight": head})
    with pytest.raises(ValueError, match="lm_head.weight differs"):
        load_gpt2(tmp_path / "a", N_HEAD)


def config(folder, **values):
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")


def test_n_head_is_argument_then_metadata_then_config_then_size_64(tmp_path):
    path = tmp_path / "model.safetensors"
    write_safetensors(path, tiny_tensors())
    with pytest.raises(ValueError, match="n_head 0 does not divide n_embd 4"):
        load_gpt2(tmp_path)
    config(tmp_path, n_head=1, activation_function="gelu_new", layer_norm_epsilon=1e-05)
    assert load_gpt2(tmp_path)[1] == load_gpt2(path)[1] == 1
    save_gpt2(tmp_path, tiny_params(), n_head=2, metadata={"step": "7"})
    assert read_metadata(path) == {"n_head": "2", "step": "7"}
    assert load_gpt2(tmp_path)[1] == 2
    assert load_gpt2(tmp_path, n_head=4)[1] == 4
    (tmp_path / "config.json").unlink()
    shapes = gpt2_shapes(n_vocab=3, n_ctx=2, n_embd=192, n_layer=1)
    write_safetensors(path, {name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
    assert load_gpt2(path)[1] == 3


@pytest.mark.parametrize("n_head", [0, -2, 3, 2.0, True, "two", ""])
def test_a_senseless_n_head_is_refused(tmp_path, n_head):
    write_safetensors(tmp_path / "model.safetensors", tiny_tensors())
    config(tmp_path, n_head=n_head)
    with pytest.raises(ValueError, match="model.safetensors: n_head .* does not divide n_embd 4"):
        load_gpt2(tmp_path)


@pytest.mark.parametrize("text", ["", "[1]", "{", "null", "7", "[" * 100_000])
def test_a_damaged_config_is_named(tmp_path, text):
    save_gpt2(tmp_path, tiny_params(), N_HEAD)
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="config.json: not a JSON object"):
        load_gpt2(tmp_path)


@pytest.mark.parametrize("other", [{"activation_function": "relu"}, {"layer_norm_epsilon": 1e-6}])
def test_a_config_of_another_model_is_refused(tmp_path, other):
    save_gpt2(tmp_path, tiny_params(), N_HEAD)
    config(tmp_path, n_head=2, **other)
    with pytest.raises(ValueError, match=f"config.json: {next(iter(other))} is"):
        load_gpt2(tmp_path)


@pytest.mark.parametrize("path", ["none", "none/model.safetensors", "."])
def test_a_file_that_is_not_there_is_named(tmp_path, path):
    with pytest.raises(FileNotFoundError) as caught:
        load_gpt2(tmp_path / path)
    assert str(tmp_path) in str(caught.value)


def test_everything_is_opened_with_an_encoding(tmp_path):
    code = (
        "import sys; from tests.tiny import *; from gpt_numpy.checkpoint import *\n"
        "save_gpt2(sys.argv[1], tiny_params(), 2); load_gpt2(sys.argv[1])"
    )
    config(tmp_path, n_head=2)
    flags = ["-X", "warn_default_encoding", "-W", "error::EncodingWarning"]
    env = {**os.environ, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    subprocess.run([sys.executable, *flags, "-c", code, str(tmp_path)], check=True, env=env)


def test_the_import_costs_no_more_than_numpy():
    code = (
        "import sys, gpt_numpy.checkpoint; slow = {'requests', 'tqdm', 'regex', 'http'}\n"
        "sys.exit(', '.join(slow & sys.modules.keys()) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
