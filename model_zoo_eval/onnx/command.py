"""``python -m model_zoo_eval onnx``: the zoo in ONNX Runtime against MXNet."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Mapping

from model_zoo_eval.arguments import count, number
from model_zoo_eval.environment import describe_environment, usable_cores
from model_zoo_eval.job import FP32
from model_zoo_eval.journal import Journal, read_results
from model_zoo_eval.onnx.child import command
from model_zoo_eval.onnx.job import AMPLIFIES, PASSES, RANKS, SHORT_ONNX_SET, OnnxJob
from model_zoo_eval.process import Limits
from model_zoo_eval.registry import Case, find_entry, select_cases
from model_zoo_eval.rows import LOST, OK, UNAVAILABLE
from model_zoo_eval.runner import LocalScheduler
from mxamp.errors import DataError

__all__ = ["JOURNAL", "add_command"]

JOURNAL = "onnx.jsonl"
"""The name of the journal in the folder of results."""

_DESCRIPTION = """\
Export models of the zoo to ONNX and compare ONNX Runtime with MXNet: all outputs, fusion off, FP32.

Weights are random and inputs standard normal: what is compared is arithmetic, not accuracy. A model passes
where the relative L2 error of every output is at most 1e-5. Where it is more, MXNet's outputs for inputs, or
parameters, changed in their last bits are looked at: a network that moves as much by itself, within a factor
of 10, is said to amplify. One that ranks is compared piece by piece, cut at its rankings: where all pieces
are within 1e-5 it ranks otherwise. All else fails."""

_EPILOG = """\
examples:
  python -m model_zoo_eval onnx
      a dozen models, one of every kind: a minute. Results are in zoo-results/onnx.jsonl
  python -m model_zoo_eval onnx --models 'resnet50*' 'ssd_512_*_voc+primitive'
      names or shell patterns; +contrib and +primitive choose a detector's graph form
  python -m model_zoo_eval onnx --all --resume -o onnx-results
      everything, for an hour or two; stop it whenever you like
  python -m model_zoo_eval diff model_zoo_eval/onnx-baseline.jsonl zoo-results/onnx.jsonl
      what got worse since the baseline

Exit status: 0 all pass, amplify or rank otherwise, 1 one fails, 2 an error you can act on."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser], output: Path) -> None:
    """Add the subcommand.

    Parameters
    ----------
    commands
        What ``ArgumentParser.add_subparsers`` returned.
    output
        Where results go by default.
    """
    parser = commands.add_parser(
        "onnx",
        help="export models to ONNX, and compare ONNX Runtime with MXNet",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--models",
        nargs="+",
        metavar="GLOB",
        default=(),
        help="names or shell patterns (default: a short set)",
    )
    which.add_argument("--all", action="store_true", help="all models, both graph forms of detectors")
    parser.add_argument("-o", "--output", type=Path, default=output, metavar="DIR", help=f"default: {output}")
    parser.add_argument("--resume", action="store_true", help="leave out what the results already have")
    parser.add_argument(
        "--retry", action="store_true", help="with --resume: try again what failed, crashed or took too long"
    )
    parser.add_argument("--jobs", type=count, default=1, metavar="N", help="models at once (default: 1)")
    parser.add_argument("--threads", type=count, metavar="N", help="threads a model")
    parser.add_argument(
        "--timeout", type=count, default=1800, metavar="SECONDS", help="for one model (default: 1800)"
    )
    parser.add_argument(
        "--memory", type=float, metavar="GIB", help="for one model (default: no limit but the machine's)"
    )
    parser.add_argument("--seed", type=number, default=0, help="of weights and inputs (default: 0)")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    if args.retry and not args.resume:
        raise DataError("--retry goes with --resume: without it everything is done anyway.")
    cases = select_cases(args.models or SHORT_ONNX_SET, everything=args.all)
    limits = Limits(
        seconds=float(args.timeout),
        memory=None if args.memory is None else int(args.memory * 2**30),
        threads=args.threads or max(1, usable_cores() // args.jobs),
    )
    path = args.output / JOURNAL
    rows = _earlier(path, args) if args.resume else {}
    if not args.resume:
        _set_aside(path)
    journal = Journal(path)
    journal.start(describe_environment(threads=limits.threads, seed=args.seed), {"kind": "onnx"})
    jobs = []
    for case in cases:
        if case.key in rows:
            continue
        entry = find_entry(case.name)
        if entry.is_runnable:
            jobs.append((case, OnnxJob(case.name, case.form, args.seed)))
        else:
            rows[case.key] = {"status": UNAVAILABLE, "reason": entry.unavailable}
            journal.add(case.key, rows[case.key])
    began = time.perf_counter()
    scheduler: Any = LocalScheduler(args.jobs, command())
    for number_done, (case, row) in enumerate(scheduler.run(jobs, limits), 1):
        if row["status"] == LOST:
            continue
        journal.add(case.key, row)
        rows[case.key] = row
        print(f"[{number_done}/{len(jobs)}] {_line(case, row)}", file=sys.stderr, flush=True)
    results = read_results(path).rows
    counts = Counter(_verdict(results[case.key]) for case in cases if case.key in results)
    said = ", ".join(f"{number_of} {verdict}" for verdict, number_of in counts.most_common())
    print(f"{said}; {time.perf_counter() - began:.0f} s. See {path}.")
    return 0 if set(counts) <= {PASSES, AMPLIFIES, RANKS, UNAVAILABLE} else 1


def _verdict(row: Mapping[str, Any]) -> str:
    return str(row["results"][FP32]["verdict"] if row["status"] == OK else row["status"])


def _line(case: Case, row: Mapping[str, Any]) -> str:
    if row["status"] != OK:
        said = f"{row['status'].upper()}: {row['reason'][:300]}"
    else:
        result = row["results"][FP32]
        said = f"{result['verdict']}, worst of {len(result['errors'])} outputs {max(result['errors']):.1e}"
    return f"{case.key:<44} {said} ({row['seconds']:.0f} s)"


def _earlier(path: Path, args: argparse.Namespace) -> dict[str, Mapping[str, Any]]:
    """Return what a journal has that need not be done again."""
    if not path.is_file():
        return {}
    kept = (OK, UNAVAILABLE)
    rows = read_results(path).rows
    return {key: row for key, row in rows.items() if not args.retry or row["status"] in kept}


def _set_aside(path: Path) -> None:
    """Rename earlier results; none are ever lost."""
    if path.is_file():
        numbers = itertools.count(1)
        free = (path.with_name(f"{path.stem}-{number_of}{path.suffix}") for number_of in numbers)
        path.rename(next(name for name in free if not name.exists()))
