"""Targets: what a machine can run in low precision.

The policy says what is allowed; the target says what is possible. A target is a value read from JSON; the
built-in ones are in ``targets/builtin/``.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Mapping, Sequence

from mxamp.dtypes import DType
from mxamp.errors import TargetError, nearest_names
from mxamp.messages.arguments import path_fault
from mxamp.targets.backend import MXNET, Backend
from mxamp.targets.cost import CostModel
from mxamp.targets.document import merged_documents, target_fields
from mxamp.targets.image_layout import WIDEST_BLOCK
from mxamp.targets.parts import FusionPattern, OperatorSupport, Support

_BUILTIN = Path(__file__).parent / "builtin"


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
    measured_on: Mapping[str, object] = field(default_factory=dict)

    @property
    def runs_nothing_low(self) -> bool:
        """Whether no operator at all runs in the low dtype, so that models stay FP32 and are prepared."""
        return self.default is Support.UNSUPPORTED and not self.operators

    def in_float32(self) -> Target:
        """Return the same for models that stay FP32: nothing runs low, and no form of a graph pays for it."""
        cost = None if self.cost is None else replace(self.cost, low_over_float32=_LOW_OVER_FLOAT32)
        return replace(self, operators={}, default=Support.UNSUPPORTED, cost=cost, warning="")

    @property
    def block(self) -> int:
        """The channels in the widest block in which it keeps images; that of its costs, where it has any."""
        return WIDEST_BLOCK if self.cost is None else self.cost.block

    @property
    def backend(self) -> Backend:
        """What runs a model that is converted for it."""
        return Backend(self.runtime, self.device)

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
            _DOCUMENTS[name] = merged_documents(document, cls.builtin_document)
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
    def from_document(cls, document: Mapping[str, object], *, source: str) -> Target:
        """Build a target from its JSON document.

        A document with ``based_on``, the name of a built-in target, holds only what differs from that one:
        its ``operators`` and ``cost`` are merged key by key, everything else is replaced. A ``cost`` with
        ``based_on`` holds what differs from that of another one, its ``kernels`` those that do.

        Raises
        ------
        TargetError
            When a key is missing or a value is not what it must be.
        """
        try:
            lineage: tuple[str, ...] = ()
            if "based_on" in document:
                base = cls.builtin(str(document["based_on"]))
                lineage = (base.name, *base.based_on)
            whole = merged_documents(document, cls.builtin_document)
            return cls(**target_fields(whole), based_on=lineage)
        except KeyError as error:
            raise TargetError(
                f"{source} is not a target: it has no {error.args[0]!r}. `mxamp targets` lists the built-in "
                "ones, and `mxamp probe` writes one."
            ) from None
        except (ValueError, TypeError, AttributeError, re.error) as error:
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
        if self.runs_nothing_low:
            return f"no operator runs in {self.dtype} on {self.name}"
        what = {
            Support.SLOW: f"is slow in {self.dtype} unless fused",
            Support.BIASED: f"does not round to nearest in {self.dtype}",
            Support.WRONG: f"computes wrong results in {self.dtype}",
            Support.CRASHES: f"crashes MXNet in {self.dtype}",
            Support.UNSUPPORTED: f"does not run in {self.dtype}",
            Support.UNMEASURED: f"has not been seen to run in {self.dtype}",
        }[found.support]
        return f"{op} {what} on {self.name}" + (f": {found.note}" if found.note else "")


_LOW_OVER_FLOAT32 = 4.0
"""How many times as long low precision takes where it is not to be used; more than it could ever gain."""

_CACHE: dict[str, Target] = {}

_DOCUMENTS: dict[str, Mapping[str, Any]] = {}
"""The documents of the targets in the cache, each complete: what it is based on is merged in."""

REGISTERED_SUPPORT: dict[tuple[str, str], OperatorSupport] = {}
"""(operator, name of a target) -> what the user registered with it (:mod:`mxamp.decisions.own_operators`)."""
