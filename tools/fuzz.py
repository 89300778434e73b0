"""Fuzz the readers: ``python -m tools.fuzz symbol --runs 1000000``.

Needs atheris (``pip install -e '.[fuzz]'``), which exists for Linux and macOS. What fails is saved in the
folder ``--artifacts``; make it a file in tests/regression/hostile/, which the tests replay without atheris.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from typing import Sequence

__all__ = ["main"]

SECONDS = 2
"""A run longer than this is a hang."""

MEGABYTES = 500
"""A process larger than this has read something absurd."""


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Feed damaged files to mxamp's readers. An exception that is not mxamp's, a run of more "
        f"than {SECONDS} seconds and more than {MEGABYTES} MB of memory are failures."
    )
    parser.add_argument("target", choices=("symbol", "params", "convert"), help="what reads the files")
    parser.add_argument(
        "--runs", type=int, default=1_000_000, metavar="N", help="how often (default: a million)"
    )
    parser.add_argument("--corpus", type=Path, metavar="DIR", help="keep what reached new code here")
    parser.add_argument("--artifacts", type=Path, default=Path(), metavar="DIR", help="save failures here")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the random numbers (default: 1)")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Fuzz until the runs are done or something fails."""
    options = _arguments(argv)
    try:
        import atheris
    except ImportError:
        print(
            "The fuzzer needs atheris, which is not installed here. Install it with pip install -e '.[fuzz]' "
            "on Linux or macOS, with a Python that it has a wheel for; the tests in tests/regression replay "
            "what it found without it.",
            file=sys.stderr,
        )
        return 1
    with atheris.instrument_imports(include=["mxamp"]):
        from tools.fuzz_targets import TARGETS
    target = TARGETS[options.target]

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        rng = random.Random(seed)
        changed = target.mutate(data, rng) if rng.random() < 0.85 else atheris.Mutate(data, max_size)
        return bytes(changed[:max_size])

    options.artifacts.mkdir(parents=True, exist_ok=True)
    corpus = options.corpus or options.artifacts / f"corpus-{options.target}"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    atheris.Setup(
        [
            sys.argv[0],
            f"-runs={options.runs}",
            f"-timeout={SECONDS}",
            f"-rss_limit_mb={MEGABYTES}",
            f"-seed={options.seed}",
            f"-artifact_prefix={options.artifacts}/",
            "-max_len=16384",
            "-report_slow_units=1",
            str(corpus),
        ],
        target.run,
        custom_mutator=mutate,
    )
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
