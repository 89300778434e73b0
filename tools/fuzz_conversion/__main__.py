"""The command line of the tester."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Sequence

__all__ = ["main"]


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.fuzz_conversion",
        description="Convert random models with random options, run them, and compare with FP32, which is "
        "perturbed at the dtype's precision to learn what rounding may do. Exit status 1 when something does "
        "not hold.",
    )
    parser.add_argument("--cases", type=int, metavar="N", help="how many (default: 1000, or as time allows)")
    parser.add_argument("--seconds", type=float, metavar="S", help="stop after so long")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first seed (default: 0)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes at a time (default: 1)")
    parser.add_argument(
        "--findings", type=Path, default=Path("fuzz-findings"), metavar="DIR", help="where shrunk cases go"
    )
    parser.add_argument("--replay", type=Path, metavar="FILE", help="check the case of a file, here")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a campaign, or replay a case."""
    options = _arguments(argv)
    if options.replay is not None:
        return _replay(options.replay)
    from tools.fuzz_conversion.campaign import Campaign

    options.findings.mkdir(parents=True, exist_ok=True)
    cases = options.cases
    if cases is None and options.seconds is None:
        cases = 1000
    campaign = Campaign(
        options.seed,
        cases=cases,
        seconds=options.seconds,
        jobs=options.jobs,
        folder=options.findings,
        say=lambda text: print(text, flush=True),
    )
    campaign.run()
    print("\n".join(campaign.summary.lines()))
    return 1 if campaign.found else 0


def _replay(path: Path) -> int:
    from tools.fuzz_conversion.case import Case
    from tools.fuzz_conversion.checks import check

    case = Case.load(path)
    print(case)
    checked = check(case.model, case.options, seed=case.seed, stage=lambda name: None)
    print(f"{checked.status}: {checked.kind} {checked.text}")
    return 1 if checked.status == "finding" else 0


if __name__ == "__main__":
    sys.exit(main())
