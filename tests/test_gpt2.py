"""gpt2.py against a GPT-2 in plain Python loops that shares no code with it; published values."""

import ast
import io
import math
import tokenize
from pathlib import Path

import numpy as np
import pytest

from gpt_numpy import gpt2 as room
from gpt_numpy.gpt2 import attention_mask, block, gpt2, new_cache
from tests.tiny import LAST_LOGITS, N_HEAD, TOKENS, tiny_params

N_CTX, N_VOCAB, N_EMBD, HEADS = 7, 11, 6, 3
SIX = np.array([3, 10, 0, 3, 7, 1])


def random_params(n_layer=2, parallel_block=False, dtype=np.float64, seed=0):
    """A model of unequal sizes, with biases and gains that are neither 0 nor 1."""
    rng = np.random.default_rng(seed)
    d = N_EMBD

    def draw(*shape):
        return rng.normal(0, 0.5, shape).astype(dtype)

    def one():
        p = {
            "ln_1": {"g": 1 + draw(d), "b": draw(d)},
            "attn": {
                "c_attn": {"w": draw(d, 3 * d), "b": draw(3 * d)},
                "c_proj": {"w": draw(d, d), "b": draw(d)},
            },
            "ln_2": {"g": 1 + draw(d), "b": draw(d)},
            "mlp": {
                "c_fc": {"w": draw(d, 4 * d), "b": draw(4 * d)},
                "c_proj": {"w": draw(4 * d, d), "b": draw(d)},
            },
        }
        if parallel_block:
            del p["ln_2"]
        return p

    return {
        "wte": draw(N_VOCAB, d), "wpe": draw(N_CTX, d), "blocks": [one() for _ in range(n_layer)],
        "ln_f": {"g": 1 + draw(d), "b": draw(d)},
    }  # fmt: skip


# The oracle: lists of floats, one head and one position at a time.


def slow_norm(x, p):
    mean = sum(x) / len(x)
    variance = sum((a - mean) ** 2 for a in x) / len(x)
    return [(a - mean) / math.sqrt(variance + 1e-5) * g + b for a, g, b in zip(x, p["g"], p["b"])]


def slow_linear(x, p):
    return [sum(a * p["w"][i][j] for i, a in enumerate(x)) + p["b"][j] for j in range(len(p["b"]))]


def slow_gelu(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def slow_sees(query, key, prefix, window):
    seen = key <= query or (key < prefix and query < prefix)
    return seen and (window is None or key > query - window)


def slow_attention(ys, p, n_head, prefix, window):
    d = len(ys[0])
    e = d // n_head
    qkv = [slow_linear(y, p["c_attn"]) for y in ys]
    out = []
    for i in range(len(ys)):
        row = []
        for h in range(n_head):
            q = qkv[i][h * e : (h + 1) * e]
            keys = [j for j in range(len(ys)) if slow_sees(i, j, prefix, window)]
            scores = [
                sum(a * b for a, b in zip(q, qkv[j][d + h * e : d + (h + 1) * e])) / math.sqrt(e)
                for j in keys
            ]
            weights = [math.exp(s) for s in scores]
            for c in range(e):
                row.append(
                    sum(w * qkv[j][2 * d + h * e + c] for w, j in zip(weights, keys))
                    / sum(weights)
                )
        out.append(slow_linear(row, p["c_proj"]))
    return out


def slow_mlp(y, p):
    return slow_linear([slow_gelu(a) for a in slow_linear(y, p["c_fc"])], p["c_proj"])


def slow_gpt2(tokens, params, n_head, prefix=0, window=None):
    xs = [
        [a + b for a, b in zip(params["wte"][t], params["wpe"][i])] for i, t in enumerate(tokens)
    ]
    for p in params["blocks"]:
        ys = [slow_norm(x, p["ln_1"]) for x in xs]
        attended = slow_attention(ys, p["attn"], n_head, prefix, window)
        if "ln_2" in p:
            xs = [[a + b for a, b in zip(x, y)] for x, y in zip(xs, attended)]
            ys = [slow_norm(x, p["ln_2"]) for x in xs]
            attended = [[0.0] * len(x) for x in xs]
        xs = [
            [a + b + c for a, b, c in zip(x, y, slow_mlp(n, p["mlp"]))]
            for x, y, n in zip(xs, attended, ys)
        ]
    return np.array(
        [
            [sum(a * b for a, b in zip(slow_norm(x, params["ln_f"]), e)) for e in params["wte"]]
            for x in xs
        ]
    )


MASKS = [{}, {"prefix": 3}, {"window": 2}, {"window": 1}, {"prefix": 4, "window": 3}]


@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize("parallel_block", [False, True])
def test_logits_equal_those_of_plain_loops(mask, parallel_block):
    params = random_params(parallel_block=parallel_block)
    logits = gpt2(SIX, **params, n_head=HEADS, **mask)
    np.testing.assert_allclose(logits, slow_gpt2(SIX, params, HEADS, **mask), rtol=0, atol=1e-10)


def test_tiny_gives_the_logits_of_another_program():
    logits = gpt2(TOKENS, **tiny_params(), n_head=N_HEAD)
    # 6 digits were published
    np.testing.assert_allclose(logits[-1], LAST_LOGITS, rtol=0, atol=1e-6)


def test_gelu_and_layer_norm_are_gpt2s_and_not_nearby_forms():
    """By another program: erf's gelu differs by 4e-4, eps 1e-6 by a factor of 2."""
    gelu = room.gelu(np.array([-3, -1, 0.5, 1, 2, 3.0]))
    np.testing.assert_allclose(
        gelu, [-0.0036374, -0.158808, 0.345714, 0.841192, 1.9545977, 2.9963626], atol=5e-7
    )
    normed = room.layer_norm(np.array([0.001, 0.002, 0.003, 0.004]), 1.0, 0.0)
    np.testing.assert_allclose(normed, [-0.447214, -0.149071, 0.149071, 0.447214], atol=1e-6)


def test_softmax_of_large_scores_does_not_overflow():
    np.testing.assert_allclose(room.softmax(np.array([1000.0, 1000.0, -np.inf])), [0.5, 0.5, 0])


def compositions(n):
    """Every way to cut n tokens into chunks: compositions(3) -> 3, 1+2, 2+1, 1+1+1."""
    if n == 0:
        return [[]]
    return [[first, *rest] for first in range(1, n + 1) for rest in compositions(n - first)]


def in_chunks(tokens, sizes, params, n_head, batch=(), **how):
    cache, past, parts = new_cache(**params, n_head=n_head, batch=batch), 0, []
    for a in cache:
        a[...] = np.nan  # what the cache holds beyond `past` must never be read
    for size in sizes:
        chunk = tokens[..., past : past + size]
        parts.append(gpt2(chunk, **params, n_head=n_head, cache=cache, past=past, **how))
        past += size
    return parts


@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_any_cut_into_chunks_through_the_cache_gives_the_full_pass(mask):
    params = random_params()
    whole = slow_gpt2(SIX, params, HEADS, **mask)
    cuts = [sizes for sizes in compositions(6) if sizes[0] >= mask.get("prefix", 0)]
    assert len(cuts) == 2 ** (5 - max(0, mask.get("prefix", 0) - 1))
    for sizes in cuts:
        parts = in_chunks(SIX, sizes, params, HEADS, **mask)
        np.testing.assert_allclose(
            np.concatenate(parts), whole, rtol=0, atol=1e-10, err_msg=str(sizes)
        )


@pytest.mark.parametrize("sizes", [[4], [1, 1, 1, 1], [2, 2], [3, 1]])
def test_tiny_in_chunks(sizes):
    """A position that restarts gives 0.930716 first with 2 + 2; a square mask is off by 0.067."""
    parts = in_chunks(np.array(TOKENS), sizes, tiny_params(), N_HEAD)
    np.testing.assert_allclose(parts[-1][-1], LAST_LOGITS, rtol=0, atol=1e-6)


@pytest.mark.parametrize("batch", [(2,), (2, 3), (1,)])
def test_a_batch_gives_each_sequences_own_logits_in_chunks_too(batch):
    params = random_params()
    tokens = np.random.default_rng(1).integers(0, N_VOCAB, (*batch, 5))
    alone = np.array([slow_gpt2(row, params, HEADS) for row in tokens.reshape(-1, 5)])
    alone = alone.reshape(*batch, 5, N_VOCAB)
    np.testing.assert_allclose(gpt2(tokens, **params, n_head=HEADS), alone, rtol=0, atol=1e-10)
    parts = in_chunks(tokens, [2, 1, 2], params, HEADS, batch)
    np.testing.assert_allclose(np.concatenate(parts, axis=-2), alone, rtol=0, atol=1e-10)


def test_right_padding_changes_no_token_before_it():
    params = random_params()
    padded = np.array([[1, 3, 2, 5], [1, 9, 9, 9], [4, 6, 9, 9]])  # of 4, 1 and 2 tokens
    logits = gpt2(padded, **params, n_head=HEADS)
    for row, length in enumerate([4, 1, 2]):
        alone = slow_gpt2(padded[row, :length], params, HEADS)
        np.testing.assert_allclose(logits[row, :length], alone, rtol=0, atol=1e-10)


@pytest.mark.parametrize("batch", [(), (3,)])
def test_last_gives_the_last_row_alone(batch):
    params = random_params()
    tokens = np.random.default_rng(2).integers(0, N_VOCAB, (*batch, 4))
    last = gpt2(tokens, **params, n_head=HEADS, last=True)
    assert last.shape == (*batch, N_VOCAB)
    np.testing.assert_allclose(
        last, gpt2(tokens, **params, n_head=HEADS)[..., -1, :], rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("n, m", [(1, 1), (5, 5), (2, 6), (1, 6)])
@pytest.mark.parametrize("prefix", [0, 1, 3])
@pytest.mark.parametrize("window", [None, 1, 3, 9])
def test_masks_follow_their_definition(n, m, prefix, window):
    mask = attention_mask(n, m, np.zeros(1, np.float32), prefix, window)
    assert mask.shape == (n, m) and mask.dtype == np.float32
    for i in range(n):
        for j in range(m):
            assert mask[i, j] == (0 if slow_sees(m - n + i, j, prefix, window) else -math.inf)


@pytest.mark.parametrize("parallel_block", [False, True])
@pytest.mark.parametrize("scalar", [int, np.int64, np.int32])
def test_float32_stays_float32(parallel_block, scalar):
    params = random_params(parallel_block=parallel_block, dtype=np.float32)
    how = {"n_head": scalar(HEADS), "window": scalar(3), "prefix": scalar(2)}
    cache = new_cache(**params, n_head=scalar(HEADS))
    assert all(kv.dtype == np.float32 for kv in cache)
    seen = []

    def spy(x):
        seen.append(x.dtype)
        return x

    assert gpt2(SIX, **params, **how).dtype == np.float32
    logits = gpt2(SIX[:4], **params, **how, cache=cache)
    assert logits.dtype == np.float32
    assert (
        gpt2(SIX[4:], **params, **how, cache=cache, past=scalar(4), last=True).dtype == np.float32
    )
    x = params["wte"][SIX]
    mask = attention_mask(6, 6, x)
    out = block(x, **params["blocks"][0], n_head=scalar(HEADS), mask=mask, enter=spy, leave=spy)
    assert out.dtype == np.float32 and set(seen) == {np.dtype(np.float32)}
    assert room.gelu(x).dtype == room.layer_norm(x, **params["ln_f"]).dtype == np.float32


def test_float32_is_near_float64():
    exact, single = random_params(), random_params(dtype=np.float32)
    logits = gpt2(SIX, **single, n_head=HEADS)
    np.testing.assert_allclose(logits, gpt2(SIX, **exact, n_head=HEADS), rtol=0, atol=1e-4)


def test_nothing_it_is_given_is_changed():
    params = random_params()
    before = random_params()
    tokens = SIX.copy()
    gpt2(tokens, **params, n_head=HEADS)
    assert (tokens == SIX).all()
    np.testing.assert_equal(params, before)


@pytest.mark.parametrize(
    "how, message",
    [
        ({"tokens": [0] * (N_CTX + 1)}, r"0 \+ 8 tokens.*n_ctx is 7"),
        ({"tokens": [0, 1], "past": 6, "cache": True}, r"6 \+ 2 tokens: n_ctx is 7"),
        ({"tokens": [0, 1], "past": 2}, "past needs its cache"),
        ({"tokens": [0, 1], "prefix": 3}, "a prefix of 3 tokens .* not 2"),
        ({"tokens": [0, 1], "prefix": 3, "cache": True}, "a prefix of 3 tokens .* not 2"),
        ({"tokens": [0, 1], "window": 0}, "window is 0"),
    ],
)
def test_what_cannot_be_is_one_clear_error(how, message):
    params = random_params()
    if how.pop("cache", False):
        how = {**how, "cache": new_cache(**params, n_head=HEADS)}
    with pytest.raises(ValueError, match=message) as error:
        gpt2(how.pop("tokens"), **params, n_head=HEADS, **how)
    assert "\n" not in str(error.value)


def test_exactly_n_ctx_tokens_fit():
    params = random_params()
    tokens = np.arange(N_CTX)
    np.testing.assert_allclose(
        gpt2(tokens, **params, n_head=HEADS), slow_gpt2(tokens, params, HEADS), rtol=0, atol=1e-10
    )


# Tensor parallelism by hand: each rank runs in a thread of its own, and `leave` is a sum over all
# of them.


def shard(p, rank, ranks):
    """The weights of one rank: its heads' columns of each of q, k, v; its hidden units; whole
    biases after sums.
    """
    d, heads = N_EMBD, HEADS
    per = heads // ranks if ranks == heads else None
    e = d // heads
    # heads are cut unevenly when they do not divide: rank 0 gets the first, the last rank the rest
    mine = (
        range(rank * per, (rank + 1) * per)
        if per
        else (range(1) if rank == 0 else range(1, heads))
    )
    columns = [h * e + c for h in mine for c in range(e)]
    three = [part * d + c for part in range(3) for c in columns]
    units = (
        range(5)
        if rank == 0
        else range(5 + (rank - 1) * 9, 4 * d if rank == ranks - 1 else 5 + rank * 9)
    )
    units = list(units)
    attn, mlp = p["attn"], p["mlp"]
    return len(mine), {
        **p,
        "attn": {
            "c_attn": {"w": attn["c_attn"]["w"][:, three], "b": attn["c_attn"]["b"][three]},
            "c_proj": {"w": attn["c_proj"]["w"][columns], "b": attn["c_proj"]["b"]},
        },
        "mlp": {
            "c_fc": {"w": mlp["c_fc"]["w"][:, units], "b": mlp["c_fc"]["b"][units]},
            "c_proj": {"w": mlp["c_proj"]["w"][units], "b": mlp["c_proj"]["b"]},
        },
    }


@pytest.mark.parametrize("parallel_block", [False, True])
@pytest.mark.parametrize("ranks", [2, 3])
def test_tensor_parallel_shards_with_enter_and_leave_equal_the_whole(parallel_block, ranks):
    import threading

    params = random_params(parallel_block=parallel_block)
    x = params["wte"][SIX]
    mask = attention_mask(6, 6, x)
    whole = x
    for p in params["blocks"]:
        whole = block(whole, **p, n_head=HEADS, mask=mask)
    barrier, partial = threading.Barrier(ranks, timeout=20), [None] * ranks
    results, calls = [None] * ranks, [[] for _ in range(ranks)]

    def run(rank):
        def enter(y):
            calls[rank].append("enter")
            return y.copy()

        def leave(y):
            calls[rank].append("leave")
            partial[rank] = y
            barrier.wait()
            total = sum(partial)
            barrier.wait()
            return total

        y = x
        for p in params["blocks"]:
            n_head, mine = shard(p, rank, ranks)
            y = block(y, **mine, n_head=n_head, mask=mask, enter=enter, leave=leave)
        results[rank] = y

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        np.testing.assert_allclose(result, whole, rtol=0, atol=1e-10)
    pairs = 1 if parallel_block else 2  # the parallel block talks half as often
    assert all(c == ["enter", "leave"] * pairs * len(params["blocks"]) for c in calls)


def code_lines(source):
    """How many lines hold code: no blank ones, comments or docstrings."""
    lines = set()
    skipped = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE,
        tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
    }  # fmt: skip
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skipped:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        documented = isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef))
        if documented and ast.get_docstring(node):
            lines -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines)


def test_it_is_at_most_70_lines_of_code_and_imports_numpy_alone():
    source = Path(room.__file__).read_text(encoding="utf-8")
    assert 40 < code_lines(source) <= 70
    tree = ast.walk(ast.parse(source))
    imports = [node for node in tree if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert [ast.unparse(node) for node in imports] == ["import numpy as np"]


def test_code_lines_counts_code():
    source = (
        '"""Doc\nstring."""\n\n# why\nx = (1 +  # and\n     2)\n'
        '\n\ndef f():\n    "doc"\n    return x\n'
    )
    assert code_lines(source) == 4
