"""Which layout is fastest: every dp x pp x tp, and all else that a Layout says, for given GPUs."""

import json
from functools import partial
from itertools import product

from gpt_numpy.cluster import (
    GRADIENT,
    WEIGHT,
    add_model,
    as_dict,
    count,
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
                if b > 64 or (v > 1 and m % pp) or (sp and b * c.n_ctx % tp):
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
    """Seconds of a step, nearly: the busiest stage, the bubble, and what its network adds."""
    layout, cost = setup.layout, Cost(setup.gpu, setup.constants, setup.flash)
    pp, v = layout.pp, layout.virtual_stages
    m = setup.global_batch // layout.dp // setup.micro_batch
    each = [float((p.forward + p.backward).sum()) for p in pieces(setup)]
    gathers, reduces = over_dp(setup, cost)
    ends = {0: each[0], pp - 1: each[2]} if pp > 1 else {0: each[0] + each[3]}
    blocks = [setup.config.n_layer // pp + (r < setup.config.n_layer % pp) for r in range(pp)]
    busy = m * max(n * each[1] + ends.get(r, 0.0) for r, n in enumerate(blocks))
    busy += (pp - 1) / v * setup.config.n_layer / pp * each[1]
    if pp > 1:
        nbytes = WEIGHT * setup.micro_batch * setup.config.n_ctx * setup.config.n_embd
        split = layout.tp if layout.sequence_parallel else 1
        busy += 2 * m * v * send_time(setup, cost)(0, nbytes // split)
    gathered, reduced = (rows[0] + blocks[0] * rows[1] for rows in (gathers, reduces))
    times = (0, 1, 1, 2 * m)[layout.zero], (1, 1, m, m)[layout.zero]
    return busy + times[0] * gathered + times[1] * reduced


def plan(setup, gpus, top=10, progress=iter):
    """The best layouts for so many GPUs -> Simulations, fastest first, and how many fit in all.

    All that fit are estimated, and the most promising ones simulated. `progress` wraps the loop.
    """
    found = list(layouts(setup, gpus))
    if not found:
        raise ValueError(
            f"no layout of this model, with a batch of {setup.global_batch}, fits in {gpus} GPUs"
            f" of {setup.gpu.memory / 1e9:g} GB: take more GPUs, or a batch that divides by more"
        )
    ranked = sorted(((estimate(one), i) for i, one in enumerate(progress(found))))
    simulations = [simulate(found[i]) for _, i in ranked[:2 * top + 10]]
    fit = [simulation for simulation in simulations if simulation.fits]
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
