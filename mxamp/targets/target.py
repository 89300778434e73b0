"""Targets: what a machine can run in low precision.

The policy says what is allowed; the target says what is possible. A target is a value read from JSON; the
built-in ones are in ``targets/builtin/``.
"""

from __future__ import annotations

import enum
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Mapping, Sequence

from mxamp.dtypes import DType
from mxamp.errors import TargetError, nearest_names
from mxamp.measuring.machine import NEEDS
from mxamp.messages.arguments import path_fault
from mxamp.ops import FACTS
from mxamp.targets.cost import CostModel

__all__ = ["MXNET", "RUNTIMES", "FusionPattern", "FusionStep", "OperatorSupport", "Support", "Target"]

MXNET = "mxnet"

RUNTIMES: Mapping[str, str] = {
    MXNET: "MXNet",
    "onnxruntime-cuda": "ONNX Runtime's CUDA provider",
    "tensorrt": "TensorRT",
    "openvino": "OpenVINO",
}
"""What a target calls the runtime that it is for -> what people do."""

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
    any_input
        Whether the chain may come in at any of its inputs; otherwise it is the first.
    """

    operators: tuple[str, ...]
    optional: bool = False
    matching: Mapping[str, str] = field(default_factory=dict)
    any_input: bool = False

    def accepts(self, op: str, attrs: Mapping[str, str]) -> bool:
        """Return whether an operator with these attributes may stand there."""
        if op not in self.operators or not self.matching:
            return op in self.operators
        return all(re.fullmatch(pattern, attrs.get(key, "")) for key, pattern in self.matching.items())


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
    convolves_batch_norm
        Whether a BatchNorm that has no layer to be folded into is faster as a depthwise Convolution.
    rewrites
        The preparation passes, by name, whose form of a computation this machine runs faster, in float32 and
        in the low dtype. Such a pass runs for no target that does not name it.
    fusion
        What the backend fuses. Inside a fused chain an operator that is slow or biased alone may run low.
    rounds_once
        All that the backend fuses in low precision, whether the placement needs to know of it or not. Inside
        such a chain values stay in registers and are rounded once, at its end; emulation does as much.
    cost
        What operators and casts cost; None where nothing is known of it.
    warning
        What everybody should know who converts for this target; empty for most.
    needs
        What a machine must have to run as this target says (:data:`mxamp.measuring.machine.NEEDS`). The guard
        measures nowhere else.
    runtime
        What runs the model there: one of :data:`RUNTIMES`.
    based_on
        The names of the targets it was made from by changing some entries, nearest first. What a user
        registered of an operator for one of them holds here too.
    measured_on
        The machine on which ``mxamp probe`` measured it: CPU, instruction sets, threads, versions, date.
    """

    name: str
    dtype: DType
    device: str
    description: str
    operators: Mapping[str, OperatorSupport]
    default: Support
    fusion: tuple[FusionPattern, ...] = ()
    fold_into: tuple[str, ...] = ("Convolution", "Deconvolution", "FullyConnected")
    convolves_batch_norm: bool = False
    rewrites: tuple[str, ...] = ()
    rounds_once: tuple[FusionPattern, ...] = ()
    cost: CostModel | None = None
    warning: str = ""
    needs: tuple[str, ...] = ()
    runtime: str = MXNET
    based_on: tuple[str, ...] = ()
    measured_on: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def for_dtype(cls, dtype: DType) -> Target:
        """Return the built-in target for a dtype: ``cpu-bf16`` for bfloat16, ``cuda-fp16`` for float16.

        MXNet 1.9.1 runs bfloat16 on CPUs alone, and float16 convolutions on GPUs alone. For a format that
        exists in emulation only, the target is a machine that could run everything in it.
        """
        dtype = DType.parse(dtype, emulated=True)
        if dtype.is_emulated_only:
            return cls(f"emulated-{dtype}", dtype, "cpu", "a machine that runs everything", {}, Support.WORKS)
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
            known = cls.builtin_names()
            if name not in known:  # which no path out of the folder is
                raise TargetError(
                    f"There is no target {name!r}.{nearest_names(name, known)} Built in: {', '.join(known)}."
                )
            document = json.loads(path.read_text("utf-8"))
            _CACHE[name] = cls.from_document(document, source=str(path.name))
            based_on = document.get("based_on")
            _DOCUMENTS[name] = _merged(_DOCUMENTS[based_on], document) if based_on else document
        return _CACHE[name]

    @classmethod
    def builtin_document(cls, name: str) -> Mapping[str, Any]:
        """Return the JSON document of a built-in target, complete; not to be changed.

        Raises
        ------
        TargetError
            When there is none of that name.
        """
        cls.builtin(name)
        return _DOCUMENTS[name]

    @staticmethod
    def builtin_names() -> Sequence[str]:
        """Return the names of the built-in targets, sorted."""
        return sorted(found.stem for found in _BUILTIN.glob("*.json"))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Target:
        """Read a target from a JSON file.

        Raises
        ------
        TargetError
            When the file cannot be read, or is no target.
        """
        fault = path_fault(path)
        if fault is not None:
            raise TargetError(f"A target is read from the path of a JSON file, and {fault}.")
        source = os.fspath(path)
        try:
            document = json.loads(Path(source).read_text("utf-8"))
        except OSError as error:
            raise TargetError(f"Cannot read the target {source!r}: {error.strerror or error}.") from None
        except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
            raise TargetError(f"{source} is not a target: it is no JSON ({error}).") from None
        return cls.from_document(document, source=source)

    @classmethod
    def from_document(cls, document: Mapping[str, Any], *, source: str) -> Target:
        """Build a target from its JSON document.

        A document with ``based_on``, the name of a built-in target, holds only what differs from that one:
        its ``operators`` and ``cost`` are merged key by key, everything else is replaced.

        Raises
        ------
        TargetError
            When a key is missing or a value is not what it must be.
        """
        try:
            lineage: tuple[str, ...] = ()
            if "based_on" in document:
                base = cls.builtin(document["based_on"])
                lineage = (base.name, *base.based_on)
                document = _merged(_DOCUMENTS[base.name], document)
            operators = {
                FACTS.canonical(op): OperatorSupport(
                    Support(entry["support"]),
                    _text(entry.get("note", "")),
                    {key: _texts(values) for key, values in entry.get("only", {}).items()},
                    bool(entry.get("volumes", True)),
                )
                for op, entry in document["operators"].items()
            }
            cost = document.get("cost")
            return cls(
                name=_text(document["name"]),
                dtype=DType.parse(document["dtype"], emulated=True),
                device=_device(document["device"]),
                description=_text(document["description"]),
                operators=operators,
                default=Support(document["default"]),
                fusion=_patterns(document.get("fusion", [])),
                fold_into=_texts(document.get("fold_into", cls.fold_into)),
                convolves_batch_norm=_flag(document.get("convolves_batch_norm", False)),
                rewrites=_texts(document.get("rewrites", [])),
                rounds_once=_patterns(document.get("rounds_once", [])),
                cost=None if cost is None else CostModel.from_document(_canonical(cost)),
                warning=_text(document.get("warning", "")),
                needs=_needs(document.get("needs", [])),
                runtime=_runtime(document.get("runtime", MXNET)),
                based_on=lineage,
                measured_on=dict(document.get("measured_on", {})),
            )
        except (KeyError, ValueError, TypeError, AttributeError, re.error) as error:
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
        found = self.operators.get(op) or self._registered(op)
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

    def _registered(self, op: str) -> OperatorSupport | None:
        for name in (self.name, *self.based_on):
            found = REGISTERED_SUPPORT.get((op, name))
            if found is not None:
                return found
        return None

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


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} must be a string")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r:.80} must be true or false")
    return value


def _device(value: Any) -> str:
    if value not in ("cpu", "gpu"):
        raise ValueError(f"the device must be 'cpu' or 'gpu', not {value!r:.80}")
    return str(value)


def _runtime(value: Any) -> str:
    if value not in RUNTIMES:
        raise ValueError(f"the runtime must be one of {', '.join(map(repr, RUNTIMES))}, not {value!r:.80}")
    return str(value)


def _texts(values: Any) -> tuple[str, ...]:
    if isinstance(values, str):
        raise TypeError(f"{values!r:.80} must be a list of strings")
    return tuple(_text(value) for value in values)


def _needs(values: Any) -> tuple[str, ...]:
    needs = _texts(values)
    for need in needs:
        if need not in NEEDS:
            raise ValueError(f"needs holds {need!r:.80}; a machine can be asked for {', '.join(NEEDS)}")
    return needs


def _expression(text: str) -> str:
    re.compile(_text(text))
    return text


def _patterns(document: Sequence[Sequence[Mapping[str, Any]]]) -> tuple[FusionPattern, ...]:
    return tuple(
        FusionPattern(
            tuple(
                FusionStep(
                    _texts(step["operators"]),
                    bool(step.get("optional", False)),
                    {key: _expression(text) for key, text in step.get("matching", {}).items()},
                    bool(step.get("any_input", False)),
                )
                for step in pattern
            )
        )
        for pattern in document
    )


_OWN = frozenset({"warning", "based_on", "measured_on", "fusion_checked"})
"""What is said of one target alone, and not of those based on it."""


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with some entries changed."""
    merged = {key: value for key, value in base.items() if key not in _OWN}
    for key, value in changes.items():
        if key in ("operators", "cost") and isinstance(merged.get(key), Mapping) and value is not None:
            inherited = merged[key] if key == "operators" else _without_overruled_kernels(merged[key], value)
            merged[key] = {**inherited, **value}
            if key == "cost" and "source" in value and "machine" not in value:
                merged[key].pop("machine", None)  # the base's; these numbers are of another
        else:
            merged[key] = value
    return merged


def _without_overruled_kernels(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a ``cost`` without the kernels that a document based on it prices by other numbers."""
    kernels = base.get("kernels")
    if not kernels or "kernels" in changes:
        return base
    if not set(changes) <= {"cast", "operators", "machine", "source"}:
        return {**base, "kernels": {}}  # the rates themselves are others
    changed = {FACTS.canonical(op) for op in changes.get("operators", {})}
    if "cast" in changes:
        changed.add("cast")
    kept = {family: trees for family, trees in kernels.items() if not _belongs(family, changed)}
    return {**base, "kernels": kept}


def _belongs(family: str, operators: set[str]) -> bool:
    """Whether a family of kernels is one of these operators', such as ``Convolution 1x1``."""
    return family in operators or family.split(" ")[0] in operators


def _canonical(cost: Mapping[str, Any]) -> Mapping[str, Any]:
    operators = {FACTS.canonical(op): entries for op, entries in cost.get("operators", {}).items()}
    return {**cost, "operators": operators}


_CACHE: dict[str, Target] = {}

_DOCUMENTS: dict[str, Mapping[str, Any]] = {}
"""The documents of the targets in the cache, each complete: what it is based on is merged in."""

REGISTERED_SUPPORT: dict[tuple[str, str], OperatorSupport] = {}
"""(operator, name of a target) -> what the user registered with it (:mod:`mxamp.decisions.own_operators`)."""
