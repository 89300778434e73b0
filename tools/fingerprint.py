"""Show that a change of the code changes no conversion: hashes of everything that conversions give.

    python -m tools.fingerprint run -o before.jsonl        (or: make fingerprint ARGS="-o before.jsonl")
    python -m tools.fingerprint run -o after.jsonl
    python -m tools.fingerprint diff before.jsonl after.jsonl

One model of every family of GluonCV's zoo is converted in several ways (:data:`WAYS`), and each conversion
gives one line: the hash of its symbol JSON, of every parameter, and of every part of its report. Nothing is
run. Each model has a process of its own, so that the names that MXNet counts up do not depend on what came
before; weights are random, from a seed.

``diff`` compares the cases of two files, says which parts of a case differ, and exits with 1 where one does,
or is missing, unless it is only to tell. ``make fingerprint-change`` does all that for the short set, in this
tree and in the commit before (or ``BASE=REVISION``), and CI tells what it finds.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Sequence

import numpy as np

from mxamp.convert import convert_model
from mxamp.emulate import emulate
from mxamp.errors import MxampError
from mxamp.graph.symbol_writer import write_symbol
from mxamp.model import Model
from mxamp.params.parameter import Parameter
from mxamp.policy.policy import PURE
from tools.machine import ROOT, prepare_environment

__all__ = ["SHORT", "WAYS", "compare", "fingerprint", "main", "models_by_default"]

Convert = Callable[..., Model]

SHORT = ("mobilenetv3_small", "cifar_resnet20_v1", "ssd_300_mobilenet0.25_voc")
"""What ``--short`` converts."""

_EXCLUDED_EVERY = 7
"""The way ``exclude`` keeps every so many operators in FP32."""

_LENGTH = 16
"""Hexadecimal digits of a hash: 64 bits."""

_ADDRESS = re.compile(r" at 0x[0-9a-f]+(?=>)|(?<=_)[0-9]{12,}(?=\")")
"""Where an initializer lies in memory: GluonCV's detectors have that in attributes."""


def _plainly(convert: Convert, given: Sequence[Any], dtype: str, shapes: Mapping[str, Any]) -> Model:
    return convert(*given, dtype)


def _with_shapes(convert: Convert, given: Sequence[Any], dtype: str, shapes: Mapping[str, Any]) -> Model:
    return convert(*given, dtype, input_shapes=shapes)


def _as_symbol(convert: Convert, given: Sequence[Any], dtype: str, shapes: Mapping[str, Any]) -> Model:
    sym, args, auxs = Model.of(*given)
    return convert(sym, args, auxs, dtype, input_shapes=shapes)


def _emulated(convert: Convert, given: Sequence[Any], dtype: str, shapes: Mapping[str, Any]) -> Model:
    return emulate(*given, dtype, input_shapes=shapes)


def _pure(convert: Convert, given: Sequence[Any], dtype: str, shapes: Mapping[str, Any]) -> Model:
    return emulate(*given, dtype, policy=PURE)


def _excluding(convert: Convert, given: Sequence[Any], dtype: str, shapes: Mapping[str, Any]) -> Model:
    operators = [node.name for node in given[0].nodes if not node.is_variable]
    return convert(*given, dtype, exclude=operators[::_EXCLUDED_EVERY], input_shapes=shapes)


def _low_io(convert: Convert, given: Sequence[Any], dtype: str, shapes: Mapping[str, Any]) -> Model:
    return convert(*given, dtype, io_dtype="low", input_shapes=shapes)


def _unfolded(convert: Convert, given: Sequence[Any], dtype: str, shapes: Mapping[str, Any]) -> Model:
    return convert(*given, dtype, fold_batch_norm=False, input_shapes=shapes)


def _cast_at_run_time(convert: Convert, given: Sequence[Any], dtype: str, shapes: Mapping[str, Any]) -> Model:
    return convert(*given, dtype, cast_optional_params=False)


WAYS: Mapping[str, Callable[[Convert, Sequence[Any], str, Mapping[str, Any]], Model]] = {
    "plain": _plainly,
    "shapes": _with_shapes,
    "symbol": _as_symbol,
    "emulate": _emulated,
    "pure": _pure,
    "exclude": _excluding,
    "io_dtype": _low_io,
    "unfolded": _unfolded,
    "cast at run time": _cast_at_run_time,
}
"""How a model is converted, each to bfloat16 and to float16."""


def models_by_default() -> list[str]:
    """Return one model of every family of the zoo, the first that can be built."""
    from model_zoo_eval.registry import registry

    first: dict[str, str] = {}
    for entry in registry().values():
        if entry.is_runnable:
            first.setdefault(entry.family, entry.name)
    return list(first.values())


def fingerprint(model: Model) -> dict[str, Any]:
    """Return the hashes of a converted model.

    Parameters
    ----------
    model : Model
        The model.

    Returns
    -------
    dict
        ``symbol``: the hash of its symbol JSON. ``parameters``: name -> hash of dtype, shape and bytes.
        ``report``: part of the report -> hash.
    """
    report = model.report
    assert report is not None  # a conversion always has one
    return {
        "symbol": _hash(_ADDRESS.sub("", write_symbol(model.graph)).encode()),
        "parameters": {
            name: _hash_parameter(value)
            for name, value in sorted({**model.arg_params, **model.aux_params}.items())
        },
        "report": {
            part: _hash(json.dumps(value, sort_keys=True).encode())
            for part, value in report.to_mapping().items()
        },
    }


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return one line for each difference between two runs.

    Parameters
    ----------
    before, after : mapping
        Case -> what :func:`fingerprint` said, or ``{"error": ...}``.
    """
    lines = []
    for case in sorted({*before, *after}):
        if case not in after or case not in before:
            lines.append(f"{case}: only {'before' if case in before else 'after'}")
            continue
        differ = []
        for part in sorted({*before[case], *after[case]}):
            old, new = before[case].get(part), after[case].get(part)
            if old == new:
                continue
            if isinstance(old, dict) and isinstance(new, dict):
                names = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                differ.append(f"{part} ({', '.join(names[:3])}{more})")
            else:
                differ.append(f"error ({old or 'none'} -> {new or 'none'})" if part == "error" else part)
        if differ:
            lines.append(f"{case}: {', '.join(differ)}")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.fingerprint",
        description="Hash conversions; compare two runs.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="run | diff")
    run = commands.add_parser("run", help="convert and write the hashes")
    run.add_argument("-o", "--output", type=Path, default=Path("fingerprint.jsonl"), metavar="FILE")
    run.add_argument("--models", nargs="+", metavar="NAME", help="zoo names (default: one of every family)")
    run.add_argument("--short", action="store_true", help=f"only {', '.join(SHORT)}")
    run.add_argument("--jobs", type=int, default=2, metavar="N", help="processes at once (default: 2)")
    diff = commands.add_parser("diff", help="compare two runs")
    diff.add_argument("before", type=Path)
    diff.add_argument("after", type=Path)
    diff.add_argument("--tell", action="store_true", help="exit with 0 though there are differences")
    one = commands.add_parser("model")  # what `run` starts for each model
    one.add_argument("name")
    options = parser.parse_args(arguments)
    if options.command == "diff":
        status = _diff(options.before, options.after)
        return 0 if options.tell else status
    prepare_environment()
    if options.command == "model":
        for line in _lines_of(options.name):
            print(line, flush=True)
        return 0
    names = options.models or (SHORT if options.short else models_by_default())
    return _run(names, options.output, options.jobs)


def _run(names: Sequence[str], output: Path, jobs: int) -> int:
    # Sets of strings have an order that differs from process to process, and so would names.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}

    def convert(name: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "ignore", "-m", "tools.fingerprint", "model", name]
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)

    failed = 0
    lines: list[str] = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for number, (name, process) in enumerate(zip(names, pool.map(convert, names)), 1):
            lines += process.stdout.splitlines()
            if process.returncode:
                failed += 1
                last = (process.stderr.strip().splitlines() or ["no message"])[-1]
                print(f"{name}: exit status {process.returncode}: {last}", file=sys.stderr)
            print(f"[{number}/{len(names)}] {name}", file=sys.stderr, flush=True)
    output.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{len(lines)} conversions of {len(names) - failed} models written to {output}")
    return 1 if failed else 0


def _lines_of(name: str) -> Iterator[str]:
    from model_zoo_eval.build import build_model
    from model_zoo_eval.registry import select_cases

    warnings.simplefilter("ignore")
    case = select_cases([name])[0]
    built = build_model(case, pretrained=False)
    shapes = {key: (1, *shape) for key, shape in built.shapes.items()}
    given = (built.model.graph, built.model.arg_params, built.model.aux_params)
    for dtype in ("bfloat16", "float16"):
        for way, convert in WAYS.items():
            try:
                found = fingerprint(convert(convert_model, given, dtype, shapes))
            except MxampError as error:  # what is refused must be refused alike
                found = {"error": f"{type(error).__name__}: {error}"}
            yield json.dumps({"case": f"{case.key} {dtype} {way}", **found})


def _diff(before: Path, after: Path) -> int:
    old, new = _read(before), _read(after)
    differences = compare(old, new)
    for line in differences:
        print(line)
    print(f"{len({*old, *new})} conversions compared, {len(differences)} differ")
    return 1 if differences or not old else 0


def _read(path: Path) -> dict[str, Any]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row.pop("case"): row for row in rows}


def _hash_parameter(value: Parameter) -> str:
    head = f"{value.dtype} {tuple(value.shape)} ".encode()
    return _hash(head + np.ascontiguousarray(value.numpy()).tobytes())


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_LENGTH]


if __name__ == "__main__":
    sys.exit(main())
