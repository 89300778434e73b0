"""What a calibrated conversion takes from the error of bfloat16, for at most one percent of the time.

    python -m tools.benchmark_calibrated_errors                     all, what is there is not done again
    python -m tools.benchmark_calibrated_errors resnet18_v1 digits  these; "digits" and "scenes" are groups
    python -m tools.benchmark_calibrated_errors --show              the tables of what is there

Each network is converted four times: the fastest placement with weights rounded to nearest (what a conversion
was before outputs were spared anything), the default without data, and calibrated with compensated weights
within 1 % and within 2 % of the fastest placement's time. The error is the relative L2 distance of the
outputs from float32's (fusion off), executed in bfloat16 on samples that the calibration has not seen: of
several outputs the root of the mean square. Of a detector, whose outputs come out of a ranking, it is that of
what is priced: of what enters comparisons and rankings, the scores and the candidates with their boxes. Times
are the target's estimates for one sample.

"impossible below" is what no placement can reach within 1 %, by the prices of the roundings of results, if
compensation left nothing of the weights' error: the lower envelope of time and error, which is exact, there.

Plain ResNets are converted by MXNet's own converter, too, with parameters cast once.

Networks of the zoo have random weights: they are calibrated on cuts of one photograph and judged on cuts of
another. Networks that were trained here are calibrated on samples of their training and judged on held-out
ones. Results are JSON lines (--results), each written as soon as it is there.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import time
import warnings
from pathlib import Path
from typing import Any, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

import mxamp
from model_zoo_eval.journal import Journal, read_results
from model_zoo_eval.trained.networks import NETWORKS
from mxamp.calibration import Calibration
from mxamp.calibration.priced_heads import priced_heads
from mxamp.calibration.prices import Prices
from mxamp.calibration.pricing import price_roundings
from mxamp.calibration.sites import rounding_sites
from mxamp.compare.inputs import input_names
from mxamp.dtypes import DType
from mxamp.errors import MxampError, MxampWarning
from mxamp.model import Model
from mxamp.report.table import Column, format_table, terminal_width
from mxamp.runtime.random_weights import RESIDUAL_SCALE
from mxamp.tuning.curve import Curve, explore
from tools.benchmark_calibration import Subject, trained_subject, zoo_subject
from tools.benchmark_models.names import MODELS, PLAIN_RESNETS, STOCK_CAST_ONCE, TITLES
from tools.benchmark_models.variants import converters
from tools.machine import ROOT, describe_machine, machine_lines, prepare_environment, use_amx
from tools.zoo_graphs import with_heads

__all__ = [
    "BEFORE",
    "DEFAULT",
    "convert_calibrated",
    "main",
    "measure",
    "predict",
    "relative_error",
    "subject_of",
    "without_rankings",
]

RESULTS = ROOT / "benchmark-results" / "calibrated-errors.jsonl"
BEFORE, DEFAULT = "fastest, nearest", "default"
TARGET = "cpu-bf16"
BUDGETS = (0.01, 0.02)
_BATCH = 4
"""Samples a forward pass where errors are measured."""

_CHEAP = (
    *("mobilenet0.25", "mobilenetv3_small", "squeezenet1.1", "mobilenetv3_large", "mobilenet1.0"),
    *("mobilenetv2_1.0", "resnet18_v1", "hrnet_w18_small_v1_c", "simple_pose_resnet18_v1b", "densenet121"),
    *("resnet50_v1", "resnet50_v2", "resnet50_v1d", "alexnet", "inceptionv3", "resnest50"),
    *("se_resnext50_32x4d", "center_net_resnet18_v1b_voc", "xception", "yolo3_mobilenet1.0_voc", "vgg16"),
)
"""Those that take least come first, so that a run that is stopped has most of them."""


def measure(subject: Subject, budgets: Sequence[float] = BUDGETS) -> dict[str, Any]:
    """Calibrate a network, convert it in each way, and measure the errors.

    Parameters
    ----------
    subject
        The network and its samples.
    budgets
        How much longer than the fastest placement calibrated conversions may take; the first is the one that
        bounds are told for.

    Returns
    -------
    dict
        Way -> its error, its estimated time over the fastest placement's, and its accuracy where there are
        labels; with what is impossible.
    """
    from mxamp.runtime.executor import run_outputs

    started = time.perf_counter()
    calibration = mxamp.calibrate(subject.model, subject.calibration)
    calibrated = time.perf_counter() - started
    (name,) = calibration.data[0].shapes
    prices = calibration.prices
    if prices is None:
        raise mxamp.errors.DataError(f"{subject.name} has no prices: {calibration.why_unpriced}")
    shape = {name: (1, *subject.held_out.shape[1:])}
    data = {name: subject.held_out}
    expected = run_outputs(subject.model, data, fusion=False, batch_size=_BATCH)
    curve = explore(subject.model, prices, shape, target=TARGET)
    fastest = curve.microseconds(curve.fastest)
    ways: dict[str, dict[str, Any]] = {}

    def add(way: str, model: Model, microseconds: float, predicted: float | None = None) -> None:
        found = run_outputs(model, data, batch_size=_BATCH)
        ways[way] = {
            "error": relative_error(found, expected),
            "time": microseconds / fastest,
            "predicted": predicted,
            "accuracy": None
            if subject.labels is None
            else float((found[0].argmax(axis=1) == subject.labels).mean()),
        }

    add(BEFORE, curve.convert(curve.fastest), fastest, curve.error(curve.fastest))
    add(DEFAULT, curve.convert(curve.today), curve.microseconds(curve.today), curve.error(curve.today))
    started = time.perf_counter()
    for budget in budgets:
        model = convert_calibrated(subject.model, shape, calibration, budget)
        assert model.report is not None  # a conversion has one
        assert model.report.time is not None  # the target has costs
        add(_way(budget), model, model.report.time.mixed_us)
    if subject.name in PLAIN_RESNETS:
        stock = converters(subject.model, shape)[STOCK_CAST_ONCE]()
        ways[STOCK_CAST_ONCE] = {
            "error": relative_error(run_outputs(stock, data, batch_size=_BATCH), expected)
        }
    bound = _without_weights(curve, prices).impossible_below(budgets[0])
    return {
        "ways": ways,
        "impossible_below": bound / ways[BEFORE]["predicted"],
        "samples": len(subject.calibration),
        "held_out": len(subject.held_out),
        "shape": list(subject.held_out.shape[1:]),
        "weights": subject.weights,
        "calibrate_seconds": calibrated,
        "convert_seconds": (time.perf_counter() - started) / len(budgets),
    }


def convert_calibrated(
    model: Model, shapes: Mapping[str, tuple[int, ...]], calibration: Calibration, time_budget: float
) -> Model:
    """Return a model in bfloat16 with compensated weights, for so much time over the fastest placement's."""
    return mxamp.convert_model(
        model.graph,
        model.arg_params,
        model.aux_params,
        "bfloat16",
        target=TARGET,
        input_shapes=shapes,
        calibration=calibration,
        compensate="full",
        time_budget=time_budget,
    )


def predict(subject: Subject) -> float:
    """Return what a calibrated conversion leaves of the error at least within 1 % of the time, by the prices.

    Parameters
    ----------
    subject
        The network; its roundings are priced with its calibration's samples, and nothing is executed.
    """
    (name,) = input_names(subject.model)
    prices = price_roundings(subject.model, {name: subject.calibration}, draws=2)
    shape = {name: (1, *subject.calibration.shape[1:])}
    plain = explore(subject.model, prices, shape, target=TARGET)
    return _without_weights(plain, prices).impossible_below(BUDGETS[0]) / plain.error(plain.fastest)


def _without_weights(curve: Curve, prices: Prices) -> Curve:
    """Return the curve of results alone, as if compensation left nothing of the weights' error."""
    fold_into = curve.options.target.fold_into
    sites = rounding_sites(curve.problem, prices, DType.BFLOAT16, fold_into=fold_into, weights=0.0)
    return dataclasses.replace(curve, sites=sites)


def _way(budget: float) -> str:
    return f"calibrated, {100 * budget:g} %"


def relative_error(found: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]]) -> float:
    """Return the relative L2 error of outputs; of several the root of the mean square."""
    squares = []
    for own, exact in zip(found, expected):
        wide = exact.astype(np.float64)
        squares.append(np.linalg.norm(own - wide) ** 2 / max(np.linalg.norm(wide) ** 2, 1e-30))
    return float(np.sqrt(np.mean(squares)))


def without_rankings(model: Model) -> Model:
    """Return a model up to what it ranks or compares, which is what is priced; any other model as it is."""
    heads = priced_heads(model.graph)
    return model if set(heads) == set(model.graph.heads) else with_heads(model, heads)


def subject_of(
    name: str, samples: int, held_out: int, seed: int, residual_scale: float = RESIDUAL_SCALE
) -> Subject:
    """Return a network of the zoo, or one that is trained here, up to where it ranks.

    Parameters
    ----------
    name
        The network.
    samples, held_out
        How many samples there are to calibrate with, and to judge by; of networks that are trained here,
        whose samples are small, twice and 32 times as many.
    seed
        Of weights and cuts.
    residual_scale
        How large residual branches end, beside their trunk, with random weights.
    """
    if name in NETWORKS:
        found = trained_subject(name, samples=2 * samples, held_out=32 * held_out)
    else:
        found = zoo_subject(
            name, samples=samples, held_out=held_out, seed=seed, residual_scale=residual_scale
        )
    return dataclasses.replace(found, model=without_rankings(found.model))


# ---------------------------------------------------------------------- the command


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print tables.

    Parameters
    ----------
    argv
        The arguments; by default those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the zoo, or trained here (default: all)")
    parser.add_argument("--samples", type=int, default=16, help="to calibrate with (default: %(default)s)")
    parser.add_argument("--held-out", type=int, default=4, help="to judge by (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and cuts (default: %(default)s)")
    parser.add_argument(
        "--budgets", type=float, nargs="+", default=BUDGETS, help="of time (default: 0.01 0.02); 0.01 first"
    )
    parser.add_argument(
        "--residual-scale",
        type=float,
        default=RESIDUAL_SCALE,
        help="how large residual branches end with random weights (default: %(default)s; make bench has 1)",
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="the journal (default: %(default)s)")
    parser.add_argument("--predict", action="store_true", help="only price, and execute nothing")
    parser.add_argument("--show", action="store_true", help="print what is there, and measure nothing")
    options = parser.parse_args(argv)
    groups = {group: [n for n in NETWORKS if n.endswith(group)] for group in ("digits", "scenes")}
    every = [*NETWORKS, *_CHEAP, *(name for name in MODELS if name not in _CHEAP)]
    names = [name for given in options.names for name in groups.get(given, [given])] or every
    done: Mapping[str, Any] = read_results(options.results).rows if options.results.exists() else {}
    if options.show:
        print("\n".join(_lines(done)))
        return 0
    prepare_environment()
    use_amx()
    warnings.simplefilter("ignore", MxampWarning)
    if options.predict:
        for name in names:
            print(f"{name} {predict(subject_of(name, 2, 1, options.seed)):.2f}", flush=True)
        return 0
    machine = describe_machine(seed=options.seed)
    print("\n".join(machine_lines(machine)), flush=True)
    journal = Journal(options.results)
    journal.start(machine, {"samples": options.samples, "held_out": options.held_out, "seed": options.seed})
    failed = 0
    for name in names:
        if name in done:
            continue
        try:
            row = measure(
                subject_of(name, options.samples, options.held_out, options.seed, options.residual_scale),
                options.budgets,
            )
        except MxampError as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed += 1
            continue
        journal.add(name, row)
        print("\n".join(_lines({name: row})), flush=True)
    print("\n" + "\n".join(_lines(read_results(options.results).rows)))
    return 1 if failed else 0


def _lines(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    columns = [Column("network", 12), Column("input")]
    ways = [
        way for way in (BEFORE, DEFAULT, *map(_way, BUDGETS)) if any(way in r["ways"] for r in rows.values())
    ]
    columns += [Column(way, right=True) for way in ways]
    columns += [Column("of the first, 1 %", right=True), Column("impossible below", right=True)]
    columns += [Column("time, 1 %", right=True), Column("top-1", right=True)]
    lines = []
    for name, row in rows.items():
        own = row["ways"]
        accuracy = [own[way]["accuracy"] for way in (BEFORE, _way(BUDGETS[0]))]
        lines.append(
            [
                name,
                "x".join(map(str, row["shape"])),
                *(f"{own[way]['error']:.2e}" if way in own else "-" for way in ways),
                f"{_ratio(row):.2f}",
                f"{row['impossible_below']:.2f}",
                f"{own[_way(BUDGETS[0])]['time']:.3f}",
                "" if accuracy[0] is None else ", ".join(f"{share:.4f}" for share in accuracy),
            ]
        )
    text = format_table(columns, lines, max(160, terminal_width()))
    for title, chosen in (
        ("zoo", [row for name, row in rows.items() if name in MODELS]),
        ("trained", [row for name, row in rows.items() if name in NETWORKS]),
    ):
        if len(chosen) > 1:
            ratios = [_ratio(row) for row in chosen]
            text.append(
                f"{title}: {len(chosen)} networks, error within 1 % of the time "
                f"{math.exp(np.mean(np.log(ratios))):.3f} of the fastest placement's with nearest rounding "
                f"(geometric mean; smallest {min(ratios):.2f}, largest {max(ratios):.2f})"
            )
    for name, row in rows.items():
        if STOCK_CAST_ONCE in row["ways"]:
            stock, own = (row["ways"][way]["error"] for way in (STOCK_CAST_ONCE, _way(BUDGETS[0])))
            text.append(
                f"{name}: {TITLES[STOCK_CAST_ONCE]} {stock:.2e}, {stock / own:.1f} times calibrated's"
            )
    return text


def _ratio(row: Mapping[str, Any]) -> float:
    ways = row["ways"]
    return float(ways[_way(BUDGETS[0])]["error"] / ways[BEFORE]["error"])


if __name__ == "__main__":
    sys.exit(main())
