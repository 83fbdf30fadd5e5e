"""The command line, `python -m gpt_numpy COMMAND`: a mistake gets one line, never a traceback."""

import argparse
import contextlib
import json
import os
import sys
import time
import traceback
from dataclasses import fields
from importlib import import_module
from pathlib import Path

INFINITY = float("inf")
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of mallopt, in malloc.h
TINY = Path(__file__).parent / "tiny"  # the default model, trained by this package


def number(kind, low, high=INFINITY):
    """A type for argparse: a number of that kind within bounds."""

    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            what = "a whole number" if kind is int else "a number"
            bounds = f"of at least {low}" if high == INFINITY else f"from {low} to {high}"
            raise argparse.ArgumentTypeError(f"{text!r} is not {what} {bounds}")
        return value

    return parse


def utf8(text):
    """A type for argparse: text, though the locale left bytes it could not read as surrogates."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def generate_options(parser):
    option = parser.add_argument
    option("prompt", type=utf8)
    option("-n", type=number(int, 0), default=40, help="tokens to write (default: 40)")
    option("--model", default="tiny", metavar="MODEL",
           help="tiny (default), gpt2, gpt2-medium, gpt2-large, gpt2-xl, or a FOLDER")
    option("--temperature", type=number(float, 0), default=0.8,
           help="0: the likeliest token (default: 0.8)")
    option("--top-k", type=number(int, 0), help="of the k likeliest tokens only (0: of all)")
    option("--top-p", type=number(float, 1e-9, 1),
           help="of the likeliest that have probability p together")
    option("--seed", type=number(int, 0), help="the same seed writes the same text")
    option("--json", action="store_true", help="print one JSON object at the end")


def find_model(name, parser):
    """A model's folder: the default one's, a published GPT-2's (downloaded once), or a user's."""
    from gpt_numpy.hub import MODELS, fetch_gpt2

    if name == "tiny":
        return TINY
    if name in MODELS:
        return fetch_gpt2(name)
    if Path(name).is_dir():
        return Path(name)
    parser.error(f"--model {name}: no such folder, and not one of tiny, {', '.join(MODELS)}")


def generate(args):
    from gpt_numpy.checkpoint import load_gpt2
    from gpt_numpy.sample import generate
    from gpt_numpy.tokenizer import Tokenizer

    if not args.prompt:
        args.parser.error("the prompt is empty: give some text to continue")
    folder = find_model(args.model, args.parser)
    tokenizer = Tokenizer.from_file(folder / "merges.txt")
    params, n_head = load_gpt2(folder)
    if len(params["wte"]) != tokenizer.n_vocab:
        raise ValueError(
            f"{folder}: the model has {len(params['wte'])} tokens, merges.txt {tokenizer.n_vocab}"
        )
    prompt = tokenizer.encode(args.prompt)
    ids = []

    def keep(new):
        for i in new:
            ids.append(i)
            yield i

    start = time.perf_counter()
    new = generate(
        params, n_head, prompt, args.n,
        temperature=args.temperature, top_k=args.top_k, top_p=args.top_p, seed=args.seed,
    )
    pieces = tokenizer.decode_stream(keep(new))
    if args.json:
        text = "".join(pieces)
        seconds = time.perf_counter() - start
        result = {
            "model": args.model, "prompt": args.prompt, "text": text, "prompt_ids": prompt,
            "ids": ids, "seed": args.seed, "seconds": round(seconds, 3),
        }
        print(json.dumps(result))
        return
    first = next(pieces, "")  # before the prompt is printed, so that a prompt too long is not
    print(args.prompt + first, end="", flush=True)
    for piece in pieces:
        print(piece, end="", flush=True)
    print()


def train_options(parser):
    from gpt_numpy.train import Settings

    option = parser.add_argument
    option("--text", required=True, metavar="FILE", help="UTF-8 text to train on")
    option("--out", type=Path, required=True, metavar="FOLDER", help="where the model goes")
    for field in fields(Settings):
        help = f"{field.metadata['help']} (default: {field.default})"
        arg = {"default": field.default, "help": help} | field.metadata["arg"]
        if field.type is bool:
            arg["action"] = "store_true"
        elif "low" in arg:
            arg["type"] = number(field.type, arg.pop("low"), arg.pop("high", INFINITY))
            arg["metavar"] = "X"
        option("--" + field.name.replace("_", "-"), **arg)
    about = "split the model over dp * pp * tp simulated devices"
    split = parser.add_argument_group("layout", about).add_argument
    for axis, what in [("dp", "data"), ("pp", "pipeline"), ("tp", "tensor")]:
        help = f"{what}-parallel ranks"
        split(f"--{axis}", type=number(int, 1), default=1, metavar="N", help=help)
    split("--sequence-parallel", action="store_true", help="tp ranks also split the tokens")
    split("--zero", type=int, choices=[0, 1, 2, 3], default=0, help="what dp ranks share")
    split("--schedule", choices=["gpipe", "1f1b", "interleaved"], default="1f1b")
    split("--virtual-stages", type=number(int, 1), default=1, metavar="N", help="for interleaved")
    split("--recompute", choices=["none", "selective", "full"], default="none")
    split("--mesh", action="store_true", help="simulate a device even where one is all there is")
    split("--mpi", action="store_true", help="over the processes that mpiexec has started")
    option("--save-every", type=number(int, 1), default=100, metavar="STEPS",
           help="(default: 100)")
    option("--half", action="store_true", help="store the final model in float16")
    option("--resume", action="store_true", help="go on from the last checkpoint in FOLDER")
    option("--json", action="store_true", help="print losses and final figures as one JSON object")


def train(args):
    from gpt_numpy.parallel.model import Layout, check
    from gpt_numpy.train import Settings, train

    try:
        text = Path(args.text).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{args.text}: byte {error.start} is not UTF-8 text") from None
    settings = Settings(**{field.name: getattr(args, field.name) for field in fields(Settings)})
    layout = Layout(*[getattr(args, name) for name in Layout._fields])
    try:
        check(layout, settings.config, settings.batch, settings.micro_batch)
    except ValueError as error:
        args.parser.error(str(error))
    if layout == Layout() and not args.mpi and not args.mesh:
        layout = None
    run = args.out, settings, args.resume, args.save_every, args.half, layout, args.mpi
    result = train(text, *run)
    if result is None:  # another process has it
        return
    if args.json:
        print(json.dumps(result))
        return
    if result["ranks"]:
        print(table(result["ranks"]))
    test, losses = result["held_out_loss"], result["losses"]
    test = "" if test is None else f", {test:.3f} on held-out text"
    last = f"loss {losses[-1]:.3f}{test}; " if losses else ""
    command = f"python -m gpt_numpy generate --model {args.out} PROMPT"
    print(f"{last}the model is in {args.out}: {command}")


def table(ranks):
    """What each rank held, computed and sent in the last step, a line each."""
    groups = sorted({group for rank in ranks for group in rank["sent_bytes"]})
    sent = "".join(f"{f'{group} sent MB':>14}" for group in groups)
    lines = ["rank  dp pp tp  in flight  peak MB  matmul MFLOP" + sent]
    for r in ranks:
        sent = "".join(f"{r['sent_bytes'].get(group, 0) / 1e6:14.3f}" for group in groups)
        lines.append(
            f"{r['rank']:4}  {r['dp']:2} {r['pp']:2} {r['tp']:2}  {r['in_flight']:9}  "
            f"{r['peak_bytes'] / 1e6:7.3f}  {r['matmul_flops'] / 1e6:12.1f}{sent}"
        )
    return "\n".join(lines)


def keep_memory():
    """Ask glibc to keep freed memory: fetching it again costs a fifth of a long prompt's time."""
    import ctypes

    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # other C libraries have no mallopt
            libc = ctypes.CDLL(None)
            for option, value in [(M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, -1)]:
                libc.mallopt(option, value)


def simulate(args):
    from gpt_numpy import cluster, timeline

    timeline.save(cluster.main_simulate(args), args.svg, args.trace)


def lazily(module, name):
    """A room's function, for the command line; the room is imported when it is called."""
    return lambda *args: getattr(import_module(f"gpt_numpy.{module}"), name)(*args)


COMMANDS = {  # name -> help, what adds its options to a parser, what runs it
    "generate": ("write text that continues a prompt", generate_options, generate),
    "train": ("train a GPT on a text, on one device or a mesh", train_options, train),
    "mfu": (
        "the MFU of a measured step, under every paper's convention",
        lazily("flops", "add_mfu"), lazily("flops", "main_mfu"),
    ),
    "simulate": (
        "one training step of a cluster: seconds, MFU, memory, timeline",
        lazily("cluster", "add_simulate"), simulate,
    ),
    "plan": (
        "search for the fastest layout that fits",
        lazily("plan", "add_plan"), lazily("plan", "main_plan"),
    ),
    "megascale": (
        "MegaScale's tables 2 and 3, published and simulated",
        lazily("papers", "add_published"), lazily("papers", "main_megascale"),
    ),
    "published": (
        "every published run, published and simulated",
        lazily("papers", "add_published"), lazily("papers", "main_published"),
    ),
}  # fmt: skip


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that says what is wrong in one line."""

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message} (--help lists the options)\n")


def parse(argv):
    parser = Parser(
        prog="python -m gpt_numpy", description="GPT-2 in NumPy, and how it is split."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (help, options, run) in COMMANDS.items():
        command = commands.add_parser(name, help=help, description=help)
        if argv[:1] == [name]:  # the options of others need not be imported
            options(command)
            command.set_defaults(run=run, parser=command)
    return parser.parse_args(argv)


def main(argv=None):
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        getattr(sys, name).reconfigure(errors="replace")  # prints "?" where a character lacks
    try:
        args = parse(sys.argv[1:] if argv is None else argv)
        keep_memory()
        args.run(args)
        sys.stdout.flush()
        return 0
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        code = 1
    except (ValueError, OSError, MemoryError) as error:
        print(f"python -m gpt_numpy: error: {error or 'out of memory'}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        code = 130
    except Exception:  # not the user's mistake
        traceback.print_exc()
        code = 1
    if "mpi4py.MPI" in sys.modules:
        # the other processes may wait for this one
        sys.modules["mpi4py.MPI"].COMM_WORLD.Abort(code)
    try:
        sys.stdout.flush()
    except OSError:  # Python would try again as it exits, and complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


if __name__ == "__main__":
    sys.exit(main())
