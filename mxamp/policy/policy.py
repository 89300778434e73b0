"""The policy: what the numerics allow, as a value.

A :class:`Policy` prints as text, and loads from and saves to TOML. ``docs/policies.md`` describes the format.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, TypeVar, Union

import tomli_w

from mxamp.dtypes import EMULATED_ONLY, DType
from mxamp.errors import ExportError, MxampError, PolicyError, TargetError, nearest_names
from mxamp.files import atomic_write, existing_file
from mxamp.messages.arguments import path_fault
from mxamp.ops import FACTS
from mxamp.policy.built_in import built_in_document
from mxamp.policy.color import Color
from mxamp.policy.selector import Selector

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "PURE",
    "PURE_REASON",
    "AttributeCondition",
    "ColorFunction",
    "OperatorPolicy",
    "Policy",
    "UserRule",
]

ColorFunction = Callable[[Any], Optional[Union[Color, str]]]
"""``color(node) -> Color | None`` over a :class:`mxamp.policy.view.NodeView`."""


@dataclass(frozen=True)
class OperatorPolicy:
    """What the policy says of one operator.

    Attributes
    ----------
    color
        Its color.
    reason
        Why.
    accumulation
        The dtype of its sums when it computes in low precision; None means the compute dtype.
    output
        The dtype it hands on when it computes in low precision; None means the compute dtype.
    """

    color: Color
    reason: str
    accumulation: DType | None = None
    output: DType | None = None


@dataclass(frozen=True)
class AttributeCondition:
    """An operator's color where an attribute has one of some values.

    Attributes
    ----------
    op
        Canonical operator name.
    attribute
        Attribute name.
    values
        The values, as ``symbol.json`` spells them.
    color, reason
        The color and why.
    """

    op: str
    attribute: str
    values: tuple[str, ...]
    color: Color
    reason: str


@dataclass(frozen=True)
class UserRule:
    """A color for the nodes a selector picks; comes before everything else.

    Attributes
    ----------
    selector
        Which nodes.
    color
        Their color.
    reason
        Why, shown in the report.
    """

    selector: Selector
    color: Color
    reason: str


@dataclass(frozen=True)
class Policy:
    """What may run in low precision, and why.

    Attributes
    ----------
    target_dtype
        ``DType.FLOAT16`` or ``DType.BFLOAT16``; or, for emulation, one of :data:`mxamp.dtypes.EMULATED_ONLY`.
    operators
        Canonical operator name -> what holds for it. An operator in no table is RED.
    conditions
        Attribute values that change an operator's color.
    rules
        The user's rules, in order; the first that matches decides.
    color_function
        The user's function over node views; asked after ``rules``. Not saved to TOML.
    widest_operators
        Operators that run in low precision only where all their data inputs already are.
    is_pure
        Whether everything runs in low precision that can, whatever it does to the numbers: scalars out of
        range, positions and oversized values included. See :meth:`pure`.
    """

    target_dtype: DType
    operators: Mapping[str, OperatorPolicy]
    conditions: tuple[AttributeCondition, ...] = ()
    rules: tuple[UserRule, ...] = ()
    color_function: ColorFunction | None = field(default=None, compare=False)
    widest_operators: frozenset[str] = frozenset()
    is_pure: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.target_dtype, DType) or not isinstance(self.operators, Mapping):
            raise PolicyError(
                "A Policy is made from a DType and a mapping from operators to OperatorPolicy, not from "
                f"{self.target_dtype!r:.80} and {type(self.operators).__name__}. Start from Policy.default."
            )
        if not self.target_dtype.is_low_precision:
            raise PolicyError(
                f"A model cannot be converted to {self.target_dtype}. Use target_dtype='float16' for GPUs "
                "or 'bfloat16' for CPUs."
            )

    @classmethod
    def default(cls, target_dtype: object) -> Policy:
        """Return the built-in policy for a dtype.

        Parameters
        ----------
        target_dtype
            ``"float16"``, ``"bfloat16"``, or whatever :meth:`DType.parse` reads; for emulation also
            ``"tfloat32"``, ``"float8_e4m3fn"`` and ``"float8_e5m2"``.

        Raises
        ------
        PolicyError
            When no model can be converted to that dtype, nor emulated in it.
        """
        try:
            dtype = DType.parse(target_dtype, emulated=True)
        except TargetError:
            dtype = None
        if dtype is None or not dtype.is_low_precision:
            raise PolicyError(
                f"target_dtype={target_dtype!r} is not a low precision of MXNet."
                f"{nearest_names(str(target_dtype), ['float16', 'bfloat16'])} "
                "Use 'float16' (GPUs) or 'bfloat16' (CPUs); emulation also knows "
                f"{', '.join(member.label for member in EMULATED_ONLY)}."
            )
        cached = _DEFAULTS.get(dtype)
        if cached is None:
            cached = _policy_from_document(built_in_document(dtype), f"the built-in {dtype} policy")
            _DEFAULTS[dtype] = cached
        return cached

    @classmethod
    def pure(cls, target_dtype: object) -> Policy:
        """Return the policy under which everything computes in low precision that can.

        It shows which parts of a model need mixed precision at all, and is for emulation; models converted
        with it overflow, lose digits and mistake positions. What stays FP32 is what cannot be low: operators
        that MXNet has in FP32 alone, indices and integers, BatchNorm's parameters, and layers whose
        parameters the dtype cannot hold.

        Parameters
        ----------
        target_dtype
            As for :meth:`default`.

        Raises
        ------
        PolicyError
            As for :meth:`default`.
        """
        default = cls.default(target_dtype)
        operators = {}
        for record in FACTS.records():
            known = default.operators.get(record.name)
            operators[record.name] = OperatorPolicy(
                Color.GREEN, PURE_REASON, known.accumulation if known is not None else None
            )
        return cls(default.target_dtype, operators, is_pure=True)

    # ------------------------------------------------------------------ making variants

    def with_rules(self, rules: Iterable[UserRule]) -> Policy:
        """Return this policy with more user rules after those it has."""
        added = _items(rules, "rules", UserRule)
        return replace(self, rules=self.rules + added)

    def excluding(
        self,
        *,
        names: Sequence[str] = (),
        globs: Sequence[str] = (),
        patterns: Sequence[str] = (),
        operators: Sequence[str] = (),
        reason: str = "excluded by the user",
    ) -> Policy:
        """Return this policy with some nodes kept in FP32.

        Parameters
        ----------
        names
            Exact node names; one that the model does not have is an error when the model is converted.
        globs
            Shell patterns over node names.
        patterns
            Regular expressions, searched in node names.
        operators
            Operator names.
        reason
            Shown in the report.
        """
        selector = Selector.make(names=names, globs=globs, patterns=patterns, operators=operators)
        return self.with_rules([UserRule(selector, Color.RED, reason)])

    def with_color_function(self, function: ColorFunction | None) -> Policy:
        """Return this policy with a color function over node views."""
        if function is not None and not callable(function):
            raise PolicyError(
                f"color must be a function from a NodeView to a Color or None, not {type(function).__name__}."
            )
        return replace(self, color_function=function)

    def with_operators(self, color: Color, operators: Iterable[str], reason: str) -> Policy:
        """Return this policy with some operators in another color, whatever their attributes."""
        color = Color.parse(color)
        names = [FACTS.canonical(op) for op in _items(operators, "operators", str)]
        changed = dict(self.operators)
        for name in names:
            before = changed.get(name)
            changed[name] = OperatorPolicy(color, reason, before.accumulation if before else None)
        kept = tuple(condition for condition in self.conditions if condition.op not in names)
        return replace(self, operators=changed, conditions=kept)

    # ------------------------------------------------------------------ text and TOML

    def to_toml(self) -> str:
        """Return the policy as TOML; :meth:`from_toml` reads it back.

        Raises
        ------
        PolicyError
            When it holds a color function, which no file can.
        """
        if self.color_function is not None:
            raise PolicyError(
                "A policy with a color function cannot be saved: a function is not data. "
                "Save policy.with_color_function(None), and keep the function in your code."
            )
        document: dict[str, Any] = {"target_dtype": str(self.target_dtype)}
        if self.is_pure:
            document["pure"] = True
        for color in Color:
            table = {
                name: _operator_toml(entry)
                for name, entry in sorted(self.operators.items())
                if entry.color is color
            }
            if table:
                document[color.value] = table
        if self.widest_operators:
            document["widest_operators"] = sorted(self.widest_operators)
        if self.conditions:
            document["condition"] = [
                {
                    "op": condition.op,
                    "attribute": condition.attribute,
                    "values": list(condition.values),
                    "color": condition.color.value,
                    "reason": condition.reason,
                }
                for condition in self.conditions
            ]
        if self.rules:
            document["rule"] = [
                {**rule.selector.to_mapping(), "color": rule.color.value, "reason": rule.reason}
                for rule in self.rules
            ]
        return tomli_w.dumps(document)

    def save(self, path: str | Path) -> None:
        """Write the policy to a TOML file.

        Raises
        ------
        ExportError
            When it cannot be written; a file that was there is kept then.
        """
        fault = path_fault(path)
        if fault is not None:
            raise ExportError(f"A policy is saved to a path, and {fault}.")
        text = self.to_toml()
        with atomic_write(Path(path)) as (file,):
            file.write(text.encode("utf-8"))

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read a policy from a TOML file.

        Raises
        ------
        ModelFileNotFoundError
            When there is no such file.
        PolicyError
            When it is not a policy; the message says where.
        """
        if not isinstance(path, (str, os.PathLike)):
            raise PolicyError(f"A policy is read from a path, not from {type(path).__name__}.")
        try:
            text = existing_file(path, "policy file").read_text("utf-8")
        except UnicodeDecodeError:
            raise PolicyError(f"{str(path)!r} is not text, and a policy is a TOML file.") from None
        except OSError as error:
            if isinstance(error, MxampError):
                raise
            raise PolicyError(f"The policy file {str(path)!r} cannot be read: {error.strerror}.") from None
        return cls.from_toml(text, source=str(path))

    @classmethod
    def from_toml(cls, text: str, *, source: str = "the policy") -> Policy:
        """Read a policy from TOML text.

        A file with ``extends = "default"`` holds only what differs from the built-in policy of its
        ``target_dtype``.

        Raises
        ------
        PolicyError
            When the text is not TOML, has an unknown key, or gives one operator two colors.
        """
        if not isinstance(text, str):
            raise PolicyError(f"from_toml reads text, not {type(text).__name__}; for a file use Policy.load.")
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise PolicyError(f"{source} is not valid TOML: {error}.") from None
        except RecursionError:
            raise PolicyError(f"{source} nests tables or lists too deeply to be a policy.") from None
        except ValueError as error:  # a number of thousands of digits
            raise PolicyError(f"{source} holds a value that no policy has: {error}.") from None
        return _policy_from_document(document, source)

    def __str__(self) -> str:
        lines = [f"{'pure ' if self.is_pure else ''}policy for {self.target_dtype}"]
        for color in (Color.GREEN, Color.GRAY, Color.RED):
            names = sorted(name for name, entry in self.operators.items() if entry.color is color)
            lines.append(f"  {color}: {len(names)} operators: {', '.join(names)}")
        if self.widest_operators:
            lines.append(f"  widest: {', '.join(sorted(self.widest_operators))}")
        lines.extend(
            f"  {condition.op} with {condition.attribute} in {', '.join(condition.values)}: "
            f"{condition.color} ({condition.reason})"
            for condition in self.conditions
        )
        lines.extend(f"  {rule.selector}: {rule.color} ({rule.reason})" for rule in self.rules)
        if self.color_function is not None:
            name = getattr(self.color_function, "__name__", repr(self.color_function))
            lines.append(f"  color function: {name}")
        return "\n".join(lines)


PURE = "pure"
"""What :meth:`Policy.pure` is called where a policy is given by a string."""

PURE_REASON = "pure low precision was asked for"

_DEFAULTS: dict[DType, Policy] = {}

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


def _policy_from_document(document: Mapping[str, Any], source: str) -> Policy:
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
        base = Policy.default(dtype)
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
    return Policy(dtype, operators, conditions, rules, None, widest, pure)


_Item = TypeVar("_Item")


def _items(given: Iterable[_Item], label: str, kind: type[_Item]) -> tuple[_Item, ...]:
    """Return what the user gave as a list of ``kind``."""
    whole = isinstance(given, str) or not isinstance(given, Iterable)
    items = () if whole else tuple(given)
    if whole or not all(isinstance(item, kind) for item in items):
        raise PolicyError(f"{label} must be a list of {kind.__name__}, not {given!r}.")
    return items


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
