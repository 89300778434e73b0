"""Mappings: how an MXNet operator is written with ONNX operators, and the table of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Mapping, Sequence, Tuple, Union

from mxamp.errors import OperatorError
from mxamp.onnx.call import Call
from mxamp.onnx.tensor import Tensor
from mxamp.ops import FACTS, Registration
from mxamp.ops.facts_table import CUSTOM, custom_name

OLDEST_OPSET = 13
"""The oldest opset that is written: from it on the axes of Squeeze, Split and ReduceSum are inputs."""

Written = Union[Tensor, Tuple[Tensor, ...]]
"""What a mapping returns: the first output, or the first few."""


@dataclass(frozen=True)
class OnnxMapping:
    """How an operator is written.

    Attributes
    ----------
    write
        Writes one node and returns its outputs, from the first on; those that are missing cannot be read.
    becomes
        What it is written as, for the table in the documentation.
    opset
        The oldest opset that it can be written at.
    """

    write: Callable[[Call], Written]
    becomes: str
    opset: int = OLDEST_OPSET


MAPPINGS: dict[str, OnnxMapping] = {}
"""Canonical name of an MXNet operator -> its mapping."""


def mapping(
    names: str, becomes: str, *, opset: int = OLDEST_OPSET
) -> Callable[[Callable[[Call], Written]], Callable[[Call], Written]]:
    """Enter the decorated function into the table.

    Parameters
    ----------
    names
        MXNet's canonical names of the operators it writes, separated by spaces.
    becomes
        What they are written as.
    opset
        The oldest opset.
    """

    def enter(write: Callable[[Call], Written]) -> Callable[[Call], Written]:
        for name in names.split():
            assert name not in MAPPINGS, name
            MAPPINGS[name] = OnnxMapping(write, becomes, opset)
        return write

    return enter


def mapping_of(op: str, attrs: Mapping[str, str]) -> OnnxMapping | None:
    """Return the mapping of a node's operator; a ``Custom`` node is known by its ``op_type``."""
    if FACTS.canonical(op) == CUSTOM:
        return MAPPINGS.get(custom_name(attrs.get("op_type", "")))
    return MAPPINGS.get(op) or MAPPINGS.get(FACTS.canonical(op))


def register_onnx_mapping(
    name: str,
    write: Callable[[Call], Tensor | Sequence[Tensor]],
    *,
    op_type: str | None = None,
    becomes: str = "registered",
    opset: int = OLDEST_OPSET,
    replace: bool = False,
) -> Registration:
    """Tell the ONNX exporter how to write an operator.

    Parameters
    ----------
    name
        The operator's name in ``symbol.json``; ``"Custom"`` for one written in Python.
    write
        ``write(call)`` adds nodes with ``call.emit("Relu", call.inputs[0], ...)`` and returns the output, or
        a tuple of the outputs. ``call.emit(..., domain="my.domain")`` adds a node of a domain of yours, whose
        kernel the runtime gets from you. See :class:`mxamp.onnx.Call`.
    op_type
        For ``name="Custom"``: the name it was given to ``mx.operator.register``.
    becomes
        What it is written as, in words.
    opset
        The oldest opset it can be written at.
    replace
        Whether a mapping that is there may be replaced.

    Returns
    -------
    Registration
        To be ignored, or to undo what was done: ``with mxamp.register_onnx_mapping(...):``.

    Raises
    ------
    OperatorError
        When there is a mapping already, or an argument is not what it must be.
    """
    if not isinstance(name, str) or not name or not callable(write):
        raise OperatorError(
            "A mapping is a name and a function, such as register_onnx_mapping('my_relu', lambda call: "
            f"call.emit('Relu', call.inputs[0])), not {name!r:.40} and {write!r:.40}."
        )
    if (name == CUSTOM) != (op_type is not None):
        raise OperatorError(
            f"op_type tells Python operators apart, which are all called {CUSTOM!r}: give it with that name, "
            f"and with no other; given were {name!r} and op_type={op_type!r}."
        )
    key = FACTS.canonical(name) if op_type is None else custom_name(op_type)
    if key in MAPPINGS and not replace:
        raise OperatorError(
            f"The operator {key!r} has a mapping already: {MAPPINGS[key].becomes}. Register with "
            "replace=True to put yours in its place."
        )

    def checked(call: Call) -> Written:
        written = write(call)
        outputs = (written,) if isinstance(written, Tensor) else tuple(written)
        if not outputs or not all(isinstance(output, Tensor) for output in outputs):
            raise OperatorError(
                f"The mapping registered for {key!r} returned {written!r:.80} for {call.node}; it must "
                "return the tensor, or the tensors, that call.emit gave it."
            )
        return outputs

    return Registration(key, FACTS.get(key), (MAPPINGS, {key: OnnxMapping(checked, becomes, opset)}))
