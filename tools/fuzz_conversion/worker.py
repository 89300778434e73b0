"""A process that checks cases and prints what came of each: it may die of one."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from mxamp.measuring.child import end_with_parent

__all__ = ["main"]


def _say(**found: Any) -> None:
    print(json.dumps(found), flush=True)


def _check(case: Any, *, quietly: bool = False) -> Any:
    from tools.fuzz_conversion.checks import Checked, check

    def stage(name: str) -> None:
        if not quietly:
            _say(seed=case.seed, stage=name)

    try:
        return check(case.model, case.options, seed=case.seed, stage=stage)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}, line {last.lineno}"
        return Checked("finding", f"the tester fails: {type(error).__name__} in {where}", str(error))


def _seeds(first: int, count: int) -> None:
    from tools.fuzz_conversion.case import Case
    from tools.fuzz_conversion.coverage import operators_of
    from tools.fuzz_conversion.options import described

    for seed in range(first, first + count):
        _say(seed=seed, stage="draft")
        case = Case.from_seed(seed)
        checked = _check(case)
        _say(
            seed=seed,
            result=dataclasses.asdict(checked),
            operators=dict(collections.Counter(operators_of(case.model.graph))),
            options=described(case.options),
        )


def _one(path: Path) -> None:
    """Check the case of a file."""
    from tools.fuzz_conversion.case import Case

    _say(seed=0, result=dataclasses.asdict(_check(Case.load(path))))


def _shrink(seed: int, kind: str, path: Path) -> None:
    """Shrink the case of a seed, and write it to a file as often as it got smaller."""
    from tools.fuzz_conversion.case import Case
    from tools.fuzz_conversion.shrink import shrunk

    def still(candidate: Case) -> bool:
        try:
            found = _check(candidate, quietly=True)
        except Exception:
            return False
        if found.status == "finding" and found.kind == kind:
            candidate.save(path)
            return True
        return False

    shrunk(Case.from_seed(seed), still)


def main(argv: list[str]) -> None:
    """Do one job: ``seeds FIRST COUNT``, ``one FILE`` or ``shrink SEED KIND FILE``."""
    end_with_parent()
    # What MXNet prints must not come between the lines.
    lines = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(lines, "w", encoding="utf-8")
    if argv[0] == "seeds":
        _seeds(int(argv[1]), int(argv[2]))
    elif argv[0] == "one":
        _one(Path(argv[1]))
    else:
        _shrink(int(argv[1]), argv[2], Path(argv[3]))


if __name__ == "__main__":
    main(sys.argv[1:])
