"""A policy as TOML."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

import tomli_w

from mxamp.dtypes import DType
from mxamp.errors import PolicyError, TargetError, nearest_names
from mxamp.ops import FACTS
from mxamp.policy.color import Color
from mxamp.policy.parts import AttributeCondition, OperatorPolicy, UserRule
from mxamp.policy.selector import Selector

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from mxamp.policy.policy import Policy


_KEYS = frozenset(
    {
        "target_dtype",
        "extends",
        "pure",
        "description",
        "green",
        "gray",
        "red",
        "condition",
        "rule",
        "widest_operators",
    }
)


def _operator_toml(entry: OperatorPolicy) -> str | dict[str, str]:
    if entry.accumulation is None and entry.output is None:
        return entry.reason
    detailed = {"reason": entry.reason}
    if entry.accumulation is not None:
        detailed["accumulation"] = str(entry.accumulation)
    if entry.output is not None:
        detailed["output"] = str(entry.output)
    return detailed


def policy_toml(policy: Policy) -> str:
    """Return a policy without a color function as TOML; :func:`policy_fields` reads it back."""
    document: dict[str, Any] = {"target_dtype": str(policy.target_dtype)}
    if policy.is_pure:
        document["pure"] = True
    for color in Color:
        table = {
            name: _operator_toml(entry)
            for name, entry in sorted(policy.operators.items())
            if entry.color is color
        }
        if table:
            document[color.value] = table
    if policy.widest_operators:
        document["widest_operators"] = sorted(policy.widest_operators)
    if policy.conditions:
        document["condition"] = [
            {
                "op": condition.op,
                "attribute": condition.attribute,
                "values": list(condition.values),
                "color": condition.color.value,
                "reason": condition.reason,
            }
            for condition in policy.conditions
        ]
    if policy.rules:
        document["rule"] = [
            {**rule.selector.to_mapping(), "color": rule.color.value, "reason": rule.reason}
            for rule in policy.rules
        ]
    return tomli_w.dumps(document)


def parse_policy(text: str, source: str) -> dict[str, Any]:
    """Return the document that a policy's text is."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"{source} is not valid TOML: {error}.") from None
    except RecursionError:
        raise PolicyError(f"{source} nests tables or lists too deeply to be a policy.") from None
    except ValueError as error:  # a number of thousands of digits
        raise PolicyError(f"{source} holds a value that no policy has: {error}.") from None


def policy_fields(
    document: Mapping[str, Any], source: str, extended: Callable[[DType], Policy]
) -> dict[str, Any]:
    """Return the fields of a policy, of what its text says.

    Parameters
    ----------
    document
        What the text says.
    source
        How messages call it.
    extended
        Returns the built-in policy of a dtype, which the text may extend.

    Raises
    ------
    PolicyError
        When it is no policy; the message says where.
    """
    unknown = sorted(set(document) - _KEYS)
    if unknown:
        raise PolicyError(f"{source} has the unknown key {unknown[0]!r}.{nearest_names(unknown[0], _KEYS)}")
    if "target_dtype" not in document:
        raise PolicyError(f"{source} does not say its target_dtype ('float16' or 'bfloat16').")
    try:
        dtype = DType.parse(document["target_dtype"], emulated=True)
    except TargetError as error:
        raise PolicyError(f"{source}: target_dtype: {error}") from None
    operators: dict[str, OperatorPolicy] = {}
    conditions: tuple[AttributeCondition, ...] = ()
    if "extends" in document:
        if document["extends"] != "default":
            raise PolicyError(f"{source}: extends={document['extends']!r}; only 'default' can be extended.")
        base = extended(dtype)
        operators.update(base.operators)
        conditions = base.conditions
    stated: dict[str, str] = {}
    for color in Color:
        table = document.get(color.value, {})
        if not isinstance(table, dict):
            raise PolicyError(f"{source}: [{color}] must be a table of operator = reason.")
        for op, entry in table.items():
            name = FACTS.canonical(op)
            if name in stated:
                raise PolicyError(
                    f"{source} puts the operator {op!r} in both [{stated[name]}] and [{color}]; "
                    "an operator has one color. Remove it from one of them."
                )
            stated[name] = color.value
            operators[name] = _operator_from_document(entry, color, f"{source}: [{color}] {op}")
    conditions = tuple(c for c in conditions if c.op not in stated) + tuple(
        _condition_from_document(entry, f"{source}: condition {number}")
        for number, entry in enumerate(_list(document, "condition", source))
    )
    rules = tuple(
        _rule_from_document(entry, f"{source}: rule {number}")
        for number, entry in enumerate(_list(document, "rule", source))
    )
    widest = frozenset(FACTS.canonical(str(op)) for op in _list(document, "widest_operators", source))
    pure = document.get("pure", False)
    if not isinstance(pure, bool):
        raise PolicyError(f"{source}: pure must be true or false, not {pure!r}.")
    return {
        "target_dtype": dtype,
        "operators": operators,
        "conditions": conditions,
        "rules": rules,
        "widest_operators": widest,
        "is_pure": pure,
    }


def _list(document: Mapping[str, Any], key: str, source: str) -> Sequence[Any]:
    found = document.get(key, [])
    if not isinstance(found, list):
        raise PolicyError(f"{source}: {key} must be a list, not {found!r}.")
    return found


def _operator_from_document(entry: Any, color: Color, where: str) -> OperatorPolicy:
    if isinstance(entry, str):
        return OperatorPolicy(color, entry)
    if not isinstance(entry, dict) or not set(entry) <= {"reason", "accumulation", "output"}:
        raise PolicyError(f"{where} must be a reason, or a table with reason, accumulation and output.")
    dtypes = {}
    for key in ("accumulation", "output"):
        try:
            dtypes[key] = DType.parse(entry[key]) if key in entry else None
        except TargetError as error:
            raise PolicyError(f"{where}: {key}: {error}") from None
    return OperatorPolicy(color, str(entry.get("reason", "")), dtypes["accumulation"], dtypes["output"])


def _condition_from_document(entry: Any, where: str) -> AttributeCondition:
    if not isinstance(entry, dict) or not {"op", "attribute", "values", "color"} <= set(entry):
        raise PolicyError(f"{where} needs op, attribute, values and color.")
    values = _list(entry, "values", where)
    return AttributeCondition(
        FACTS.canonical(str(entry["op"])),
        str(entry["attribute"]),
        tuple(str(value) for value in values),
        Color.parse(entry["color"]),
        str(entry.get("reason", "the policy says so")),
    )


def _rule_from_document(entry: Any, where: str) -> UserRule:
    if not isinstance(entry, dict) or "color" not in entry:
        raise PolicyError(f"{where} needs a color.")
    selecting = {key: value for key, value in entry.items() if key not in ("color", "reason")}
    try:
        selector = Selector.make(**selecting)
    except TypeError:
        allowed = "names, globs, patterns, operators, attributes"
        raise PolicyError(f"{where}: a rule selects by {allowed}, not by {', '.join(selecting)}.") from None
    return UserRule(selector, Color.parse(entry["color"]), str(entry.get("reason", "the policy says so")))
