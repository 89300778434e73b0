"""Measure what prices predict, and what the curve is worth against other ways to choose what stays FP32.

    python -m tools.benchmark_curve                  networks that are trained here, and some of the zoo
    python -m tools.benchmark_curve demo/cifar_resnet20_v1-digits --data val.npz [--points 8] [--json FILE]

For points of the curve the predicted error is set beside the emulated one. At the estimated time of each
point, the nodes that other ways would keep in FP32, as many as fit into that time, are emulated as well:

- threshold: those whose largest value is largest (the rule of NVIDIA's AutoCast)
- bisection: the last ones of the graph (halving, as onnxconverter-common's search does)
- one by one: those whose own rounding costs most, by price alone, without the casts that they bring
- random: any

Errors are relative L2 errors of the outputs, emulated with the target's fusion, on other samples than those
that were priced; times are the target's estimates.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Mapping, Sequence

import numpy as np

from model_zoo_eval.trained.networks import NETWORKS
from mxamp.calibration.pricing import price_roundings
from mxamp.calibration.run import calibrate
from mxamp.compare.data_files import load_data
from mxamp.compare.inputs import input_names
from mxamp.conversion.emulation import emulate_model
from mxamp.model import load
from mxamp.passes import Emulation
from mxamp.placement import TradeOff
from mxamp.profile.choices import these
from mxamp.runtime.executor import run_outputs
from mxamp.tuning.curve import Curve, explore
from tools.benchmark_calibrated_errors import relative_error, subject_of
from tools.machine import prepare_environment

__all__ = ["MODELS", "main"]

MODELS = (*NETWORKS, "mobilenet0.25", "squeezenet1.1", "resnet18_v1", "mobilenetv2_1.0", "mobilenet1.0")
"""What is measured unless others are asked for."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.benchmark_curve", description=__doc__)
    parser.add_argument(
        "models",
        nargs="*",
        metavar="PREFIX",
        help="a network that is trained here or of the zoo; with --data a pair of files",
    )
    parser.add_argument("--data", help=".npz with samples for a pair of files")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--points", type=int, default=8)
    parser.add_argument("--target", default="cpu-bf16")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    prepare_environment()
    found: dict[str, Mapping[str, Any]] = {}
    for name in options.models or MODELS:
        found[name] = _measure(name, options)
        print(_text(name, found[name]), flush=True)
        print(_summary(found), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def _measure(name: str, options: argparse.Namespace) -> Mapping[str, Any]:
    random = np.random.default_rng(options.seed)
    half = options.samples // 2
    if options.data is not None:
        model, loaded = load(name), load_data(options.data)
        assert isinstance(loaded, dict)  # an .npz file
        data = {n: loaded[n][: options.samples] for n in input_names(model)}
        first = {n: values[:half] for n, values in data.items()}
        other = {n: values[half:] for n, values in data.items()}
    else:
        subject = subject_of(name, half, 2, options.seed)
        model = subject.model
        (own,) = input_names(model)
        first, other = {own: subject.calibration[: 2 * half]}, {own: subject.held_out[: 2 * half]}
    shapes = {n: (1, *values.shape[1:]) for n, values in first.items()}
    curve = explore(model, price_roundings(model, first), shapes, target=options.target)
    largest = {n.node: s.largest for n, s in calibrate(model, first, positions=1).entries.items()}
    reference = run_outputs(model, other, fusion=False)
    points = []
    for point in curve.selected(options.points):
        record = {
            "estimated_us": curve.microseconds(point),
            "predicted": curve.error(point),
            "emulated": _error(curve, point, other, reference),
            "others": {},
        }
        for way, order in _orders(curve, largest, random).items():
            rival = _within(curve, order, point)
            record["others"][way] = _error(curve, rival, other, reference)
        points.append(record)
    return {"points": points, "corners": len(curve.corners)}


def _error(curve: Curve, point: TradeOff, data: Any, reference: Sequence[Any]) -> float:
    emulated = emulate_model(curve.convert(point), curve.options.target, Emulation())
    return relative_error(run_outputs(emulated, data), reference)


def _orders(curve: Curve, largest: Mapping[str, float], random: Any) -> Mapping[str, Sequence[int]]:
    """Return the low nodes of the fastest point, in the order in which each way would keep them in FP32."""
    graph, low = curve.problem.graph, sorted(curve.corners[0].low)
    own: dict[int, float] = dict.fromkeys(low, 0.0)
    for site in curve.sites:
        for node in site.price.nodes & own.keys():
            own[node] += site.price.error
    shuffled = list(low)
    random.shuffle(shuffled)
    return {
        "threshold": sorted(low, key=lambda node: -largest.get(graph.nodes[node].name, 0.0)),
        "bisection": low[::-1],
        "one by one": sorted(low, key=lambda node: -own[node]),
        "random": shuffled,
    }


def _within(curve: Curve, order: Sequence[int], limit: TradeOff) -> TradeOff:
    """Return the placement that keeps as many nodes in FP32, in an order, as the time of a point allows."""
    low = set(curve.corners[0].low)
    best = curve.corners[0]
    for node in order:
        low.discard(node)
        point = curve.point(these(frozenset(low))(curve.problem, set()))
        if point.time <= limit.time:
            best = point
        elif point.time > 1.1 * limit.time:
            break
    return best


def _text(name: str, found: Mapping[str, Any]) -> str:
    points = found["points"]
    lines = [f"{name}: {found['corners']} corners; emulated errors at equal estimated time"]
    ways = list(points[0]["others"])
    lines.append("  ".join([f"{'us':>9}", "predicted", " emulated", *(f"{way:>10}" for way in ways)]))
    for point in points:
        lines.append(
            "  ".join(
                [
                    f"{point['estimated_us']:9.0f}",
                    f"{point['predicted']:9.2e}",
                    f"{point['emulated']:9.2e}",
                    *(f"{point['others'][way]:10.2e}" for way in ways),
                ]
            )
        )
    return "\n".join(lines)


def _summary(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return how many points are predicted well, and how often each other way errs more than the curve."""
    points = [
        (name, point) for name, own in found.items() for point in own["points"] if point["predicted"] > 0
    ]
    ratios = [point["predicted"] / point["emulated"] for _, point in points]
    close = sum(1 / 1.5 <= ratio <= 1.5 for ratio in ratios)
    lines = [
        f"predicted within a factor of 1.5: {close} of {len(ratios)}, {min(ratios):.2f} to {max(ratios):.2f}"
    ]
    for way in points[0][1]["others"]:
        inside: dict[str, list[float]] = {name: [] for name in found}
        for name, point in points:
            if point["emulated"] < max(other["emulated"] for own, other in points if own == name):
                inside[name].append(point["others"][way] / point["emulated"])
        more = [float(np.exp(np.mean(np.log(own)))) for own in inside.values() if own]
        lines.append(
            f"{way}: errs more on {sum(ratio > 1 for ratio in more)} of {len(more)} models at equal "
            f"estimated time, {np.exp(np.mean(np.log(more))):.2f} times as much "
            f"({min(more):.2f} to {max(more):.2f})"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
