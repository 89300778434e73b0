"""What calibration has taken from the error of bfloat16 since an earlier revision, for its measured time.

    python -m tools.benchmark_errors_since 623cd14                  the 23 models of the zoo
    python -m tools.benchmark_errors_since 623cd14 resnet18_v1      these
    python -m tools.benchmark_errors_since 623cd14 --show           the table of what is there

The code of the revision (of this repository, by git) converts each network in a process of its own, by its
default, with shapes, and saves it; stock MXNet could load it, and so does this program. The network is
calibrated and converted with compensated weights, for several time budgets. All of them race on one sample:
the largest budget is taken with which the model takes at most one percent longer than the earlier one, and at
least one percent, by estimate, of the fastest placement. Then the two race again: those are the times told.
Errors are relative L2 distances from float32's outputs (fusion off) on samples that the calibration has not
seen, as in tools.benchmark_calibrated_errors: a detector ends at what it ranks, and weights are random.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, Mapping, Sequence

import numpy as np

import mxamp
from model_zoo_eval.journal import Journal, read_results
from mxamp.calibration import Calibration, Compensation
from mxamp.calibration.compensate import FULL
from mxamp.compare.inputs import input_names
from mxamp.compare.race import race
from mxamp.conversion import convert_graph
from mxamp.errors import DataError, MxampError, MxampWarning
from mxamp.measuring.process import process_environment
from mxamp.measuring.race import Ratio
from mxamp.model import Model
from mxamp.report.table import Column, format_table, terminal_width
from mxamp.tuning.curve import explore
from tools.benchmark_calibrated_errors import TARGET, convert_calibrated, relative_error, subject_of
from tools.benchmark_calibration import Subject
from tools.benchmark_models.names import MODELS
from tools.machine import ROOT, describe_machine, machine_lines, prepare_environment, use_amx

__all__ = ["main", "measure"]

RESULTS = ROOT / "benchmark-results" / "errors-since.jsonl"
BUDGETS = (0.01, 0.03, 0.06, 0.1, 0.15, 0.25)
SLOWER = 1.01
"""What the calibrated model may take, over the earlier one's time."""

_BINDINGS = 3
"""Each race is run so often, with memory that is allotted anew: where it lies makes a few percent."""

_CONVERT = """
import json, sys, warnings
warnings.simplefilter("ignore")
import mxamp
prefix, result, target, shapes = sys.argv[1:]
model = mxamp.load(prefix)
shapes = {name: tuple(shape) for name, shape in json.loads(shapes).items()}
mxamp.convert_model(
    model.graph, model.arg_params, model.aux_params, "bfloat16", target=target, input_shapes=shapes
).save(result)
"""
"""What is run with the earlier code."""


def converted_by(code: Path, model: Model, shapes: Mapping[str, Any], folder: Path) -> Model:
    """Return a model as an earlier revision converts it by default.

    Parameters
    ----------
    code
        The folder with that revision's package.
    model
        The float32 model.
    shapes
        Of its inputs.
    folder
        Where both are saved.

    Raises
    ------
    RuntimeError
        When that fails.
    """
    model.save(folder / "float32")
    done = subprocess.run(
        [
            *(sys.executable, "-c", _CONVERT, str(folder / "float32"), str(folder / "earlier"), TARGET),
            json.dumps(shapes),
        ],
        env={**process_environment(), "PYTHONPATH": str(code)},
        cwd=code,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"The earlier revision does not convert it: {done.stderr.strip()[-400:]}")
    return mxamp.load(folder / "earlier")


def measure(subject: Subject, code: Path, seconds: float) -> dict[str, Any]:
    """Calibrate a network, convert it by both, and measure errors and times.

    Parameters
    ----------
    subject
        The network and its samples.
    code
        The folder with the earlier revision's package.
    seconds
        How long each race lasts, about.

    Returns
    -------
    dict
        The errors; the time over the earlier's, with its spread; and the budget that it was.
    """
    from mxamp.runtime.executor import run_outputs

    model = subject.model
    (name,) = input_names(model)
    shapes = {name: (1, *subject.held_out.shape[1:])}
    data, sample = {name: subject.held_out}, {name: subject.held_out[:1]}
    expected = run_outputs(model, data, fusion=False, batch_size=1)

    def error(found: Model) -> float:
        return relative_error(run_outputs(found, data, batch_size=1), expected)

    calibration = mxamp.calibrate(model, subject.calibration)
    with tempfile.TemporaryDirectory() as folder:
        earlier = converted_by(code, model, shapes, Path(folder))
        first = _times([earlier, *_trials(model, shapes, calibration)], sample, seconds)
        budgets = [budget for budget, own in zip(BUDGETS, first[1:]) if own.median >= 1 / SLOWER]
        budget = max(budgets, default=BUDGETS[0])
        own = convert_calibrated(model, shapes, calibration, budget)
        ratio = _times([earlier, own], sample, seconds, seed=1)[1]
        return {
            "earlier": error(earlier),
            "default": error(_default(model, shapes)),
            "calibrated": error(own),
            "budget": budget,
            "speed": ratio.rounded(),
            "samples": len(subject.calibration),
            "held_out": len(subject.held_out),
            "shape": list(shapes[name][1:]),
            "weights": subject.weights,
        }


def _default(model: Model, shapes: Mapping[str, Any]) -> Model:
    return mxamp.convert_model(
        model.graph, model.arg_params, model.aux_params, "bfloat16", target=TARGET, input_shapes=shapes
    )


def _trials(model: Model, shapes: Mapping[str, Any], calibration: Calibration) -> list[Model]:
    """Return what each budget makes of a model, its weights not compensated: only to be timed."""
    if calibration.prices is None:
        raise DataError(f"Roundings have no prices: {calibration.why_unpriced}")
    own = Compensation(FULL)
    curve = explore(model, calibration.prices, shapes, target=TARGET, calibration=calibration, compensate=own)
    return [
        convert_graph(curve.source, dataclasses.replace(curve.options, time_budget=budget, is_trial=True))
        for budget in BUDGETS
    ]


def _times(models: Sequence[Model], sample: Mapping[str, Any], seconds: float, seed: int = 0) -> list[Ratio]:
    """Return how many times as fast as the first each model is."""
    taken: list[list[float]] = [[] for _ in models]
    for part in range(_BINDINGS):
        order = list(range(len(models)))
        np.random.default_rng(_BINDINGS * seed + part).shuffle(order)
        found = race(
            [models[number] for number in order],
            sample,
            rounds=200,
            seconds=seconds / _BINDINGS,
            at_least=5,
            seed=_BINDINGS * seed + part,
            is_clear=None,
        )
        for number, own in zip(order, found.seconds):
            taken[number] += own
    return [Ratio.of(taken[0], own) for own in taken]


# ---------------------------------------------------------------------- the command


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the table.

    Parameters
    ----------
    argv
        The arguments; by default those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("revision", metavar="REVISION", help="of this repository: a commit, a branch, a tag")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the zoo (default: the benchmark's 23)")
    parser.add_argument("--samples", type=int, default=8, help="to calibrate with (default: %(default)s)")
    parser.add_argument("--held-out", type=int, default=4, help="to judge by (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=20, help="a race lasts, about (default: %(default)s)"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="the journal (default: %(default)s)")
    parser.add_argument("--show", action="store_true", help="print what is there, and measure nothing")
    options = parser.parse_args(argv)
    done: Mapping[str, Any] = read_results(options.results).rows if options.results.exists() else {}
    if options.show:
        print("\n".join(_lines(done)))
        return 0
    prepare_environment()
    use_amx()
    warnings.simplefilter("ignore", MxampWarning)
    machine = describe_machine(seed=0)
    print("\n".join(machine_lines(machine)), flush=True)
    journal = Journal(options.results)
    journal.start(machine, {"revision": options.revision, "samples": options.samples})
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        try:
            _unpack(options.revision, Path(folder))
        except subprocess.CalledProcessError as error:
            parser.error(f"git has no revision {options.revision!r}: {error.stderr.decode().strip()}")
        for name in options.names or MODELS:
            if name in done:
                continue
            try:
                subject = subject_of(name, options.samples, options.held_out, seed=0)
                row = measure(subject, Path(folder), options.seconds)
            except (MxampError, RuntimeError) as error:
                print(f"{name}: {error}", file=sys.stderr)
                failed += 1
                continue
            journal.add(name, row)
            print("\n".join(_lines({name: row})), flush=True)
    print("\n" + "\n".join(_lines(read_results(options.results).rows)))
    return 1 if failed else 0


def _unpack(revision: str, folder: Path) -> None:
    """Put the package of a revision into a folder."""
    git = ["git", "-C", str(ROOT), "archive", revision, "mxamp"]
    packed = subprocess.run(git, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)


def _lines(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    titles = ("earlier", "default now", "calibrated", "of the earlier", "time, of the earlier's", "budget")
    columns = [Column("network", 12), *(Column(title, right=True) for title in titles)]
    lines = []
    for name, row in rows.items():
        speed = row["speed"]
        lines.append(
            [
                name,
                *(f"{row[way]:.2e}" for way in ("earlier", "default", "calibrated")),
                f"{row['calibrated'] / row['earlier']:.2f}",
                f"{1 / speed['ratio']:.3f} ({1 / speed['high']:.2f} to {1 / speed['low']:.2f})",
                f"{100 * row['budget']:g} %",
            ]
        )
    text = format_table(columns, lines, max(160, terminal_width()))
    if len(rows) > 1:
        errors = [row["calibrated"] / row["earlier"] for row in rows.values()]
        times = [1 / row["speed"]["ratio"] for row in rows.values()]
        mean_error = math.exp(np.mean(np.log(errors)))
        text.append(
            f"{len(rows)} networks: error {mean_error:.3f} of the earlier's (geometric mean, largest "
            f"{max(errors):.2f}), time {math.exp(np.mean(np.log(times))):.3f} (largest {max(times):.3f})"
        )
    return text


if __name__ == "__main__":
    sys.exit(main())
