"""The calls of an operator: those written by hand, and those made up from MXNet's registry."""

from __future__ import annotations

from collections import defaultdict
from typing import Iterator

from mxamp.errors import MxampError
from tests.ops import core_cases, numpy_cases, other_cases
from tests.ops.generated_cases import generated_cases
from tests.ops.operator_cases import Case
from tests.ops.record_checks import Call, possible_call
from tools.registered_operators import registered_operators

__all__ = ["WRITTEN", "all_calls", "generated_calls"]

WRITTEN: dict[str, list[Case]] = defaultdict(list)
for _given in (*core_cases.CASES, *numpy_cases.CASES, *other_cases.CASES):
    WRITTEN[_given.op].append(_given)


def generated_calls(op: str) -> Iterator[Call]:
    """Yield the generated calls that MXNet takes."""
    from mxnet.base import MXNetError

    for given in generated_cases(registered_operators()[op], WRITTEN[op]):
        try:
            call = possible_call(given)
        except (MXNetError, MxampError):  # attributes that do not go together
            continue
        if call is not None:
            yield call


def all_calls(op: str) -> Iterator[Call]:
    """Yield the calls that were written, then the generated ones."""
    yield from map(Call, WRITTEN[op])
    yield from generated_calls(op)
