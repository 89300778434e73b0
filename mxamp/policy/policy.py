"""The policy: what the numerics allow, as a value.

A :class:`Policy` prints as text, and loads from and saves to TOML. ``docs/policies.md`` describes the format.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Iterable, Mapping, Sequence, TypeVar

from mxamp.dtypes import EMULATED_ONLY, DType
from mxamp.errors import ExportError, MxampError, PolicyError, TargetError, nearest_names
from mxamp.files import atomic_write, existing_file
from mxamp.messages.arguments import path_fault, setting
from mxamp.ops import FACTS
from mxamp.policy.built_in import built_in_document
from mxamp.policy.color import Color
from mxamp.policy.document import parse_policy, policy_fields, policy_toml
from mxamp.policy.parts import AttributeCondition, ColorFunction, OperatorPolicy, UserRule
from mxamp.policy.selector import Selector


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
            given = " ".join(repr(target_dtype).split())  # an array's has many lines
            in_float32 = setting("low_precision", "none")
            raise PolicyError(
                f"target_dtype={given:.60} is not a low precision of MXNet."
                f"{nearest_names(str(target_dtype), ['float16', 'bfloat16'])} "
                "Use 'float16' (GPUs) or 'bfloat16' (CPUs); emulation also knows "
                f"{', '.join(member.label for member in EMULATED_ONLY)}."
                + (f" With {in_float32} all of the model stays float32." if dtype is DType.FLOAT32 else "")
            )
        cached = _DEFAULTS.get(dtype)
        if cached is None:
            named = f"the built-in {dtype} policy"
            cached = cls(**policy_fields(built_in_document(dtype), named, cls.default))
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
        return policy_toml(self)

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
        return cls(**policy_fields(parse_policy(text, source), source, cls.default))

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


_Item = TypeVar("_Item")


def _items(given: Iterable[_Item], label: str, kind: type[_Item]) -> tuple[_Item, ...]:
    """Return what the user gave as a list of ``kind``."""
    whole = isinstance(given, str) or not isinstance(given, Iterable)
    items = () if whole else tuple(given)
    if whole or not all(isinstance(item, kind) for item in items):
        raise PolicyError(f"{label} must be a list of {kind.__name__}, not {given!r}.")
    return items
