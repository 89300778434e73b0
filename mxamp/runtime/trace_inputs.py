"""What the caller said about the inputs of a block: how they are nested, and their shapes."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Mapping, Sequence, Tuple

from mxamp.errors import DataError, UnknownNameError, nearest_names
from mxamp.messages.counts import count_of
from mxamp.runtime.mxnet import import_mxnet

mx = import_mxnet()

mx = import_mxnet()


Shape = Tuple[int, ...]


Format = Any
"""Gluon's description of a nested structure: 0 for one array, -1 for None, n for a Symbol of n outputs, and a
list of these for a list (``mxnet.gluon.block._flatten``)."""


@dataclass(frozen=True)
class Request:
    """What the caller said about the inputs: how they are nested, and their shapes, in order."""

    nesting: Format = (0,)
    shapes: tuple[Shape, ...] | None = None
    by_name: Mapping[str, Shape] | None = None

    @property
    def count(self) -> int:
        """How many inputs there are."""
        return len(self.by_name) if self.by_name is not None else _leaves(self.nesting)

    @property
    def is_given(self) -> bool:
        """Whether the caller said anything."""
        return self.shapes is not None or self.by_name is not None


def title_of(net: Any) -> str:
    """Name a block for a message: its class, and its name where it has one."""
    name = getattr(net, "name", "")
    return f"The block {name!r} ({type(net).__name__})" if name else f"The block {type(net).__name__}"


def request_of(inputs: Any, input_shapes: Any) -> Request:
    """Return what the caller said; see :func:`mxamp.convert_block`."""
    if inputs is not None and input_shapes is not None:
        raise DataError("Give inputs or input_shapes, not both: the shapes of the inputs are known.")
    if inputs is not None:
        arguments = [inputs] if isinstance(inputs, mx.nd.NDArray) else inputs
        return _nested(arguments, _array_leaf, "inputs", "an mx.nd.NDArray, or a (nested) list of them")
    if isinstance(input_shapes, Mapping):
        if not input_shapes:
            raise DataError("input_shapes is empty; leave it out, or name every input.")
        by_name = {}
        for name, shape in input_shapes.items():
            sizes = _shape_leaf(shape)
            if sizes is None:
                raise DataError(f"The shape of the input {name!r} must be a tuple of sizes, not {shape!r}.")
            by_name[name] = sizes
        return Request(by_name=by_name)
    if input_shapes is not None:
        arguments = [input_shapes] if _shape_leaf(input_shapes) is not None else input_shapes
        return _nested(
            arguments,
            _shape_leaf,
            "input_shapes",
            "a shape such as (1, 3, 224, 224), a list of shapes, or a dict",
        )
    return Request(nesting=[0])


def _array_leaf(value: Any) -> Shape | None:
    return tuple(value.shape) if isinstance(value, mx.nd.NDArray) else None


def _shape_leaf(value: Any) -> Shape | None:
    """Return a sequence of sizes as a shape, and None for anything else."""
    if not isinstance(value, (list, tuple)) or not value:
        return None
    try:
        sizes = tuple([operator.index(size) for size in value])
    except TypeError:
        return None
    return sizes if all(size >= 0 for size in sizes) else None


def _nested(arguments: Any, leaf: Any, what: str, wanted: str) -> Request:
    shapes: list[Shape] = []

    def walk(value: Any) -> Format:
        if value is None:
            return -1
        shape = leaf(value)
        if shape is not None:
            shapes.append(shape)
            return 0
        if not isinstance(value, (list, tuple)):
            raise DataError(f"{what} must be {wanted}; it holds {type(value).__name__}: {value!r:.80}.")
        return [walk(one) for one in value]

    nesting = walk(arguments)
    if not shapes:
        raise DataError(f"{what} must be {wanted}; it holds none.")
    return Request(nesting=nesting, shapes=tuple(shapes))


def _leaves(nesting: Format) -> int:
    """Return how many arrays a nested structure holds."""
    if isinstance(nesting, int):
        return int(nesting == 0)
    return sum(_leaves(one) for one in nesting)


def named_shapes(net: Any, names: Sequence[str], request: Request) -> Mapping[str, Shape] | None:
    """Return input name -> shape, checked against the inputs the block takes."""
    listed = ", ".join(names)
    if request.by_name is not None:
        for name in request.by_name:
            if name not in names:
                raise UnknownNameError(
                    f"input_shapes names {name!r}, which is no input of the block."
                    f"{nearest_names(name, names)} The inputs are: {listed}."
                )
        return request.by_name
    if request.shapes is None:
        return None
    if len(request.shapes) != len(names):
        raise DataError(
            f"{title_of(net)} takes {count_of(len(names), 'input')} ({listed}), but {len(request.shapes)} "
            f"{'was' if len(request.shapes) == 1 else 'were'} given."
        )
    return dict(zip(names, request.shapes))
