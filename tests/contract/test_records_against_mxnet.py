"""Every record is held against MXNet's type inference, in calls made up from MXNet's own registry.

What is checked, for a plain call and for one more for every value of every enumeration and truth value:
outputs for data of every dtype, integer and FP32 indices beside low data, FP32 parameters beside low data,
inputs that share a dtype, inputs that are not read. Calls that are written by hand go through the same checks
in ``tests/ops/test_facts_against_mxnet.py``; where there are some, the calls here differ from them in one
attribute each.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import sys

import pytest

pytest.importorskip("mxnet", reason="the records are compared with MXNet's own type inference")

from mxamp.ops import FACTS
from tests.contract.calls import WRITTEN, generated_calls
from tests.ops.record_checks import check_record
from tools.document_operators import not_exercised
from tools.registered_operators import listed_operators

_CAN_BE_CALLED = 42


def compared_operators() -> list[str]:
    """Return the operators of whose inputs and outputs the records say something."""
    found = []
    for name in listed_operators():
        facts = FACTS.get(name)
        if facts is not None and not facts.never_in_inference and name not in not_exercised():
            found.append(name)
    return found


@pytest.mark.parametrize("op", compared_operators())
def test_record_says_what_type_inference_says(op: str) -> None:
    calls = list(generated_calls(op))
    assert calls or WRITTEN[op], f"MXNet takes no call of {op}: write one in tests/ops/other_cases.py"
    for call in calls:
        try:
            check_record(call)
        except AssertionError as error:
            raise AssertionError(f"{call.given}: {error}") from None


@pytest.mark.parametrize("op", sorted(not_exercised()))
def test_operator_that_is_not_exercised_cannot_be(op: str) -> None:
    facts = FACTS.get(op)
    assert facts is not None
    assert not facts.never_in_inference
    assert not WRITTEN[op]
    # In a process of its own: some crash in type inference.
    process = multiprocessing.get_context("fork").Process(target=_exit_as_callable, args=(op,))
    process.start()
    process.join(60)
    assert process.exitcode != _CAN_BE_CALLED, (
        f"MXNet takes a call of {op}: take it out of not-exercised.toml"
    )


def _exit_as_callable(op: str) -> None:
    faulthandler.disable()  # a crash is what is expected of some
    sys.exit(_CAN_BE_CALLED if any(generated_calls(op)) else 0)
