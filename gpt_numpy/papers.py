"""What papers printed beside what is simulated, and the fit of cost.py's constants to some of it.

Only rows of published/training_runs.csv marked `calibrate`, and layer_times_22b.csv, are fitted
to; the others are there to be predicted. MFU is in per cent, in the convention korthikanti-mfu.
"""

import argparse
import json

import numpy as np

from gpt_numpy.cluster import MEGATRON, TABLE_3, Setup, pieces, simulate, table
from gpt_numpy.cost import CONSTANTS, PRIOR, Constants
from gpt_numpy.flops import (
    contradicting_runs,
    layer_times,
    model,
    published_runs,
    training_flops,
)
from gpt_numpy.hardware import gpu
from gpt_numpy.parallel.model import Layout


def setup_of(run, constants=CONSTANTS):
    """The Setup of a row of flops.published_runs."""
    schedule, of_megascale = ("1f1b", "interleaved")[run.virtual_stages > 1], run.id[:3] == "ms_"
    layout = Layout(run.dp, run.pp, run.tp, run.sequence_parallel, int(of_megascale), schedule,
                    run.virtual_stages, run.recompute)  # fmt: skip
    setup = Setup(run.config, layout, run.global_batch, run.micro_batch,
                  gpu(run.gpu), int(run.flash_attention), constants=constants)  # fmt: skip
    if of_megascale:
        setup = setup._replace(**MEGATRON)
    if run.system == "MegaScale":
        step = int(run.id[-1]) if run.id[:5] == "ms_t3" else len(TABLE_3)
        for changes in list(TABLE_3.values())[:step]:
            setup = setup._replace(**changes)
    return setup


FITTED = [name for name in Constants._fields if name != "flash_2"]  # no such row may be fitted to
TRUST = 0.1  # a constant that leaves its prior by 10 % is as bad as a row that is off by 1 %


def residuals(constants, runs=None):
    """log(simulated / published seconds) of the rows to fit to, and of the 22B model's layers."""
    found = {}
    for run in published_runs() if runs is None else runs:
        if run.split == "calibrate":
            simulated = simulate(setup_of(run, constants)).seconds
            found[run.id] = float(np.log(simulated / run.seconds_per_step))
    for row in layer_times():
        words = row.experiment.split()
        recompute = next((kind for kind in ("full", "selective") if kind in words), "none")
        layout = Layout(tp=8, sequence_parallel="sequence" in words, recompute=recompute)
        block = pieces(Setup(model("korthikanti-22b"), layout, 4, 4, constants=constants))[1]
        for name in ("forward", "backward"):
            ratio = 1e3 * float(getattr(block, name).sum()) / getattr(row, f"{name}_ms")
            found[f"{row.experiment}, {name}"] = float(np.log(ratio))
    return found


def fit(start=PRIOR, rounds=6, begin=None):
    """Constants with the least squares of the residuals and of their own way from `start`.

    Gauss-Newton steps in the constants' logarithms, by finite differences, from `begin` on.
    """

    def errors(logs):
        constants = start._replace(**dict(zip(FITTED, np.exp(logs).tolist())))
        rows = [*residuals(constants).values(), *(TRUST * (logs - first))]
        return np.array(rows), constants

    first, logs = [np.log([getattr(c, k) for k in FITTED]) for c in (start, begin or start)]
    for _ in range(rounds):
        e, constants = errors(logs)
        slopes = [(errors(logs + 1e-3 * unit)[0] - e) / 1e-3 for unit in np.eye(len(FITTED))]
        logs = logs - np.linalg.lstsq(np.array(slopes).T, e, rcond=None)[0]
    return errors(logs)[1]


TRIVIAL = 48.3  # per cent: the HFU of every run, says the trivial predictor


def compare(run):
    """A published run beside its simulation, as a dict."""
    step, c = simulate(setup_of(run)), run.config
    mfu = run.percent("korthikanti-mfu") if run.seconds_per_step else run.mfu_percent
    trivial = training_flops(c, 1) / training_flops(c, 1, run.recompute) * TRIVIAL
    return {
        "row": run.id, "split": run.split, "gpus": run.n_gpus,
        "seconds published": run.seconds_per_step, "simulated": step.seconds,
        "MFU published": mfu, "MFU simulated": step.percent(),
        "error": step.percent() - mfu, "constant HFU's": trivial - mfu,
    }  # fmt: skip


def errors(rows):
    """The mean absolute errors of `compare`d rows, and those of the trivial predictor."""
    return {
        name: float(np.mean([abs(row[name]) for row in rows]))
        for name in ("error", "constant HFU's")
    }


def error_text(name, rows):
    return "{:32} {:.2f} points of MFU, constant HFU {:.2f}".format(name, *errors(rows).values())


def add_published(parser):
    parser.add_argument("--json", action="store_true", help="print one JSON object")


add_megascale = add_published


def main_published(args):
    rows = [compare(run) for run in published_runs()]
    groups = {"all to predict": [row for row in rows if row["split"] == "predict"]}
    for name, start in [("MegaScale, Table 2", "ms_t2_MS"), ("its Megatron-LM", "ms_t2_MT"),
                        ("MegaScale, Table 3", "ms_t3"), ("SC21", "sc21"), ("Korthikanti", "ko")]:
        for split in ("predict", "calibrate"):
            own = [row for row in rows if row["row"].startswith(start) and row["split"] == split]
            if own:
                groups[f"{name}: to {split}"] = own
    if args.json:
        print(json.dumps({"rows": rows, "mean": {k: errors(own) for k, own in groups.items()}}))
        return
    print(table(rows), "\nMean absolute errors:", sep="\n")
    print(*[error_text(name, own) for name, own in groups.items()], sep="\n")
    print("\nPrint an aggregate FLOP/s that contradicts their MFU:", *contradicting_runs())


def megascale_runs(runs):
    """{id: Run} of MegaScale's paper; a ValueError says which row is missing."""
    found = {run.id: run for run in runs if run.id.startswith("ms_")}
    steps = [f"ms_t3_{i + 1}" for i in range(len(TABLE_3))]
    for name in ("ms_t2_MT_6144_12288", "ms_t2_MS_6144_12288", *steps):
        if name not in found:
            raise ValueError(f"training_runs.csv, column id: the row {name} is missing")
    return found


def main_megascale(args):
    runs = megascale_runs(published_runs())
    rows = {name: compare(run) for name, run in runs.items()}
    table_2, table_3 = [[rows[k] for k in rows if k.startswith(t)] for t in ("ms_t2", "ms_t3")]
    steps, before = [], table_3[0]
    for name, row in zip(TABLE_3, table_3):
        step = setup_of(runs[row["row"]])
        attended = training_flops(step.config, step.global_batch, causal=True, window=step.window)
        attended *= 100 / (row["gpus"] * step.gpu.peak * row["simulated"])
        steps.append({
            "step": name, "MFU published": row["MFU published"], "simulated": row["MFU simulated"],
            "gain published": row["MFU published"] - before["MFU published"],
            "gain simulated": row["MFU simulated"] - before["MFU simulated"],
            "MFU of pairs attended": attended,
        })  # fmt: skip
        before = row
    megatron, megascale = rows["ms_t2_MT_6144_12288"], rows["ms_t2_MS_6144_12288"]
    speedups = [megatron[k] / megascale[k] for k in ("seconds published", "simulated")]
    own = [row for row in table_2 if "_MS_" in row["row"]]
    groups = {"Table 2": table_2, "Table 2, MegaScale's own": own, "Table 3": table_3}
    if args.json:
        print(json.dumps({"table 2": table_2, "table 3": steps, "times Megatron-LM": speedups[1],
                          "mean": {k: errors(rows) for k, rows in groups.items()}}))  # fmt: skip
        return
    gains = [table_3[-1][k] - table_3[0][k] for k in ("MFU published", "MFU simulated")]
    print(
        "arXiv 2402.15627, Table 2: MFU in per cent of all matmuls, from the seconds. The paper",
        "prints no micro-batch, recomputation or window: 1, none, 512 tokens are assumed.\n",
        table(table_2),
        "\nTable 3, on 256 GPUs. It has no seconds, so its MFU is as printed, by whatever count;",
        "its last step suggests the causal one. What a sliding window gains depends on what is",
        "counted: the last column counts only those pairs of tokens that attention looks at.\n",
        table(steps),
        "\nGain in all: published {:+.1f}, simulated {:+.1f} points.\n".format(*gains),
        "Mean absolute errors:",
        *[error_text(name, rows) for name, rows in groups.items()],
        f"\n12,288 GPUs: {megascale['MFU simulated']:.1f} % MFU simulated,"
        f" {megascale['MFU published']:.1f} % published; {speedups[1]:.2f} times Megatron-LM"
        f" simulated, {speedups[0]:.2f} published.",
        sep="\n",
    )


def main(argv=None):
    """`python -m gpt_numpy.cluster --calibrate`: fit the constants again, and compare."""
    parser = argparse.ArgumentParser(prog="python -m gpt_numpy.cluster")
    what = "fit the constants of cost.py to the published rows for it"
    parser.add_argument("--calibrate", action="store_true", required=True, help=what)
    parser.parse_args(argv)
    print("Fitting, for half a minute ...", flush=True)
    fitted = fit()
    for name in Constants._fields:
        values = [getattr(constants, name) for constants in (PRIOR, fitted, CONSTANTS)]
        print("{:12} expected {:<10.4g} fitted {:<10.4g} stored {:<10.4g}".format(name, *values))
    print("\nSeconds of the rows fitted to, simulated against published:")
    for name, residual in residuals(fitted).items():
        print(f"{name:36} {100 * (np.exp(residual) - 1):+6.1f} %")
    same = np.allclose(fitted, CONSTANTS, rtol=0.01)
    print(f"\nThe fitted constants {'are' if same else 'ARE NOT'} those in cost.py, within 1 %.")


if __name__ == "__main__":
    main()
