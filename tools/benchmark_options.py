"""The options that all benchmarks have, and the file they write."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Mapping

__all__ = ["add_benchmark_options", "write_measurements"]


def add_benchmark_options(
    parser: argparse.ArgumentParser, *, rounds: int, round_means: str, seed_of: str
) -> None:
    """Add ``--rounds``, ``--seed`` and ``--json``.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        The parser of the benchmark.
    rounds : int
        The default number of rounds.
    round_means : str
        What there are so many of, for the help.
    seed_of : str
        What is seeded, for the help.
    """
    parser.add_argument(
        "--rounds", type=_positive, default=rounds, metavar="N", help=f"{round_means} (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help=f"seed of {seed_of} (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured to a file")


def write_measurements(path: Path | None, document: Mapping[str, Any]) -> None:
    """Write what was measured as JSON, where a file was asked for, and say so.

    Parameters
    ----------
    path : pathlib.Path or None
        The file; None writes nothing.
    document : mapping
        What to write.
    """
    if path is not None:
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        print(f"\nWritten to {path}")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
