"""Time one forward pass: FP32, MXNet's own converter at both settings, and mxamp, in turn.

    python -m tools.benchmark_latency            (or: make bench-latency)

All four run the same input in one process, fused as deployed, and take turns, so that whatever else the
machine does falls on all of them alike. Errors are measured against FP32 with fusion off, because oneDNN's
fusion is wrong in FP32 for some graphs (MXNet 1.9.1). The weights are random, with BatchNorm statistics,
scale and shift independent of each other: the error is that of the conversion, and says nothing about
accuracy.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any, Sequence

import mxnet as mx
import numpy as np
from mxnet.contrib import amp
from numpy.typing import NDArray

import mxamp
from mxamp.compare.inputs import as_model
from mxamp.compare.metrics import distance
from mxamp.errors import MxampError
from mxamp.runtime.executor import BoundModel, run_outputs
from mxamp.runtime.zoo import default_input_shapes, load_zoo
from tools.benchmark_options import add_benchmark_options, write_measurements
from tools.machine import describe_machine, machine_lines, prepare_environment

__all__ = ["Latency", "main", "measure"]

_CASTS = ("amp_cast", "amp_multicast", "Cast")


@dataclass(frozen=True)
class Latency:
    """How one variant of a model does.

    Attributes
    ----------
    variant : str
        ``"FP32"``, ``"stock"``, ``"stock, cast once"`` or ``"mxamp"``.
    milliseconds : list of float
        The time of a forward pass, one a round; the rounds of all variants belong together.
    parameter_bytes : int
        Bytes of all arguments and auxiliary states.
    casts : int
        Cast operators in the graph.
    finite : bool
        Whether all outputs are.
    relative_l2 : float
        The largest relative L2 error of an output against FP32 with fusion off.
    failure : str
        Why there are no times, where there are none.
    """

    variant: str
    milliseconds: list[float]
    parameter_bytes: int = 0
    casts: int = 0
    finite: bool = False
    relative_l2: float = float("nan")
    failure: str = ""

    def ratio(self, other: Latency) -> tuple[float, float, float]:
        """Return the 10th percentile, median and 90th percentile of another's time over this one's."""
        ratios = np.asarray(other.milliseconds) / np.asarray(self.milliseconds)
        low, middle, high = np.percentile(ratios, (10, 50, 90))
        return float(low), float(middle), float(high)


def measure(name: str, *, rounds: int, warmup: int = 5, seed: int = 0) -> list[Latency]:
    """Measure all variants of a zoo model in bfloat16, batch size 1.

    Parameters
    ----------
    name : str
        Its name in GluonCV's zoo.
    rounds : int
        How often to time each.
    warmup : int, default 5
        Forward passes of each before the clock runs.
    seed : int, default 0
        Seed of weights and input.
    """
    zoo = load_zoo(name, pretrained=False, seed=seed)
    shapes = zoo.input_shapes or {"data": default_input_shapes(name)[0]}
    random = np.random.default_rng(seed)
    data = {key: random.standard_normal(shape, np.float32) for key, shape in shapes.items()}
    reference = run_outputs(zoo.model, data, fusion=False)
    sym, args, auxs = zoo.model
    bound: dict[str, BoundModel] = {}
    results: dict[str, Latency] = {}
    for variant, convert in (
        ("FP32", lambda: zoo.model),
        ("stock", lambda: amp.convert_model(sym, dict(args), dict(auxs), target_dtype="bfloat16")),
        (
            "stock, cast once",
            lambda: amp.convert_model(
                sym, dict(args), dict(auxs), target_dtype="bfloat16", cast_optional_params=True
            ),
        ),
        ("mxamp", lambda: mxamp.convert_model(sym, args, auxs, target_dtype="bfloat16")),
        (
            "mxamp, with shapes",
            lambda: mxamp.convert_model(sym, args, auxs, target_dtype="bfloat16", input_shapes=shapes),
        ),
    ):
        try:
            model = as_model(convert(), variant)
            ready = BoundModel(model, label=variant)
            outputs = ready.run(data)
        except (MxampError, mx.base.MXNetError) as error:
            results[variant] = Latency(variant, [], failure=_one_line(error))
            continue
        for _ in range(warmup):
            ready.forward()
        bound[variant] = ready
        results[variant] = Latency(variant, [], **_describe(model, outputs, reference))
    names = list(bound)
    for number in range(rounds):
        # Whoever begins changes every round.
        for variant in names[number % len(names) :] + names[: number % len(names)]:
            started = time.perf_counter()
            bound[variant].forward()
            results[variant].milliseconds.append(1e3 * (time.perf_counter() - started))
    return list(results.values())


def _describe(
    model: mxamp.Model, outputs: Sequence[NDArray[Any]], reference: Sequence[NDArray[Any]]
) -> dict[str, Any]:
    stored = [*model.arg_params.values(), *model.aux_params.values()]
    return {
        "parameter_bytes": sum(int(np.prod(value.shape)) * value.dtype.itemsize for value in stored),
        "casts": sum(node.op in _CASTS for node in model.graph.nodes),
        "finite": all(bool(np.isfinite(output).all()) for output in outputs),
        "relative_l2": max(distance(a, b).relative_l2 for a, b in zip(reference, outputs)),
    }


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1][:160]}" if lines else type(error).__name__


def _print(name: str, results: Sequence[Latency]) -> None:
    fp32 = results[0]
    print()
    print(f"{name}, batch size 1")
    print(
        f"{'':<18}{'ms':>8}{'10-90 %':>16}{'FP32 / this':>26}{'bytes':>8}{'casts':>7}{'relative L2':>13}"
        "  finite"
    )
    for found in results:
        if found.failure:
            print(f"{found.variant:<18}  fails: {found.failure}")
            continue
        low, middle, high = np.percentile(found.milliseconds, (10, 50, 90))
        ratios = found.ratio(fp32)
        print(
            f"{found.variant:<18}{middle:>8.2f}{f'{low:.2f}-{high:.2f}':>16}"
            f"{f'{ratios[1]:.2f}  ({ratios[0]:.2f} to {ratios[2]:.2f})':>26}"
            f"{found.parameter_bytes / fp32.parameter_bytes:>8.3f}{found.casts:>7}{found.relative_l2:>13.2e}"
            f"  {'yes' if found.finite else 'NO'}"
        )
    best = next(found for found in results if found.variant == "stock, cast once")
    for ours in results[results.index(best) + 1 :]:
        if ours.milliseconds and best.milliseconds:
            low, middle, high = ours.ratio(best)
            print(
                f"{ours.variant} against {best.variant}: {middle:.2f} times as fast ({low:.2f} to {high:.2f})"
            )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.benchmark_latency",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
    )
    parser.add_argument(
        "--models",
        nargs="+",
        metavar="NAME",
        default=["resnet50_v1"],
        help="zoo names (default: resnet50_v1)",
    )
    add_benchmark_options(
        parser, rounds=50, round_means="forward passes of each", seed_of="weights and input"
    )
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
    prepare_environment()
    machine = describe_machine(seed=options.seed)
    print(f"One forward pass, BF16, {options.rounds} rounds; medians with the 10th and 90th percentile")
    print("\n".join(machine_lines(machine)), flush=True)
    measured: dict[str, list[dict[str, Any]]] = {}
    failed = False
    for name in options.models:
        try:
            results = measure(name, rounds=options.rounds, seed=options.seed)
        except MxampError as error:
            print(f"\n{name}: cannot be measured: {error}", flush=True)
            failed = True
            continue
        _print(name, results)
        measured[name] = [asdict(found) for found in results]
    write_measurements(options.json, {"machine": machine, "rounds": options.rounds, "models": measured})
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
