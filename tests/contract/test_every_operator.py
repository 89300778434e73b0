"""Every operator that MXNet 1.9.1 registers has one record, and a color with a reason in both policies.

The operators are read from ``registered-operators.txt`` beside this file, so that all but the first test also
run where MXNet is not installed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Iterator

import pytest

from mxamp.dtypes import DType
from mxamp.ops import ALL_RECORDS, FACTS, InputRole, OperatorFacts, ValueKind
from mxamp.policy.color import Color
from mxamp.policy.entries import entry_for
from mxamp.policy.parts import OperatorPolicy
from mxamp.policy.policy import Policy
from tools.registered_operators import (
    LIST_FILE,
    RegisteredOperator,
    listed_operators,
    listed_version,
    operator_list,
)

OURS = ("_mxamp_", "_backward__mxamp_")
"""What the names of operators that are not MXNet's begin with."""

AT_MOST_TWO_INPUTS = ("Crop",)
"""Operators whose list of inputs is no longer than that."""

OPERATORS = tuple(listed_operators().values())
by_dtype = pytest.mark.parametrize("dtype", ["float16", "bfloat16"])


def record_of(operator: RegisteredOperator) -> OperatorFacts:
    facts = FACTS.get(operator.name)
    assert facts is not None, f"{operator.name} has no record"
    return facts


def colors(dtype: str) -> Iterator[tuple[RegisteredOperator, OperatorFacts, OperatorPolicy | None]]:
    """Yield every operator with its record and what the built-in policy says of it.

    Casts, control flow and operators that run code of the user's are left out: no table decides those.
    """
    policy = Policy.default(dtype)
    for operator in OPERATORS:
        facts = record_of(operator)
        if not facts.apart:
            yield operator, facts, entry_for(policy, operator.name)


def colored(dtype: str) -> Iterator[tuple[RegisteredOperator, OperatorFacts, OperatorPolicy]]:
    """Yield those that have a color; one test is enough to say which have none."""
    return ((operator, facts, entry) for operator, facts, entry in colors(dtype) if entry is not None)


def test_list_is_that_of_the_installed_mxnet() -> None:
    mx = pytest.importorskip("mxnet", reason="the list is compared with MXNet's own registry")
    assert mx.__version__ == listed_version()
    found, listed = set(operator_list().splitlines()), set(LIST_FILE.read_text("utf-8").splitlines())
    if mx.runtime.Features().is_enabled("CUDA"):
        assert listed <= found  # cuDNN adds operators of its own
    else:
        assert sorted(found ^ listed) == [], "python -m tools.registered_operators writes the list anew"


def test_every_name_has_a_record() -> None:
    names = [name for operator in OPERATORS for name in (operator.name, *operator.aliases)]
    assert len(set(names)) == len(names)
    assert [name for name in names if FACTS.get(name) is None] == []


def test_all_names_of_an_operator_lead_to_one_record_which_bears_its_name() -> None:
    wrong = {
        name: (facts.name, operator.name)
        for operator in OPERATORS
        for name in (operator.name, *operator.aliases)
        for facts in [FACTS.get(name)]
        if facts is not None and facts.name != operator.name
    }
    assert wrong == {}


def test_no_name_is_claimed_by_two_records() -> None:
    claims: dict[str, list[str]] = defaultdict(list)
    for facts in ALL_RECORDS:
        for name in (facts.name, *facts.aliases):
            claims[name].append(facts.name)
    for operator in OPERATORS:
        families = [family.pattern for family in FACTS.families if family.record(operator.name) is not None]
        claims[operator.name].extend(families)
    assert {name: owners for name, owners in claims.items() if len(owners) > 1} == {}


def test_every_record_is_of_an_operator_that_mxnet_registers_or_of_ours() -> None:
    registered = {name for operator in OPERATORS for name in (operator.name, *operator.aliases)}
    claimed = {name for facts in ALL_RECORDS for name in (facts.name, *facts.aliases)}
    assert sorted(name for name in claimed - registered if not name.startswith(OURS)) == []


def test_records_give_a_role_to_every_input() -> None:
    """One role an input, and one for all further inputs where there may be any number."""
    without = []
    for operator in OPERATORS:
        facts = record_of(operator)
        if facts.apart or facts.rest is not None or operator.name in AT_MOST_TWO_INPUTS:
            continue
        if operator.variadic or len(facts.roles) < len(operator.inputs):
            without.append((str(operator), len(facts.roles)))
    assert without == []


@by_dtype
def test_every_operator_has_a_color_and_a_reason(dtype: str) -> None:
    assert [operator.name for operator, _, entry in colors(dtype) if entry is None] == []
    assert [operator.name for operator, _, entry in colored(dtype) if not entry.reason.strip()] == []


@by_dtype
def test_policies_color_no_operator_that_is_unknown(dtype: str) -> None:
    known = {operator.name for operator in OPERATORS}
    names = Policy.default(dtype).operators
    assert sorted(name for name in names if name not in known and not name.startswith(OURS)) == []


@by_dtype
def test_operators_that_no_inference_graph_holds_stay_float32(dtype: str) -> None:
    low = [
        operator.name
        for operator, facts, entry in colored(dtype)
        if facts.never_in_inference and entry.color is not Color.RED
    ]
    assert low == []


@by_dtype
def test_reason_speaks_of_the_operator_itself(dtype: str) -> None:
    """A reason names no other operator: it was not copied from there, and still holds when that one changes.

    Operators whose names are English words (``sum``, ``take``) cannot be told from the words.
    """
    identifier = re.compile(r"\w*(?:_\w+|[a-z][A-Z]\w*)")
    names = {name for operator in OPERATORS for name in (operator.name, *operator.aliases)}
    wrong = {
        operator.name: other
        for operator, _, entry in colored(dtype)
        for other in identifier.findall(entry.reason)
        if other in names and other not in (operator.name, *operator.aliases)
    }
    assert wrong == {}


@by_dtype
def test_operators_that_share_a_reason_share_a_color(dtype: str) -> None:
    found: dict[str, set[Color]] = defaultdict(set)
    for _, _, entry in colored(dtype):
        found[entry.reason].add(entry.color)
    assert {reason: several for reason, several in found.items() if len(several) > 1} == {}


@by_dtype
@pytest.mark.parametrize(
    ("claim", "kind"),
    [
        ("moves values and rounds nothing", ValueKind.MOVE),
        ("makes values out of attributes", ValueKind.GENERATE),
        ("its result is 0 or 1", ValueKind.COMPARE),
    ],
)
def test_reason_that_says_how_values_come_about_fits_the_record(
    dtype: str, claim: str, kind: ValueKind
) -> None:
    claiming = [
        (operator, facts) for operator, facts, entry in colored(dtype) if entry.reason.startswith(claim)
    ]
    assert claiming
    assert [operator.name for operator, facts in claiming if facts.kind is not kind] == []


@by_dtype
def test_green_operators_are_made_of_multiply_adds(dtype: str) -> None:
    green = [(operator, facts) for operator, facts, entry in colored(dtype) if entry.color is Color.GREEN]
    assert green
    assert [operator.name for operator, facts in green if not facts.multiplies] == []


@by_dtype
def test_operators_that_cannot_be_low_are_red(dtype: str) -> None:
    """Those that exist in FP32 alone, that refuse the dtype, or whose data are positions."""
    low = DType.parse(dtype)
    wrong = [
        operator.name
        for operator, facts, entry in colored(dtype)
        if entry.color is not Color.RED
        if facts.only_float32 or low in facts.refuses or InputRole.COORDINATE in facts.roles
    ]
    assert wrong == []
