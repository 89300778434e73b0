"""The command line: ``python -m model_zoo_eval``, and ``mxamp zoo`` in a checkout."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Iterator, Sequence

from model_zoo_eval.accuracy.command import JOURNAL as ACCURACY_JOURNAL
from model_zoo_eval.accuracy.command import add_command as add_accuracy
from model_zoo_eval.arguments import count, number
from model_zoo_eval.environment import usable_cores
from model_zoo_eval.job import DTYPES, Job
from model_zoo_eval.journal import read_results
from model_zoo_eval.onnx.command import add_command as add_onnx
from model_zoo_eval.process import Limits
from model_zoo_eval.registry import CONTRIB, PRIMITIVE, Case, find_entry, registry, select_cases
from model_zoo_eval.rows import OK, UNAVAILABLE
from model_zoo_eval.runner import LocalScheduler, Scheduler, run_cases
from mxamp.errors import DataError, MxampError
from mxamp.report.table import Column, format_table, paragraph, terminal_width

__all__ = ["main"]

_WORSE = 1
_USER_ERROR = 2
_INTERRUPTED = 130
_BROKEN_PIPE = 141

_OUTPUT = Path("zoo-results")

_DESCRIPTION = """\
Convert models of GluonCV's zoo, run them beside FP32, and say how far apart they are.

FP32 is compared with bfloat16, executed, and with float16, emulated (and executed, where MXNet sees a GPU),
on real photographs, with trained weights where they can be had and random ones otherwise. Every result says
which."""

_EPILOG = """\
examples:
  python -m model_zoo_eval run
      a short set, one model for every kind of network: minutes. Results and report are in zoo-results/
  python -m model_zoo_eval run --models 'resnet50*' 'ssd_512_*_voc' --dtype bfloat16 -o resnets
      what you choose, by name or shell pattern
  python -m model_zoo_eval run --all --jobs 2 --resume
      everything, for hours; stop it whenever you like, --resume goes on where it was
  python -m model_zoo_eval diff model_zoo_eval/baseline.jsonl
      what got worse since the baseline; exit status 1 if anything did
  python -m model_zoo_eval accuracy
      what conversion does to accuracy, on data with labels and networks trained here: a minute
  python -m model_zoo_eval onnx
      a dozen models exported to ONNX, ONNX Runtime against MXNet: a minute
  python -m model_zoo_eval export resnet50_v1 --dtype bfloat16 --params weights -o deploy
      files for deployment, and a signature that says how to feed them

`python -m model_zoo_eval COMMAND --help` says more about each.
Exit status: 0 all is well, 1 a model failed or got worse, 2 an error you can act on, 130 interrupted."""


def main(argv: Sequence[str] | None = None, *, program: str = "python -m model_zoo_eval") -> int:
    """Run a command line.

    Parameters
    ----------
    argv
        The arguments; by default those of the process.
    program
        What help calls it.

    Returns
    -------
    int
        The exit status.
    """
    parser = _parser(program)
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help()
        return _USER_ERROR
    try:
        return int(args.run(args))
    except KeyboardInterrupt:
        print("Interrupted. What is done is in the journal; --resume goes on from there.", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (head, a pager) has gone. Python would complain again while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except (MxampError, OSError) as error:
        print(f"{program}: error: {error}", file=sys.stderr)
        return _USER_ERROR


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    _add_run(commands)
    _add_list(commands)
    _add_report(commands)
    _add_diff(commands)
    _add_export(commands)
    _add_cluster(commands)
    add_accuracy(commands, _OUTPUT)
    add_onnx(commands, _OUTPUT)
    return parser


# ---------------------------------------------------------------------- run


def _add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "run",
        help="evaluate models, and write results and a report",
        description="Evaluate models, each in a process of its own: one that crashes, takes too long or too "
        "much memory is a result, and the run goes on. Results are written as they come.",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--models",
        nargs="+",
        metavar="GLOB",
        default=(),
        help="names or shell patterns; NAME+primitive and NAME+contrib choose a detector's graph form "
        "(default: the short set)",
    )
    which.add_argument("--all", action="store_true", help="all models, both graph forms of detectors")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=DTYPES, help="default: both")
    parser.add_argument(
        "-o", "--output", type=Path, default=_OUTPUT, metavar="DIR", help=f"default: {_OUTPUT}"
    )
    earlier = parser.add_mutually_exclusive_group()
    earlier.add_argument("--resume", action="store_true", help="leave out what the results already have")
    earlier.add_argument(
        "--fresh", action="store_true", help="set earlier results aside, as results-1.jsonl, and start anew"
    )
    parser.add_argument(
        "--retry",
        action="store_true",
        help="with --resume: evaluate again what failed, crashed or took too long",
    )
    parser.add_argument("--jobs", type=count, default=1, metavar="N", help="models at once (default: 1)")
    parser.add_argument(
        "--threads", type=count, metavar="N", help="threads a model (default: cores by models at once)"
    )
    parser.add_argument(
        "--timeout", type=count, default=1800, metavar="SECONDS", help="for one model (default: 1800)"
    )
    parser.add_argument(
        "--memory", type=float, metavar="GIB", help="for one model (default: no limit but the machine's)"
    )
    parser.add_argument(
        "--samples", type=count, metavar="N", help="photographs a model (default: 1 to 8, by task)"
    )
    parser.add_argument(
        "--rounds",
        type=number,
        default=10,
        metavar="N",
        help="most rounds of timing; 0 for none (default: 10)",
    )
    parser.add_argument(
        "--input-size",
        type=count,
        metavar="N",
        help="height and width of the input instead of the model's own; results say so",
    )
    _add_weights(parser)
    parser.add_argument("--scheduler", choices=("local", "dask"), default="local", help="default: local")
    parser.add_argument(
        "--address", metavar="tcp://HOST:PORT", help="of the Dask scheduler; `cluster` starts one"
    )
    parser.set_defaults(run=_run)


def _add_weights(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--params", type=Path, metavar="DIR", help="a folder with parameters as GluonCV names them: "
            "NAME.params, "
        "NAME-HASH.params"
    )  # fmt: skip
    parser.add_argument(
        "--no-pretrained",
        action="store_true",
        help="random weights, where --params has none; downloads nothing",
    )
    parser.add_argument("--seed", type=number, default=0, help="of random weights (default: 0)")


def _run(args: argparse.Namespace) -> int:
    cases = select_cases(args.models, everything=args.all)
    if args.retry and not args.resume:
        raise DataError("--retry goes with --resume: without it everything is evaluated anyway.")
    if args.memory is not None and not args.memory > 0:
        raise DataError(f"--memory must be a number of GiB above 0, not {args.memory}.")
    if args.params is not None and not args.params.is_dir():
        raise DataError(
            f"--params: there is no folder {str(args.params)!r}. It should hold parameters as GluonCV names "
            "them, such as resnet50_v1.params."
        )
    job = Job(
        "",
        dtypes=tuple(dict.fromkeys(args.dtype)),
        samples=args.samples,
        size=args.input_size,
        rounds=args.rounds,
        seed=args.seed,
        params=None if args.params is None else str(args.params.resolve()),
        pretrained=not args.no_pretrained,
    )
    path = args.output / "results.jsonl"
    with _scheduler(args) as (scheduler, threads):
        limits = Limits(
            seconds=float(args.timeout),
            memory=None if args.memory is None else int(args.memory * 2**30),
            threads=args.threads or threads,
        )
        if args.fresh:
            _set_aside(path)
        results = run_cases(
            cases,
            job,
            path=path,
            scheduler=scheduler,
            limits=limits,
            resume=args.resume,
            retry=args.retry,
        )
    from model_zoo_eval.report import write_report

    files = write_report(results, args.output)
    counts = Counter(results.rows[case.key]["status"] for case in cases if case.key in results.rows)
    print(f"{', '.join(f'{count} {status}' for status, count in counts.most_common())}. See {files[0]}.")
    return 0 if set(counts) <= {OK, UNAVAILABLE} and sum(counts.values()) == len(cases) else _WORSE


@contextlib.contextmanager
def _scheduler(args: argparse.Namespace) -> Iterator[tuple[Scheduler, int]]:
    """Return where to run, and how many threads a model there has cores for."""
    if args.scheduler == "local":
        yield LocalScheduler(args.jobs), max(1, usable_cores() // args.jobs)
        return
    if not args.address:
        raise DataError(
            "--scheduler dask needs --address, such as tcp://127.0.0.1:8786: that of a running scheduler. "
            "`python -m model_zoo_eval cluster` starts one on this machine."
        )
    from model_zoo_eval.dask_scheduler import DaskScheduler

    remote = DaskScheduler(args.address)
    try:
        yield remote, remote.threads
    finally:
        remote.close()


def _set_aside(path: Path) -> None:
    """Rename earlier results; none are ever lost."""
    if path.is_file():
        numbers = itertools.count(1)
        free = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in numbers)
        path.rename(next(name for name in free if not name.exists()))


# ---------------------------------------------------------------------- list, report, diff


def _add_list(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("list", help="say what the models are, and which can be evaluated")
    parser.add_argument("models", nargs="*", metavar="GLOB", help="names or shell patterns (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    parser.set_defaults(run=_list)


def _list(args: argparse.Namespace) -> int:
    names = {case.name for case in select_cases(args.models, everything=not args.models)}
    entries = [entry for entry in registry().values() if entry.name in names]
    if args.json:
        for entry in entries:
            print(
                json.dumps(
                    {
                        "name": entry.name,
                        "task": entry.task,
                        "family": entry.title,
                        "constructor": entry.constructor or "gluoncv.model_zoo.get_model",
                        "arguments": dict(entry.arguments),
                        "inputs": {name: list(shape) for name, shape in entry.inputs.items()},
                        "outputs": list(entry.outputs),
                        "classes": entry.classes,
                        "forms": list(entry.forms),
                        "published": entry.published and [entry.published.metric, entry.published.value],
                        "unavailable": entry.unavailable,
                    }
                )
            )
        return 0
    rows = [
        [
            entry.name,
            entry.task,
            " and ".join("x".join(map(str, shape)) for shape in entry.inputs.values()),
            "" if entry.published is None else f"{entry.published.metric} {entry.published.value:g}",
            entry.unavailable,
        ]
        for entry in entries
    ]
    columns = [
        Column("model", 20),
        Column("task", 12),
        Column("input"),
        Column("published", 12),
        Column("why not", 12),
    ]
    width = terminal_width()
    print("\n".join(format_table(columns, rows, width)))
    runnable = sum(entry.is_runnable for entry in entries)
    print("\n".join(paragraph(f"{len(entries)} models, of which {runnable} can be evaluated.", width)))
    return 0


def _add_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "report",
        help="write the report of results",
        description="Write report.md, report.html and plots. `run` does it at its end; this does it for "
        "several parts of one run, or while it goes on.",
    )
    parser.add_argument("results", nargs="*", type=Path, default=[_OUTPUT], metavar="RESULTS")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="default: where the results are")
    parser.set_defaults(run=_report)


def _report(args: argparse.Namespace) -> int:
    from model_zoo_eval.report import write_report

    accuracy = [path / ACCURACY_JOURNAL for path in args.results if (path / ACCURACY_JOURNAL).is_file()]
    results = read_results(*args.results, *accuracy)
    last = args.results[-1]
    for file in write_report(results, args.output or (last if last.is_dir() else last.parent)):
        print(file)
    return 0


def _add_diff(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "diff",
        help="say what got worse since a baseline",
        description="Compare results with a baseline. A model that failed, an error or a speed worse than "
        "its tolerance, or more casts are regressions, and each is named. Speeds are compared where both "
        "are of one kind of processor. A result that could not be compared, because the baseline does not "
        "have it or was made with other weights, inputs or samples, is a failure unless --allow-uncompared "
        "is given.",
    )
    parser.add_argument("baseline", type=Path, metavar="BASELINE")
    parser.add_argument("results", nargs="*", type=Path, default=[_OUTPUT], metavar="RESULTS")
    parser.add_argument(
        "--tolerance-fidelity",
        type=float,
        default=0.25,
        metavar="X",
        help="how much larger an error may be, as a part of the baseline's (default: 0.25)",
    )
    parser.add_argument(
        "--tolerance-speed",
        type=float,
        default=0.25,
        metavar="X",
        help="how much smaller a speed may be, as a part of the baseline's (default: 0.25)",
    )
    parser.add_argument(
        "--slower",
        choices=("fail", "tell"),
        default="fail",
        help="what a speed below its tolerance does: tell is for machines that others share (default: fail)",
    )
    parser.add_argument(
        "--allow-uncompared",
        action="store_true",
        help="results that cannot be compared are told, and do not fail as long as one was compared",
    )
    parser.set_defaults(run=_diff)


def _diff(args: argparse.Namespace) -> int:
    from model_zoo_eval.regressions import Tolerances, compare_results

    for name in ("tolerance_fidelity", "tolerance_speed"):
        if not getattr(args, name) >= 0:
            raise DataError(f"--{name.replace('_', '-')} must be a number from 0 on.")
    found = compare_results(
        read_results(args.baseline),
        read_results(*args.results),
        Tolerances(args.tolerance_fidelity, args.tolerance_speed, args.slower == "tell"),
    )
    for regression in found.regressions:
        print(regression)
    for note in found.notes:
        print(f"note: {note}")
    count, left_out = len(found.regressions), len(found.not_compared)
    print(
        f"{found.compared} compared, {left_out} not compared, {count} regression{'' if count == 1 else 's'}."
    )
    if not found.compared:
        raise DataError(
            "Nothing was compared, so this says nothing of regressions. Evaluate models of the baseline with "
            "its weights, input sizes and samples."
        )
    if left_out and not args.allow_uncompared:
        print(f"Not all was compared: {', '.join(found.not_compared)}. --allow-uncompared accepts that.")
    return _WORSE if count or (left_out and not args.allow_uncompared) else 0


# ---------------------------------------------------------------------- export, cluster


def _add_export(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "export",
        help="write a converted model for deployment",
        description="Write NAME-DTYPE-symbol.json, NAME-DTYPE-0000.params and NAME-DTYPE-signature.json: "
        "names, shapes and dtypes of inputs and outputs, and how to prepare an image.",
    )
    parser.add_argument("name", metavar="NAME", help="NAME+primitive for that graph form of a detector")
    parser.add_argument("--dtype", choices=DTYPES, required=True)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--input-size", type=count, metavar="N", help="height and width of the input")
    parser.add_argument(
        "--random-weights", action="store_true", help="export without trained weights, to try it"
    )
    _add_weights(parser)
    parser.set_defaults(run=_export)


def _export(args: argparse.Namespace) -> int:
    from model_zoo_eval.export import export_model

    name, _, form = args.name.partition("+")
    entry = find_entry(name)
    if entry.unavailable:
        raise DataError(f"{name!r} cannot be exported. {entry.unavailable}")
    if form and form not in entry.forms:
        raise DataError(
            f"{name!r} has no graph form {form!r}; {CONTRIB} and {PRIMITIVE} are those of detectors."
        )
    files = export_model(
        Case(name, form or (entry.forms[0] if entry.forms else "")),
        args.dtype,
        args.output,
        size=args.input_size,
        params=args.params,
        pretrained=not args.no_pretrained,
        allow_random=args.random_weights,
        seed=args.seed,
    )
    for file in files:
        print(file)
    return 0


def _add_cluster(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "cluster",
        help="start a Dask cluster on this machine",
        description="Start a Dask scheduler with workers on this machine, for run --scheduler dask. It "
        "prints its address, and runs until it is interrupted.",
    )
    parser.add_argument("--workers", type=count, default=usable_cores(), metavar="N", help="models at once")
    parser.add_argument("--port", type=number, default=8786, metavar="N", help="default: 8786; 0 for any")
    parser.set_defaults(run=_cluster)


def _cluster(args: argparse.Namespace) -> int:
    from model_zoo_eval.dask_scheduler import run_cluster

    run_cluster(args.workers, args.port)
    return 0
