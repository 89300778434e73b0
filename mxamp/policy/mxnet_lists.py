"""MXNet's keyword lists (``mx.contrib.amp``) turned into a policy.

The meanings are those of ``amp.convert_symbol`` in MXNet 1.9.1: a list that is given *replaces* the
built-in list of that kind, so an operator that was in the built-in list and is not in the given one
becomes neutral (GRAY). Two differences, both on the safe side: operators outside MXNet's own lists are
allowed, and what mxamp knows to be wrong whatever a list says (index and coordinate arithmetic, parameters
and scalars out of range, what the target cannot run) stays FP32 even when it is neutral here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Collection, Mapping, Sequence, Tuple

from mxamp.errors import PolicyError, nearest_names
from mxamp.messages.arguments import items
from mxamp.ops import FACTS
from mxamp.policy.color import Color
from mxamp.policy.entries import REGISTERED_COLORS, all_entries
from mxamp.policy.parts import AttributeCondition, OperatorPolicy
from mxamp.policy.policy import Policy

ConditionalOperators = Sequence[Tuple[str, str, Sequence[str]]]


def apply_mxnet_lists(
    policy: Policy,
    *,
    target_dtype_ops: Sequence[str] | None = None,
    fp32_ops: Sequence[str] | None = None,
    widest_dtype_ops: Sequence[str] | None = None,
    conditional_fp32_ops: ConditionalOperators | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    known_operators: Collection[str] = (),
) -> Policy:
    """Return ``policy`` changed by MXNet's lists; a list that is None leaves its part alone.

    Parameters
    ----------
    policy
        Where to start.
    target_dtype_ops
        The operators that run in the target dtype: these and no others become GREEN.
    fp32_ops
        The operators that run in FP32: these and no others become RED.
    widest_dtype_ops
        Operators that run in the widest dtype among their inputs: never cast down for.
    conditional_fp32_ops
        ``(operator, attribute, values)``: FP32 where the attribute has one of the values.
    excluded_sym_names
        Node names that stay FP32.
    known_operators
        Operators of the model, known in addition to those with facts.

    Raises
    ------
    PolicyError
        When an operator is in two lists, an operator does not exist, or a list is not a list.
    """
    given = (target_dtype_ops, fp32_ops, widest_dtype_ops, conditional_fp32_ops, excluded_sym_names)
    if all(names is None for names in given) and not REGISTERED_COLORS:
        return policy
    conditional_fp32_ops = _conditions(conditional_fp32_ops)
    lists = {
        "target_dtype_ops": _names(target_dtype_ops, "target_dtype_ops"),
        "fp32_ops": _names(fp32_ops, "fp32_ops"),
        "widest_dtype_ops": _names(widest_dtype_ops, "widest_dtype_ops"),
        "conditional_fp32_ops": None
        if conditional_fp32_ops is None
        else [FACTS.canonical(op) for op, _, _ in conditional_fp32_ops],
    }
    _check_disjoint(lists)
    _check_known(lists, known_operators)

    operators = dict(all_entries(policy))
    if target_dtype_ops is not None:
        _replace_color(operators, Color.GREEN, lists["target_dtype_ops"], "target_dtype_ops")
    if fp32_ops is not None:
        _replace_color(operators, Color.RED, lists["fp32_ops"], "fp32_ops")
    named = {name for names in lists.values() if names for name in names}
    # A list decides over an operator whole, so the policy's own exceptions for it no longer hold.
    conditions = tuple(condition for condition in policy.conditions if condition.op not in named)
    if conditional_fp32_ops is not None:
        conditions = tuple(c for c in conditions if c.color is not Color.RED) + tuple(
            AttributeCondition(
                FACTS.canonical(op),
                attribute,
                tuple(str(value) for value in values),
                Color.RED,
                f"conditional_fp32_ops lists {op} with {attribute} in {', '.join(map(str, values))}",
            )
            for op, attribute, values in conditional_fp32_ops
        )
    widest = policy.widest_operators
    if widest_dtype_ops is not None:
        widest = frozenset(lists["widest_dtype_ops"] or ())
        for name in widest:
            operators[name] = OperatorPolicy(Color.GRAY, "listed in widest_dtype_ops")
    policy = replace(policy, operators=operators, conditions=conditions, widest_operators=widest)
    excluded = _names(excluded_sym_names, "excluded_sym_names")
    return policy.excluding(names=excluded, reason="listed in excluded_sym_names") if excluded else policy


def _names(given: Sequence[str] | None, label: str) -> list[str] | None:
    if given is None:
        return None
    names = items(given)
    if names is None or not all(isinstance(name, str) for name in names):
        raise PolicyError(f"{label} must be a list of strings, not {given!r}.")
    return names if label == "excluded_sym_names" else [FACTS.canonical(name) for name in names]


def _conditions(given: ConditionalOperators | None) -> ConditionalOperators | None:
    if given is None:
        return None
    conditions = items(given)
    if conditions is None:
        raise PolicyError(f"conditional_fp32_ops must be a list, not {given!r}.")
    for item in conditions:
        well_formed = (
            isinstance(item, (tuple, list))
            and len(item) == 3
            and isinstance(item[0], str)
            and isinstance(item[1], str)
            and isinstance(item[2], (tuple, list))
        )
        if not well_formed:
            raise PolicyError(
                "conditional_fp32_ops must hold (operator, attribute, list of values), for example "
                f"('Activation', 'act_type', ['softrelu']), not {item!r}."
            )
    return conditions


def _check_disjoint(lists: Mapping[str, list[str] | None]) -> None:
    owner: dict[str, str] = {}
    for label, names in lists.items():
        for name in dict.fromkeys(names or ()):
            if name in owner:
                raise PolicyError(
                    f"The operator {name!r} is in two lists, {owner[name]} and {label}; it can be in one. "
                    "Remove it from the other."
                )
            owner[name] = label


def _check_known(lists: Mapping[str, list[str] | None], known_operators: Collection[str]) -> None:
    for label, names in lists.items():
        for name in names or ():
            if FACTS.get(name) is None and name not in known_operators:
                raise PolicyError(
                    f"{label} names the operator {name!r}, which neither the model nor mxamp's tables have."
                    f"{nearest_names(name, FACTS.names())}"
                )


def _replace_color(
    operators: dict[str, OperatorPolicy], color: Color, names: list[str] | None, label: str
) -> None:
    for name, entry in list(operators.items()):
        if entry.color is color:
            reason = f"neutral, because {label} replaces the built-in list and does not hold it"
            operators[name] = OperatorPolicy(Color.GRAY, reason, entry.accumulation)
    for name in names or ():
        before: Any = operators.get(name)
        operators[name] = OperatorPolicy(color, f"listed in {label}", before.accumulation if before else None)
