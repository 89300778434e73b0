"""Time the conversion itself: mxamp against MXNet's own converter.

    python -m tools.benchmark_conversion            (or: make bench-convert)

Both convert the same models alternately, in one process, from the same Symbol and NDArrays to a Symbol and
NDArrays; every time counts until all arrays are there (``mx.nd.waitall``). MXNet's converter runs at its best
setting, ``cast_optional_params=True``, which casts parameters once, as mxamp does by default. It changes the
dicts it is given, so each conversion gets copies of its own, made before the clock starts.

Synthetic chains show how the time grows with the size of a graph. There, mxamp also converts its own graph
with NumPy arrays, without MXNet, which is how files are converted.

The processes that measure keep memory they have used (glibc's MALLOC_TRIM_THRESHOLD_ and
MALLOC_MMAP_THRESHOLD_). Otherwise glibc gives it back to the kernel after one conversion and not after
another, and asking for it again takes as long as a whole conversion, at random. ``--as-it-comes`` leaves that
out, and ``--fresh`` measures the first conversion of new processes, where all memory is new to both.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from tools.benchmark_options import add_benchmark_options, write_measurements
from tools.machine import ROOT, describe_machine, machine_lines

__all__ = [
    "KEEP_MEMORY",
    "MODELS",
    "Conversion",
    "alternate_conversions",
    "growth_exponent",
    "main",
    "one_line",
    "symbol_converters",
]

MODELS = (
    "resnet18_v1",
    "resnet50_v1",
    "resnet50_v2",
    "resnet50_v1d",
    "se_resnext50_32x4d",
    "resnest14",
    "vgg16",
    "vgg16_bn",
    "alexnet",
    "squeezenet1.1",
    "densenet121",
    "inceptionv3",
    "mobilenet1.0",
    "mobilenetv2_1.0",
    "mobilenetv3_large",
    "ssd_512_resnet50_v1_voc",
    "yolo3_mobilenet1.0_voc",
    "faster_rcnn_resnet50_v1b_voc",
    "center_net_resnet18_v1b_voc",
    "fcn_resnet50_voc",
)
"""The zoo names measured by default."""

CHAINS = (1_000, 10_000, 100_000)
"""Nodes of the chains measured by default."""

CACHE = ROOT / ".cache" / "benchmark"
"""Where exported zoo models are kept between runs."""

KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 33), "MALLOC_MMAP_THRESHOLD_": str(1 << 30)}
"""What makes glibc keep memory that a process has used; set before the process starts."""

_LINEAR = 1.15
"""The growth exponent up to which growth counts as linear: caches hold small graphs and not large ones."""


class Conversion(NamedTuple):
    """How long converters took on one model.

    Attributes
    ----------
    name : str
        The model.
    nodes : int
        Nodes of its graph, variables included.
    milliseconds : dict
        Converter -> the time of every round; rounds belong together.
    failures : dict
        Converter -> what went wrong.
    """

    name: str
    nodes: int
    milliseconds: dict[str, list[float]]
    failures: dict[str, str]

    def ratio(self, one: str = "mxamp", other: str = "stock") -> tuple[float, float, float] | None:
        """Return the 10th percentile, median and 90th percentile of one converter's time over another's."""
        import numpy as np

        first, second = self.milliseconds.get(one), self.milliseconds.get(other)
        if not first or not second:
            return None
        low, middle, high = np.percentile(np.asarray(first) / np.asarray(second), (10, 50, 90))
        return float(low), float(middle), float(high)


def growth_exponent(sizes: Sequence[int], times: Sequence[float]) -> float:
    """Return p of the power law ``time ~ size**p`` that fits best; 1 is linear growth.

    Parameters
    ----------
    sizes : sequence of int
        At least two different sizes.
    times : sequence of float
        The time each took, in any unit.
    """
    x, y = [math.log(size) for size in sizes], [math.log(value) for value in times]
    middle_x, middle_y = statistics.fmean(x), statistics.fmean(y)
    return sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y)) / sum((a - middle_x) ** 2 for a in x)


# ---------------------------------------------------------------------- measuring


def alternate_conversions(
    converters: Mapping[str, Callable[[], float]], rounds: int
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Time converters in turn; the first round of each is not counted, and who begins changes every round.

    Parameters
    ----------
    converters : mapping
        Name -> what converts once and returns the seconds that took.
    rounds : int
        How often to time each.

    Returns
    -------
    tuple of dict
        Name -> milliseconds of each round; and name -> why it has none.
    """
    times: dict[str, list[float]] = {name: [] for name in converters}
    failures: dict[str, str] = {}
    for number in range(rounds + 1):
        names = [name for name in converters if name not in failures]
        for name in names if number % 2 else reversed(names):
            try:
                seconds = converters[name]()
            except Exception as error:  # a converter that cannot convert is a result
                failures[name] = one_line(error)
                times.pop(name)
                continue
            if number:
                times[name].append(1e3 * seconds)
    return times, failures


def one_line(error: BaseException) -> str:
    """Return type and gist of an error; MXNet's messages hold a C++ stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if line.startswith(("MXNetError:", "Error in operator"))] or lines[-1:]
    if not said:
        return type(error).__name__
    # Without the time and the line of C++: the same failure is to read the same.
    gist = re.sub(r"\[\d\d:\d\d:\d\d\] \S+: ", "", said[0].replace(f"{type(error).__name__}: ", ""))
    return f"{type(error).__name__}: {gist[:200]}"


def symbol_converters(
    sym: Any, args: Any, auxs: Any, dtype: str, *, input_shapes: Mapping[str, Sequence[int]] | None = None
) -> dict[str, Callable[[], float]]:
    """Return the converters from Symbol and NDArrays to Symbol and NDArrays, for alternate_conversions.

    Parameters
    ----------
    sym, args, auxs
        The FP32 model; never changed.
    dtype : str
        ``"bfloat16"`` or ``"float16"``.
    input_shapes : mapping, optional
        Input name -> shape. With it there is one more: mxamp that is given the shapes, and so decides by
        estimated costs.
    """
    import mxnet as mx
    from mxnet.contrib import amp

    import mxamp

    def stock() -> float:
        own_args, own_auxs = dict(args), dict(auxs)
        started = time.perf_counter()
        amp.convert_model(sym, own_args, own_auxs, target_dtype=dtype, cast_optional_params=True)
        mx.nd.waitall()
        return time.perf_counter() - started

    def ours(**options: Any) -> float:
        own_args, own_auxs = dict(args), dict(auxs)
        started = time.perf_counter()
        tuple(mxamp.convert_model(sym, own_args, own_auxs, target_dtype=dtype, **options))
        mx.nd.waitall()
        return time.perf_counter() - started

    if input_shapes is None:
        return {"stock": stock, "mxamp": ours}
    return {"stock": stock, "mxamp": ours, "mxamp, shapes": lambda: ours(input_shapes=input_shapes)}


def _measure_zoo(name: str, dtype: str, rounds: int) -> Conversion:
    import mxnet as mx

    sym, args, auxs = mx.model.load_checkpoint(str(CACHE / name), 0)
    mx.nd.waitall()
    times, failures = alternate_conversions(symbol_converters(sym, args, auxs, dtype), rounds)
    return Conversion(name, len(json.loads(sym.tojson())["nodes"]), times, failures)


def _measure_first(name: str, dtype: str, converter: str) -> Conversion:
    import mxnet as mx

    sym, args, auxs = mx.model.load_checkpoint(str(CACHE / name), 0)
    mx.nd.waitall()
    seconds = symbol_converters(sym, args, auxs, dtype)[converter]()
    return Conversion(name, 0, {converter: [1e3 * seconds]}, {})


def _measure_chain(nodes: int, dtype: str, rounds: int, converters: Sequence[str], seed: int) -> Conversion:
    import mxamp
    from tools.synthetic_graphs import chain

    model = chain(nodes, seed=seed)

    def without_mxnet() -> float:
        started = time.perf_counter()
        mxamp.convert_model(*model, target_dtype=dtype)
        return time.perf_counter() - started

    available: dict[str, Callable[[], float]] = {"mxamp, files": without_mxnet}
    if set(converters) - set(available):
        import mxnet as mx

        from mxamp.graph.symbol_writer import write_symbol

        sym = mx.sym.load_json(write_symbol(model.graph))
        args = {name: mx.nd.array(value) for name, value in model.args.items()}
        available.update(symbol_converters(sym, args, {}, dtype))
    times, failures = alternate_conversions({name: available[name] for name in converters}, rounds)
    return Conversion(f"chain of {nodes:,}", nodes, times, failures)


# ---------------------------------------------------------------------- processes


def _worker(task: Mapping[str, Any]) -> int:
    """Measure one thing and print it; runs in a process of its own, which MXNet may take down."""
    if task["kind"] == "export":
        from mxamp.runtime.zoo import load_zoo

        load_zoo(task["name"], pretrained=False, seed=task["seed"]).model.save(CACHE / task["name"])
        return 0
    if task["kind"] == "first":
        found = _measure_first(task["name"], task["dtype"], task["converter"])
    elif task["kind"] == "zoo":
        found = _measure_zoo(task["name"], task["dtype"], task["rounds"])
    else:
        found = _measure_chain(task["nodes"], task["dtype"], task["rounds"], task["converters"], task["seed"])
    print("RESULT " + json.dumps(found._asdict()), flush=True)
    # MXNet frees a long chain by recursion and may crash over it; the result is out already.
    os._exit(0)


def _run(task: Mapping[str, Any], *, keep_memory: bool) -> Conversion | str:
    """Run a worker and return its result, or how it ended without one."""
    environment = {**os.environ, "MXNET_SUBGRAPH_VERBOSE": "0", "PYTHONWARNINGS": "ignore"}
    environment.setdefault("MXNET_HOME", str(ROOT / ".cache" / "mxnet"))
    if keep_memory:
        environment.update(KEEP_MEMORY)
    done = subprocess.run(
        [sys.executable, "-m", "tools.benchmark_conversion", "--worker", json.dumps(task)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return Conversion(**json.loads(line[len("RESULT ") :]))
    if done.returncode < 0:
        return f"the process dies of signal {-done.returncode}"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return "" if done.returncode == 0 else (lines[-1] if lines else f"exit status {done.returncode}")


def _export(name: str, seed: int) -> str:
    """Build a zoo model unless that was done before; return why it could not be done, or nothing."""
    if (CACHE / f"{name}-symbol.json").is_file() and (CACHE / f"{name}-0000.params").is_file():
        return ""
    CACHE.mkdir(parents=True, exist_ok=True)
    _progress(f"building {name} (once)")
    failure = _run({"kind": "export", "name": name, "seed": seed}, keep_memory=False)
    return failure if isinstance(failure, str) else ""


def _chain_conversion(task: dict[str, Any], *, keep_memory: bool) -> Conversion:
    """Measure all converters together; where that takes the process down, each of them alone."""
    found = _run(task, keep_memory=keep_memory)
    if isinstance(found, Conversion):
        return found
    _progress(f"chain of {task['nodes']:,}: {found}; each converter alone")
    times: dict[str, list[float]] = {}
    failures: dict[str, str] = {}
    for converter in task["converters"]:
        alone = _run({**task, "converters": [converter]}, keep_memory=keep_memory)
        if isinstance(alone, Conversion):
            times.update(alone.milliseconds)
            failures.update(alone.failures)
        else:
            failures[converter] = alone
    return Conversion(f"chain of {task['nodes']:,}", task["nodes"], times, failures)


def _fresh_conversions(name: str, dtype: str, processes: int) -> Conversion:
    """Time the first conversion of new processes, one converter each, in turn."""
    times: dict[str, list[float]] = {"stock": [], "mxamp": []}
    failures: dict[str, str] = {}
    for number in range(processes):
        for converter in ("stock", "mxamp") if number % 2 else ("mxamp", "stock"):
            task = {"kind": "first", "name": name, "dtype": dtype, "converter": converter}
            found = failures.get(converter) or _run(task, keep_memory=False)
            if isinstance(found, str):
                failures[converter] = found
                continue
            failures.update(found.failures)
            times[converter] += found.milliseconds.get(converter, [])
    return Conversion(f"{name}, first conversion", 0, times, failures)


# ---------------------------------------------------------------------- output


def _progress(text: str) -> None:
    print(f"  ... {text}", file=sys.stderr, flush=True)


def _milliseconds(found: Conversion, converter: str) -> str:
    if converter in found.failures:
        return "fails"
    times = found.milliseconds.get(converter)
    return f"{statistics.median(times):.1f}" if times else "-"


def _row(found: Conversion) -> str:
    ratio = found.ratio()
    text = "-" if ratio is None else f"{ratio[1]:5.2f}  ({ratio[0]:.2f} to {ratio[2]:.2f})"
    nodes = f"{found.nodes:,}" if found.nodes else ""
    times = "".join(f"{_milliseconds(found, converter):>11}" for converter in ("stock", "mxamp"))
    return f"{found.name:<38}{nodes:>9}{times}   {text}"


def _print_failures(found: Conversion) -> None:
    for converter, failure in found.failures.items():
        print(f"    {converter}: {failure}")


def _print_header(title: str) -> None:
    print()
    print(title)
    print(f"{'':<38}{'nodes':>9}{'stock, ms':>11}{'mxamp, ms':>11}   mxamp / stock")


def _print_growth(chains: Sequence[Conversion]) -> dict[str, float]:
    """Print the time a node, and how it grows."""
    print()
    print("Microseconds a node of a chain")
    converters = ("mxamp, files", "mxamp", "stock")
    print(f"{'nodes':>10}" + "".join(f"{name:>16}" for name in converters))
    for found in chains:
        cells = []
        for converter in converters:
            times = found.milliseconds.get(converter)
            cells.append(f"{1e3 * statistics.median(times) / found.nodes:>16.1f}" if times else f"{'-':>16}")
        print(f"{found.nodes:>10,}" + "".join(cells))
    exponents = {}
    for converter in converters:
        points = [
            (c.nodes, statistics.median(c.milliseconds[converter]))
            for c in chains
            if c.milliseconds.get(converter)
        ]
        if len(points) > 1:
            exponents[converter] = growth_exponent(*zip(*points))
    for converter, exponent in exponents.items():
        verdict = "linear" if exponent <= _LINEAR else "faster than linear"
        print(f"{converter}: time grows as nodes to the power {exponent:.2f}: {verdict}")
    return exponents


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.benchmark_conversion",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
    )
    parser.add_argument(
        "--models",
        nargs="*",
        metavar="NAME",
        default=list(MODELS),
        help="zoo names (default: 20 names); none: --models",
    )
    parser.add_argument(
        "--chains",
        nargs="*",
        metavar="NODES",
        type=int,
        default=list(CHAINS),
        help="sizes of synthetic chains (default: 1000 10000 100000); none: --chains",
    )
    parser.add_argument(
        "--dtype", choices=("bfloat16", "float16"), default="bfloat16", help="default: %(default)s"
    )
    parser.add_argument(
        "--fresh",
        type=int,
        default=0,
        metavar="N",
        help="also time the first conversion of N new processes each, for the first model",
    )
    parser.add_argument(
        "--as-it-comes", action="store_true", help="leave glibc's handling of memory as it is"
    )
    add_benchmark_options(parser, rounds=9, round_means="conversions by each", seed_of="weights")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command-line arguments; None means those of the process.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.worker:
        return _worker(json.loads(options.worker))
    if any(nodes < 3 for nodes in options.chains):
        parser.error("a chain has at least 3 nodes")
    machine = describe_machine(seed=options.seed)
    print(
        f"Conversion to {options.dtype}, {options.rounds} rounds; medians, and ratios with their 10th and "
        "90th percentile"
    )
    print("\n".join(machine_lines(machine)))
    common = {"dtype": options.dtype, "rounds": options.rounds, "seed": options.seed}
    keep_memory = not options.as_it_comes
    results: list[Conversion] = []
    if options.models:
        _print_header("Zoo models (random weights)")
    for name in options.models:
        failure = _export(name, options.seed)
        found = failure or _run({"kind": "zoo", "name": name, **common}, keep_memory=keep_memory)
        if isinstance(found, str):
            print(f"{name:<38}cannot be measured: {found}", flush=True)
            continue
        results.append(found)
        print(_row(found), flush=True)
        _print_failures(found)
    ratios = [ratio[1] for ratio in (found.ratio() for found in results) if ratio]
    if len(ratios) > 1:
        mean = math.exp(statistics.fmean([math.log(ratio) for ratio in ratios]))
        print(f"{'geometric mean':<69}   {mean:5.2f}")
    if options.fresh and options.models:
        _print_header(f"First conversion of a new process ({options.fresh} processes each)")
        fresh = _fresh_conversions(options.models[0], options.dtype, options.fresh)
        results.append(fresh)
        print(_row(fresh), flush=True)
    chains = []
    if options.chains:
        _print_header("Synthetic chains")
    for nodes in options.chains:
        task = {"kind": "chain", "nodes": nodes, "converters": ["stock", "mxamp", "mxamp, files"], **common}
        if nodes > 20_000:
            task["rounds"] = min(options.rounds, 3)
        chains.append(_chain_conversion(task, keep_memory=keep_memory))
        print(_row(chains[-1]), flush=True)
        _print_failures(chains[-1])
    exponents = _print_growth(chains) if chains else {}
    write_measurements(
        options.json,
        {
            "machine": machine,
            "options": {
                key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()
            },
            "conversions": [found._asdict() for found in [*results, *chains]],
            "growth_exponents": exponents,
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
