"""``python -m model_zoo_eval accuracy``: what conversion does to a task's metric."""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import sys
import time
from pathlib import Path
from typing import Any, Mapping, Sequence

from model_zoo_eval.accuracy.child import command
from model_zoo_eval.accuracy.job import AccuracyCase, AccuracyJob
from model_zoo_eval.accuracy.tables import accuracy_parts, is_within_chance
from model_zoo_eval.environment import describe_environment, usable_cores
from model_zoo_eval.journal import Journal, read_results
from model_zoo_eval.process import Limits
from model_zoo_eval.rows import LOST, OK
from model_zoo_eval.runner import LocalScheduler
from model_zoo_eval.tables import Heading, to_html, to_markdown
from mxamp.errors import DataError, UnknownNameError, nearest_names
from mxamp.files import atomic_write

__all__ = ["JOURNAL", "add_command"]

JOURNAL = "accuracy.jsonl"
"""The name of the journal in the folder of results."""

_TITLE = "What conversion does to accuracy"

_DESCRIPTION = """\
Measure a task's metric in FP32 and converted, on the same samples, and say whether the difference is more
than chance.

Without --data: networks of the zoo that were trained here, on scikit-learn's digits and on scenes of them
over photographs, which they have not seen. Nothing is downloaded; it takes about a minute.

With --data: models of the zoo with trained weights, on a data set as GluonCV lays it out, by the metric that
GluonCV publishes, whose figure stands beside it."""

_EPILOG = """\
examples:
  python -m model_zoo_eval accuracy
      five networks; the table is printed, and written to zoo-results/
  python -m model_zoo_eval accuracy --data ~/.mxnet/datasets/voc --models ssd_512_resnet50_v1_voc
      VOC07 mAP beside GluonCV's published figure
  python -m model_zoo_eval accuracy --data imagenet --models 'resnet50_v1*' --samples 5000 --params weights
      top-1 and top-5 of the first 5000 images, with weights of your own

Exit status: 0 no difference is more than chance, 1 one is, or a network failed, 2 an error you can act on."""


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
        "accuracy",
        help="measure accuracy, in FP32 and converted, on data with labels",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--models",
        nargs="+",
        metavar="GLOB",
        default=(),
        help="names or shell patterns (default: all that were trained here)",
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="a data set, as GluonCV lays it out")
    parser.add_argument(
        "--dataset",
        metavar="NAME",
        help="which one it is: imagenet, voc, coco, cityscapes, ade20k (default: what the models are for)",
    )
    parser.add_argument(
        "--params", type=Path, metavar="DIR", help="with --data: a folder with parameters, NAME.params"
    )
    parser.add_argument(
        "--samples", type=_count, metavar="N", help="the first N samples (default: all; intervals say what "
        "few are worth)"
    )  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, default=output, metavar="DIR", help=f"default: {output}")
    parser.add_argument(
        "--resume", action="store_true", help="leave out what the results already have, but for failures"
    )
    parser.add_argument("--jobs", type=_count, default=1, metavar="N", help="networks at once (default: 1)")
    parser.add_argument(
        "--threads", type=_count, metavar="N", help="threads a network (default: cores divided by --jobs)"
    )
    parser.add_argument(
        "--timeout", type=_count, metavar="SECONDS", help="for one network (default: none)", default=10**7
    )
    parser.add_argument("--seed", type=int, default=0, help="of the bootstrap (default: 0)")
    parser.set_defaults(run=_run)


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return value


def _run(args: argparse.Namespace) -> int:
    jobs = _offline_jobs(args) if args.data is None else _dataset_jobs(args)
    limits = Limits(seconds=float(args.timeout), threads=args.threads or max(1, usable_cores() // args.jobs))
    path = args.output / JOURNAL
    options = {key: value for key, value in jobs[0][1].to_mapping().items() if key not in ("name", "data")}
    done = _earlier(path, options) if args.resume else {}
    if not args.resume:
        _set_aside(path)
    journal = Journal(path)
    journal.start(describe_environment(threads=limits.threads, seed=args.seed), options)
    started = time.perf_counter()
    rows = {case.key: done[case.key] for case, _ in jobs if case.key in done}
    open_jobs = [each for each in jobs if each[0].key not in rows]
    for case, row in LocalScheduler(args.jobs, command()).run(open_jobs, limits):
        if row["status"] == LOST:
            continue
        journal.add(case.key, row)
        rows[case.key] = row
        print(
            f"[{len(rows)}/{len(jobs)}] {case.key}: {' '.join(filter(None, (row['status'], row['reason'])))} "
            f"({row['seconds']:.0f} s)",
            file=sys.stderr,
            flush=True,
        )
    results = read_results(path)
    files = _write(results.rows, args.output)
    parts = accuracy_parts(results.rows)
    print(to_markdown(parts[1:]))
    print(f"{time.perf_counter() - started:.0f} s. See {files[0]}.")
    good = all(row["status"] == OK and is_within_chance(row) for row in rows.values())
    return 0 if good and len(rows) == len(jobs) else 1


def _offline_jobs(args: argparse.Namespace) -> list[tuple[AccuracyCase, AccuracyJob]]:
    from model_zoo_eval.trained.networks import NETWORKS

    for option in ("dataset", "params"):
        if getattr(args, option) is not None:
            raise DataError(f"--{option} goes with --data: without it, what was trained here is measured.")
    jobs = []
    for name in _chosen(args.models or ("*",), list(NETWORKS), "No network that was trained here is called"):
        job = AccuracyJob(name, samples=args.samples, seed=args.seed)
        jobs.append((job.case, job))
    return jobs


def _dataset_jobs(args: argparse.Namespace) -> list[tuple[AccuracyCase, AccuracyJob]]:
    from model_zoo_eval.accuracy.layouts import check_folder, dataset_for
    from model_zoo_eval.registry import registry

    if not args.models:
        raise DataError("--data needs --models: say which models of the zoo to measure on it.")
    if args.params is not None and not args.params.is_dir():
        raise DataError(
            f"--params: there is no folder {str(args.params)!r}. It should hold parameters as GluonCV names "
            "them, such as resnet50_v1.params."
        )
    jobs = []
    for name in _chosen(args.models, list(registry()), "GluonCV's zoo has no model"):
        data = dataset_for(registry()[name], args.dataset)
        check_folder(data, registry()[name].task, args.data)
        job = AccuracyJob(
            name,
            data=data,
            folder=str(args.data.resolve()),
            params=None if args.params is None else str(args.params.resolve()),
            samples=args.samples,
            seed=args.seed,
        )
        jobs.append((job.case, job))
    return jobs


def _chosen(patterns: Sequence[str], names: Sequence[str], unknown: str) -> list[str]:
    chosen: dict[str, None] = {}
    for pattern in patterns:
        found = fnmatch.filter(names, pattern)
        if not found:
            raise UnknownNameError(f"{unknown} {pattern!r}.{nearest_names(pattern, names)}")
        chosen.update(dict.fromkeys(found))
    return [name for name in names if name in chosen]


def _earlier(path: Path, options: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return what a journal has that need not be measured again."""
    if not path.is_file():
        return {}
    results = read_results(path)
    for run in results.runs:
        for key, value in run["options"].items():
            if options.get(key) != value:
                raise DataError(
                    f"{str(path)!r} was made with {key} = {value!r}, and now it is {options.get(key)!r}. "
                    "Results of both cannot stand in one table: use the same options, or another --output."
                )
    return {key: row for key, row in results.rows.items() if row["status"] == OK}


def _set_aside(path: Path) -> None:
    """Rename earlier results; none are ever lost."""
    if path.is_file():
        numbers = itertools.count(1)
        free = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in numbers)
        path.rename(next(name for name in free if not name.exists()))


def _write(rows: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write the report of accuracy alone; `report` makes one of all results."""
    parts = [Heading(_TITLE, 1), *accuracy_parts(rows)[1:]]
    texts = {folder / "accuracy.md": to_markdown(parts), folder / "accuracy.html": to_html(_TITLE, parts)}
    with atomic_write(*texts) as files:
        for file, text in zip(files, texts.values()):
            file.write(text.encode("utf-8"))
    return list(texts)
