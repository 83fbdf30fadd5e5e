"""The checks of lesson 5."""

import math

import numpy as np

from lessons.checking import same, unchanged

# ---- linear_backward


def nudged(x, w, dy):
    """The gradients of sum(dy * (x @ w + b)), by adding 1 to one number at a time.

    The loss is a straight line along each of them, so a step of any size gives its slope.
    """

    def loss(x, w, b):
        return (dy * (x @ w + b)).sum()

    inputs, grads = [x, w, np.zeros(w.shape[1])], []
    for k, a in enumerate(inputs):
        grad = np.zeros(a.shape)
        for i in np.ndindex(a.shape):
            step = np.zeros(a.shape)
            step[i] = 1
            at = [loss(*inputs[:k], a + sign * step, *inputs[k + 1 :]) for sign in (1, -1)]
            grad[i] = (at[0] - at[1]) / 2
        grads.append(grad)
    dx, dw, db = grads
    return dx, {"w": dw, "b": db}


def gradients(linear_backward, *given):
    x, w, dy = (a.copy() for a in given)
    with unchanged(x, w, dy):
        got = linear_backward(x, w, dy)
    what = f"x {list(x.shape)}, w {list(w.shape)}, dy {list(dy.shape)}: gradient"
    if not isinstance(got, (tuple, list)) or len(got) != 2 or not isinstance(got[1], dict):
        same(got, (x, {"w": w, "b": dy}), what)  # says what is expected
    dx, right = nudged(*(a.astype(np.float64) for a in (x, w, dy)))
    right = {name: a.astype(x.dtype) for name, a in right.items()}
    b, s, _ = x.shape
    mistakes = {
        "w.T is needed: what w maps forward, w.T maps backward": dy @ w
        if len(w) == w.shape[1]
        else None,
        "that is a mean: if there is one, it is in dy already": dx / (b * s),
    }
    same(got[0], dx.astype(x.dtype), f"{what} of x", mistakes)
    means = {
        name: {f"that is a mean over {words}: if there is one, it is in dy already": a / k}
        for name, a in right.items()
        for words, k in [("tokens", b * s), ("sequences", b)]
    }
    extra = {
        "w": {
            "that is its transpose": right["w"].T,
            "each sequence has its own: w is used by all of them, so the gradients add up": (
                x.swapaxes(1, 2) @ dy
            ),
            "that is of the last sequence alone: sum over all": x[-1].T @ dy[-1],
            "that is of the first sequence alone: sum over all": x[0].T @ dy[0],
        },
        "b": {
            "that is summed over the outputs, too: each of them has a bias": np.full(
                right["b"].shape, dy.sum(), x.dtype
            ),
            "that is summed over all axes: each output has a bias": dy.sum(),
            "that is summed over sequences alone: tokens, too, share the bias": dy.sum(axis=0),
            "that is summed over tokens alone: sequences, too, share the bias": dy.sum(axis=1),
            "dy itself is the gradient of y: b is used at each token, so sum over them": dy,
        },
    }
    same(sorted(got[1]), ["b", "w"], "names of the parameters' gradients")
    for name, expected in right.items():
        same(got[1][name], expected, f"{what} of {name}", {**means[name], **extra[name]})


X = np.array([[[1.0, 2], [0, 1]], [[3, 4], [1, 1]]])
DY = np.array([[[1.0, 0], [0, 2]], [[0, 1], [1, 1]]])


def draw(*shapes, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def check_two_sequences_of_two_tokens(linear_backward):
    gradients(linear_backward, X, np.array([[1.0, 0], [2, 1]]), DY)


def check_a_square_weight(linear_backward):
    gradients(linear_backward, *draw((2, 3, 4), (4, 4), (2, 3, 4)))
    gradients(linear_backward, *draw((3, 3, 3), (3, 3), (3, 3, 3)))


def check_unequal_sizes(linear_backward):
    for b, s, d_in, d_out in [(2, 3, 4, 5), (3, 1, 5, 2), (1, 4, 2, 3)]:
        gradients(linear_backward, *draw((b, s, d_in), (d_in, d_out), (b, s, d_out)))


def check_one_token(linear_backward):
    gradients(linear_backward, *draw((1, 1, 2), (2, 3), (1, 1, 3)))


def check_float32_stays_float32(linear_backward):
    gradients(linear_backward, *draw((2, 3, 4), (4, 5), (2, 3, 5), dtype=np.float32))


# ---- cross_entropy_backward


def softmax(row):
    exps = [math.exp(z - max(row)) for z in row]
    return [e / sum(exps) for e in exps]


def slopes(cross_entropy_backward, logits, targets):
    n, v = logits.shape
    with unchanged(logits, targets), np.errstate(all="ignore"):
        got = cross_entropy_backward(logits, targets)
    p = np.array([softmax(row) for row in logits.tolist()])  # [n, v]
    hit = np.array([[float(t == j) for j in range(v)] for t in targets])  # [n, v]
    columns = np.isin(np.arange(v), targets).astype(float)  # [v]
    with np.errstate(all="ignore"):
        naive = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        one_maximum = np.exp(logits - logits.max())
        one_maximum /= one_maximum.sum(axis=1, keepdims=True)
    over_tokens = np.array([softmax(column) for column in logits.T.tolist()]).T  # [n, v]
    mistakes = {
        "that is the gradient of the sum: the loss is a mean over n tokens": p - hit,
        "that is divided by all n * v logits: the mean is over tokens": (p - hit) / (n * v),
        "that is divided by v: the mean is over the n tokens": (p - hit) / v,
        "p[:, targets] is whole columns: of each row one element is its target": (p - columns) / n,
        "that is the gradient's negative: more of the target makes the loss less": (hit - p) / n,
        "those are the probabilities: 1 is to be taken from the target's": p / n,
        "only the target's logit has a gradient? A higher one elsewhere takes from its "
        "probability": (p - hit) * hit / n,
        "softmax is over a token's logits, not over the tokens": (over_tokens - hit) / n,
        "softmax is missing": (logits - hit) / n,
        "exp of large logits overflows: take away the maximum of each row first": (naive - hit)
        / n,
        "each row has a maximum of its own": (one_maximum - hit) / n,
    }
    mistakes = {text: a.astype(logits.dtype) for text, a in mistakes.items()}
    what = f"gradient of logits [{n}, {v}], targets {targets.tolist()}"
    same(got, ((p - hit) / n).astype(logits.dtype), what, mistakes)


def check_equal_logits(cross_entropy_backward):
    slopes(cross_entropy_backward, np.zeros((2, 3)), np.array([0, 2]))


def check_rows_of_unequal_logits(cross_entropy_backward):
    logits = np.array([[1.0, 2, 3], [0, 0, 5], [1, 0, 1]])
    slopes(cross_entropy_backward, logits, np.array([2, 0, 0]))


def check_more_tokens_than_ids_and_fewer(cross_entropy_backward):
    for n, v in [(7, 4), (3, 11), (5, 2)]:
        (logits,) = draw((n, v), seed=n)
        slopes(cross_entropy_backward, 3 * logits, np.random.default_rng(n).integers(0, v, n))


def check_one_row(cross_entropy_backward):
    slopes(cross_entropy_backward, np.zeros((1, 3)), np.array([1]))


def check_large_logits(cross_entropy_backward):
    logits = np.array([[1000.0, 999, -1000], [-1000, -1001, -1002], [3, 800, -2]])
    slopes(cross_entropy_backward, logits, np.array([1, 2, 1]))


def check_logits_in_float32_stay_so(cross_entropy_backward):
    (logits,) = draw((3, 5), dtype=np.float32)
    slopes(cross_entropy_backward, logits, np.array([4, 0, 4]))


# ---- backprop


class Nodes(list):
    """A list of nodes that refuses to be read over and over."""

    reads = 0

    def __getitem__(self, i):
        self.reads += 1
        if self.reads > 1000 + 10 * len(self) ** 2:
            raise AssertionError(
                f"with {len(self)} nodes, some were read {self.reads - 1} times in all: is each "
                "way to a node followed by itself? First add up what comes to a node, then go on"
            )
        return super().__getitem__(i)


def by_nudging(nodes):
    """The derivatives, forward: for each node, how the last changes with it."""
    values, result = [], []
    for kind, *inputs in nodes:
        a, b = (values[i] for i in inputs) if kind != "leaf" else (inputs[0], None)
        values.append(a if b is None else a + b if kind == "add" else a * b)
    for seed in range(len(nodes)):
        slopes = []
        for place, (kind, *inputs) in enumerate(nodes):
            if place == seed or kind == "leaf":
                slopes.append(1 if place == seed else 0)
            else:
                i, j = inputs
                by = (1, 1) if kind == "add" else (values[j], values[i])
                slopes.append(slopes[i] * by[0] + slopes[j] * by[1])
        result.append(slopes[-1])
    return result


def mistaken(nodes, how):
    """What a misunderstanding gives: "set", "at once", "first visit", "own value"."""
    values, grads = [], [0] * len(nodes)
    for kind, *inputs in nodes:
        a, b = (values[i] for i in inputs) if kind != "leaf" else (inputs[0], None)
        values.append(a if b is None else a + b if kind == "add" else a * b)
    grads[-1] = 1

    def pass_on(place):
        kind, *inputs = nodes[place]
        for i, j in (inputs, inputs[::-1]) if kind != "leaf" else ():
            other = values[i] if how == "own value" else values[j]
            slope = grads[place] * (1 if kind == "add" else other)
            grads[i] = slope if how == "set" else grads[i] + slope
            yield i

    if how in ("set", "own value"):
        for place in reversed(range(len(nodes))):
            list(pass_on(place))
    else:
        seen, budget = set(), [10_000]

        def visit(place):
            budget[0] -= 1
            if budget[0] < 0 or (how == "first visit" and place in seen):
                return
            seen.add(place)
            for i in pass_on(place) if how == "at once" else list(pass_on(place)):
                visit(i)

        visit(len(nodes) - 1)
    return grads


def derivatives(backprop, nodes, what):
    given = Nodes(nodes)
    got = backprop(given)
    same(list(given), list(nodes), "the list of nodes was changed")
    mistakes = {
        "a node that is used twice has two contributions: add, do not set": "set",
        "a node passed on what it had before all of it had come, and again later": "at once",
        "a node passed on its gradient before all that use it had added theirs": "first visit",
        "of a product, the slope along one factor is the other one": "own value",
    }
    mistakes = {text: mistaken(nodes, how) for text, how in mistakes.items()}
    mistakes["that is for the leaves alone: every node has one"] = [
        slope for node, slope in zip(nodes, by_nudging(nodes)) if node[0] == "leaf"
    ]
    same(got, by_nudging(nodes), f"derivatives of {what}", mistakes, by="of node")


def check_results_that_are_shared(backprop):
    nodes = [("leaf", 2), ("leaf", 3), ("add", 0, 1), ("mul", 0, 1)]
    nodes += [("add", 2, 3), ("mul", 2, 3), ("add", 4, 5)]
    derivatives(backprop, nodes, "c = a + b, d = a * b, (c + d) + c * d at a = 2, b = 3")


def check_used_twice(backprop):
    derivatives(backprop, [("leaf", 1), ("add", 0, 0), ("add", 1, 1)], "b = a + a, b + b at a = 1")


def check_a_number_times_itself(backprop):
    nodes = [("leaf", 3), ("mul", 0, 0), ("mul", 1, 0)]
    derivatives(backprop, nodes, "(a * a) * a at a = 3")


def check_a_tree(backprop):
    derivatives(backprop, [("leaf", 2), ("leaf", 5), ("mul", 0, 1)], "a * b at a = 2, b = 5")


def check_what_does_not_matter_has_0(backprop):
    nodes = [("leaf", 2), ("leaf", 5), ("mul", 0, 1), ("add", 0, 0)]
    derivatives(backprop, nodes, "a + a, beside an a * b that nothing uses")
    derivatives(backprop, [("leaf", 7)], "one leaf")


def check_computations_at_random(backprop):
    """Of up to 12 nodes, with negative numbers and zeros; the longest first, since few mistakes
    look alike there.
    """
    rng = np.random.default_rng(1)
    for size in range(12, 2, -1):
        for _ in range(4):
            nodes = [("leaf", int(value)) for value in rng.integers(-2, 4, 2)]
            while len(nodes) < size:
                i, j = rng.integers(0, len(nodes), 2).tolist()
                node = (["add", "mul"][rng.integers(2)], i, j)
                nodes.append(node if rng.random() < 0.9 else ("leaf", 0.5))
            derivatives(backprop, nodes, f"the nodes {nodes}")


def check_forty_doublings_take_forty_steps(backprop):
    """There are 2^40 ways from the last node to the first."""
    nodes = [("leaf", 1), *[("add", i, i) for i in range(40)]]
    derivatives(backprop, nodes, "a number doubled 40 times")
