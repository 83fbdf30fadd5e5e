"""Which layout is fastest: every dp x pp x tp, and all else that a Layout says, for given GPUs."""

import json
from functools import partial
from itertools import product
from math import log2, prod

from gpt_numpy.cluster import (
    GRADIENT,
    LOADING,
    MICRO_BATCHES,
    WEIGHT,
    add_model,
    as_dict,
    count,
    optimizer_of,
    over_dp,
    pieces,
    send_time,
    setup_from,
    simulate,
    table,
)
from gpt_numpy.cost import Cost
from gpt_numpy.flops import activation_bytes, in_flight, n_params, state_bytes
from gpt_numpy.parallel.model import Layout


def divisors(n):
    return [i for i in range(1, n + 1) if n % i == 0]


def layouts(setup, gpus):
    """Every Setup for so many GPUs that fits in their memory, by closed forms.

    tp stays within two nodes; virtual stages are equal; a micro-batch has 64 sequences at most.
    """
    c, batch, capacity = setup.config, setup.global_batch, setup.gpu.memory
    total = n_params(c, parallel_block=setup.parallel_block)
    for tp, pp in product(divisors(c.n_head), range(1, c.n_layer + 1)):
        if tp > 2 * setup.gpu.node_size or gpus % (tp * pp) or batch % (gpus // (tp * pp)):
            continue
        dp = gpus // (tp * pp)
        blocks = -(-c.n_layer // pp)  # of the fullest stage, which has an embedding beside them
        own = (blocks * (total - c.n_vocab * c.n_embd) / c.n_layer + c.n_vocab * c.n_embd) / tp
        stages = [v for v in divisors(blocks) if v == 1 or (pp > 1 and c.n_layer % pp == 0)]
        for zero_stage in range(4 if dp > 1 else 1):
            room = capacity - state_bytes(own, dp, zero_stage, GRADIENT)
            for b, v, recompute, sp in product(
                divisors(batch // dp) if room > 0 else [], stages,
                ("none", "selective", "full"), (False, True) if tp > 1 else (False,),
            ):  # fmt: skip
                m = batch // dp // b
                if b > 64 or m > MICRO_BATCHES or (v > 1 and m % pp) or (sp and b * c.n_ctx % tp):
                    continue
                schedule = "interleaved" if v > 1 else "1f1b"
                held = activation_bytes(
                    c.n_ctx, b, c.n_embd, c.n_head, tp, sp, recompute, False, setup.flash > 0,
                    setup.parallel_block,
                )  # fmt: skip
                if held * (blocks / v) * in_flight(schedule, pp, m, v)[0] < room:
                    layout = Layout(dp, pp, tp, sp, zero_stage, schedule, v, recompute)
                    yield setup._replace(layout=layout, micro_batch=b)


def estimate(setup):
    """Seconds of a step, nearly: the busiest stage, the bubble, and what its network adds.

    What computing goes on behind counts only where it must be waited for: at the ends of a step,
    or if it takes longer than the computing.
    """
    layout, cost = setup.layout, Cost(setup.gpu, setup.constants, setup.flash)
    pp, v, stage = layout.pp, layout.virtual_stages, layout.zero
    m = setup.global_batch // layout.dp // setup.micro_batch
    each = [float((p.forward + p.backward).sum()) for p in pieces(setup)]
    gathers, reduces = over_dp(setup, cost)
    ends = {0: each[0], pp - 1: each[2]} if pp > 1 else {0: each[0] + each[3]}
    blocks = [setup.config.n_layer // pp + (r < setup.config.n_layer % pp) for r in range(pp)]
    busy = m * max(n * each[1] + ends.get(r, 0.0) for r, n in enumerate(blocks))
    busy += (pp - 1) / v * blocks[-1] * each[1]  # if stages are uneven, at least
    if pp > 1:
        nbytes = WEIGHT * setup.micro_batch * setup.config.n_ctx * setup.config.n_embd
        split = layout.tp if layout.sequence_parallel else 1
        sends = pp - 1 if "pp" in setup.overlap else m * v
        busy += 2 * sends * send_time(setup, cost)(0, nbytes // split)
    gathered, reduced = (rows[0] + blocks[0] * rows[1] for rows in (gathers, reduces))
    network = (0, 1, 1, 2 * m)[stage] * gathered + (1, 1, m, m)[stage] * reduced
    if "dp" in setup.overlap:
        busy = max(busy, network) + (gathers[0] if stage else 0.0) + reduces[0]
    else:
        busy += network
    nodes = max(1, prod(layout[:3]) / setup.gpu.node_size)
    busy *= 1 + setup.constants.stragglers * log2(nodes)
    busy += setup.constants.fixed * (nodes > 1) * (1 - LOADING * ("data" in setup.overlap))
    return busy + max(float(seconds) for seconds, _ in optimizer_of(setup))


WITHIN = 1.05  # simulate what is estimated to take so many times the fastest, at most
ACTIONS = 2_000_000  # of all pipelines simulated, at most: some seconds


def plan(setup, gpus, top=10, progress=iter):
    """The best layouts for so many GPUs -> Simulations, fastest first, and how many fit in all.

    All that fit are estimated, and the most promising ones simulated, as long as one is estimated
    to be as good as the fastest, nearly: the best does not depend on `top`. `progress` wraps the
    loop over the estimates.
    """
    found = list(layouts(setup, gpus))
    if not found:
        raise ValueError(
            f"no layout of this model, with a batch of {setup.global_batch}, fits in {gpus} GPUs"
            f" of {setup.gpu.memory / 1e9:g} GB: take more GPUs, or a batch that divides by more"
        )
    ranked = sorted(((estimate(one), i) for i, one in enumerate(progress(found))))
    fit, fastest, actions = [], float("inf"), 0
    for estimated, i in ranked:
        if len(fit) >= top and (estimated > WITHIN * fastest or actions > ACTIONS):
            break
        simulation, (dp, pp, *_) = simulate(found[i]), found[i].layout
        m = found[i].global_batch // dp // found[i].micro_batch
        actions += 2 * m * pp * found[i].layout.virtual_stages
        if simulation.fits:
            fit.append(simulation)
            fastest = min(fastest, simulation.seconds)
    return sorted(fit, key=lambda simulation: simulation.seconds)[:top], len(found)


def add_plan(parser):
    add_model(parser)
    parser.add_argument("--top", type=count, default=10, metavar="N", help="(default: 10)")


def main_plan(args):
    from tqdm import tqdm

    progress = partial(tqdm, desc="layouts", disable=None)  # None: not if nobody would see it
    steps, n = plan(setup_from(args, Layout()), args.gpus, args.top, progress)
    if args.json:
        print(json.dumps({"layouts": n, "best": [as_dict(step) for step in steps]}))
        return
    names = ("dp", "pp", "tp", "virtual_stages", "sequence_parallel", "zero", "recompute")
    print(f"{n:,} layouts fit in memory. The fastest of them:\n")
    print(table([
        {"seconds": step.seconds, "MFU %": step.percent(), "GB": sum(step.fullest.values()) / 1e9}
        | {name: getattr(step.setup.layout, name) for name in names}
        | {"micro_batch": step.setup.micro_batch} for step in steps
    ]))  # fmt: skip
