"""Targets: what a machine can run in low precision.

The policy says what is allowed; the target says what is possible. A target is a value read from JSON; the
built-in ones are in ``targets/builtin/``.
"""

from __future__ import annotations

import enum
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Mapping, Sequence

from mxamp.dtypes import DType
from mxamp.errors import TargetError, nearest_names
from mxamp.ops import FACTS

__all__ = ["FusionPattern", "FusionStep", "OperatorSupport", "Support", "Target"]

_BUILTIN = Path(__file__).parent / "builtin"


class Support(enum.Enum):
    """How well an operator runs in the target's low dtype."""

    WORKS = "works"
    SLOW = "slow"
    BIASED = "biased"
    WRONG = "wrong"
    CRASHES = "crashes"
    UNSUPPORTED = "unsupported"
    UNMEASURED = "unmeasured"

    __hash__ = object.__hash__


@dataclass(frozen=True)
class OperatorSupport:
    """What the target says of one operator.

    Attributes
    ----------
    support
        How well it runs.
    note
        What was seen, in a few words.
    only
        Attribute name -> the values for which ``support`` holds; other values are unsupported. An
        attribute that is absent counts as ``""``.
    volumes
        Whether ``support`` holds for tensors in the blocked layout of three-dimensional convolutions too (see
        :mod:`mxamp.targets.layout`); if not, the operator is unsupported on them.
    """

    support: Support
    note: str = ""
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    volumes: bool = True


@dataclass(frozen=True)
class FusionStep:
    """One link of a chain that the backend runs as one.

    Attributes
    ----------
    operators
        The operators that may stand there.
    optional
        Whether the chain may do without it.
    matching
        Attribute name -> regular expression that the whole value must match (``""`` where it is absent).
    """

    operators: tuple[str, ...]
    optional: bool = False
    matching: Mapping[str, str] = field(default_factory=dict)

    def accepts(self, op: str, attrs: Mapping[str, str]) -> bool:
        """Return whether an operator with these attributes may stand there."""
        return op in self.operators and all(
            re.fullmatch(pattern, attrs.get(key, "")) for key, pattern in self.matching.items()
        )


@dataclass(frozen=True)
class FusionPattern:
    """A chain of operators that the backend runs as one.

    Attributes
    ----------
    steps
        The links, first to last.
    """

    steps: tuple[FusionStep, ...]


@dataclass(frozen=True)
class Target:
    """A machine and a dtype.

    Attributes
    ----------
    name
        ``cpu-bf16``, ``cuda-fp16``.
    dtype
        The low dtype.
    device
        ``"cpu"`` or ``"gpu"``.
    description
        Where the table comes from.
    operators
        Canonical operator name -> support.
    default
        What holds for operators that are not listed.
    fold_into
        The operators that a BatchNorm is worth folding into. A fold may add a bias, and where a bias makes
        the operator slow, the BatchNorm is better left alone.
    fusion
        What the backend fuses. Inside a fused chain an operator that is slow or biased alone may run low.
    """

    name: str
    dtype: DType
    device: str
    description: str
    operators: Mapping[str, OperatorSupport]
    default: Support
    fusion: tuple[FusionPattern, ...] = ()
    fold_into: tuple[str, ...] = ("Convolution", "Deconvolution", "FullyConnected")

    @classmethod
    def for_dtype(cls, dtype: DType) -> Target:
        """Return the built-in target for a dtype: ``cpu-bf16`` for bfloat16, ``cuda-fp16`` for float16.

        MXNet 1.9.1 runs bfloat16 on CPUs alone, and float16 convolutions on GPUs alone.
        """
        return cls.builtin("cpu-bf16" if dtype is DType.BFLOAT16 else "cuda-fp16")

    @classmethod
    def builtin(cls, name: str) -> Target:
        """Return a built-in target by name.

        Raises
        ------
        TargetError
            When there is none of that name.
        """
        if not isinstance(name, str):
            raise TargetError(f"A target is named by a string, not by {type(name).__name__}.")
        if name not in _CACHE:
            path = _BUILTIN / f"{name}.json"
            if not path.is_file():
                known = sorted(found.stem for found in _BUILTIN.glob("*.json"))
                raise TargetError(
                    f"There is no target {name!r}.{nearest_names(name, known)} Built in: {', '.join(known)}."
                )
            _CACHE[name] = cls.from_document(json.loads(path.read_text("utf-8")), source=str(path.name))
        return _CACHE[name]

    @classmethod
    def from_document(cls, document: Mapping[str, Any], *, source: str) -> Target:
        """Build a target from its JSON document.

        Raises
        ------
        TargetError
            When a key is missing or a value is not what it must be.
        """
        try:
            operators = {
                FACTS.canonical(op): OperatorSupport(
                    Support(entry["support"]),
                    entry.get("note", ""),
                    {key: tuple(values) for key, values in entry.get("only", {}).items()},
                    bool(entry.get("volumes", True)),
                )
                for op, entry in document["operators"].items()
            }
            fusion = tuple(
                FusionPattern(
                    tuple(
                        FusionStep(
                            tuple(step["operators"]),
                            bool(step.get("optional", False)),
                            dict(step.get("matching", {})),
                        )
                        for step in pattern
                    )
                )
                for pattern in document.get("fusion", [])
            )
            return cls(
                name=document["name"],
                dtype=DType.parse(document["dtype"]),
                device=document["device"],
                description=document["description"],
                operators=operators,
                default=Support(document["default"]),
                fusion=fusion,
                fold_into=tuple(document.get("fold_into", cls.fold_into)),
            )
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise TargetError(f"{source} is not a target: {error!r}.") from None

    def support(self, op: str, attrs: Mapping[str, str], *, volume: bool = False) -> OperatorSupport:
        """Return how well an operator with these attributes runs in the low dtype.

        Parameters
        ----------
        op
            Its canonical name.
        attrs
            Its attributes.
        volume
            Whether it may read a tensor in the blocked layout of three-dimensional convolutions.
        """
        found = self.operators.get(op)
        if found is None:
            return OperatorSupport(self.default, "not in the target's table")
        if volume and not found.volumes:
            return OperatorSupport(
                Support.UNSUPPORTED, "MXNet raises on what a three-dimensional convolution or pooling wrote"
            )
        for key, values in found.only.items():
            value = attrs.get(key, "")
            if value not in values:
                return OperatorSupport(Support.UNSUPPORTED, f"{key}={value or 'default'} is not supported")
        return found

    def operators_with(self, *kinds: Support) -> Sequence[str]:
        """Return the listed operators of some kinds of support, sorted."""
        return sorted(op for op, entry in self.operators.items() if entry.support in kinds)

    def refusal(self, op: str, attrs: Mapping[str, str], *, volume: bool = False) -> str | None:
        """Return why an operator cannot run low on its own, or None when it can; see :meth:`support`."""
        found = self.support(op, attrs, volume=volume)
        if found.support is Support.WORKS:
            return None
        what = {
            Support.SLOW: f"is slow in {self.dtype} unless fused",
            Support.BIASED: f"does not round to nearest in {self.dtype}",
            Support.WRONG: f"computes wrong results in {self.dtype}",
            Support.CRASHES: f"crashes MXNet in {self.dtype}",
            Support.UNSUPPORTED: f"does not run in {self.dtype}",
            Support.UNMEASURED: f"has not been seen to run in {self.dtype}",
        }[found.support]
        return f"{op} {what} on {self.name}" + (f": {found.note}" if found.note else "")


_CACHE: dict[str, Target] = {}
