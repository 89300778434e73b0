"""One MXNet node as a mapping sees it: typed inputs, attributes as values, and nodes to emit."""

from __future__ import annotations

from typing import Any, Callable, Mapping, NoReturn, Sequence, Union

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.errors import ExportError
from mxamp.graph.control_flow import body_inputs
from mxamp.graph.graph import Graph, Node
from mxamp.onnx.tensor import ONNX_CODES, OpenSize, Shape, Size, Tensor
from mxamp.onnx.writer import Writer
from mxamp.ops import FACTS
from mxamp.ops.attribute_reader import AttributeReader

LAST = 2**63 - 1
"""The end of a slice that goes on to the end."""

Operand = Union[Tensor, None]

WriteBody = Callable[[Writer, Graph, Mapping[str, Tensor]], "list[Tensor]"]
"""Writes the nodes of a body, whose variables are given by name, and returns what it returns."""


class Call(AttributeReader):
    """A node that is being mapped.

    Parameters
    ----------
    writer
        Where the ONNX nodes go.
    node
        MXNet's node.
    inputs
        What it reads, as ONNX tensors.
    write_body
        Writes the bodies of control flow.

    Attributes
    ----------
    inputs
        What it reads.
    opset
        The version of ONNX's operators that is written.
    gaps
        What the runtime that is to read the file lacks.
    """

    def __init__(
        self, writer: Writer, node: Node, inputs: Sequence[Tensor], write_body: WriteBody | None = None
    ) -> None:
        super().__init__(node.attrs)
        self.node = node
        self.inputs = tuple(inputs)
        self.opset = writer.opset
        self.gaps = writer.gaps
        self._writer = writer
        self._write_body = write_body

    @property
    def data(self) -> Tensor:
        """The first input."""
        return self.inputs[0]

    def refuse(self, why: str) -> NoReturn:
        """Say that this node cannot be written.

        Raises
        ------
        ExportError
            Always.
        """
        raise ExportError(
            f"{str(self.node)[0].upper()}{str(self.node)[1:]} cannot be written as ONNX: {why} A mapping of "
            "your own can be registered: mxamp.register_onnx_mapping."
        )

    def dtype(self, key: str = "dtype", default: DType | None = None) -> DType:
        """Return an attribute that names a dtype; that of the data where it is absent."""
        text = self.text(key)
        if text is None:
            return self.data.dtype if default is None else default
        return DType.parse(text, aliases=False)

    def result_dtype(self) -> DType:
        """Return the dtype of the first output, as MXNet infers it from the data's."""
        data = self.data.dtype
        facts = FACTS.of(self.node.op, self.node.attrs)
        found = None if facts is None else facts.output_dtypes(self.node.attrs, data, 1)[0]
        return data if found is None else found

    # ------------------------------------------------------------------ shapes

    def rank(self, tensor: Tensor) -> int:
        """Return how many axes a tensor has."""
        if tensor.shape is None:
            self.refuse("the shape of what it reads is not known.")
        return len(tensor.shape)

    def axis(self, tensor: Tensor, axis: int) -> int:
        """Return the number of an axis, counted from the front."""
        rank = self.rank(tensor)
        if not -rank <= axis < rank:
            self.refuse(f"it names the axis {axis} of what has {rank} axes.")
        return axis % rank

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        """Return a shape all of whose sizes are known."""
        sizes = tensor.shape
        if sizes is None or None in sizes:
            self.refuse(
                "it needs the shape of what it reads, "
                f"{'of which nothing' if sizes is None else f'{_shown(sizes)}, of which not all'} is known. "
                "Export with fixed shapes, without --dynamic-batch (dynamic_batch=False)."
            )
        return tuple(size for size in sizes if size is not None)

    def size(self, tensor: Tensor, axis: int) -> int:
        """Return the size of one axis."""
        found = None if tensor.shape is None else tensor.shape[self.axis(tensor, axis)]
        return self.shape(tensor)[axis] if found is None else found

    def lengths(self, tensor: Tensor) -> list[Size]:
        """Return the size of every axis, also of those whose size is known only when the model runs."""
        shape = tensor.shape or (None,) * self.rank(tensor)
        return [OpenSize(tensor, (axis,)) if size is None else size for axis, size in enumerate(shape)]

    def are_equal(self, first: Size, second: Size) -> bool:
        """Whether two sizes are certainly the same, whatever the model is fed with."""
        if isinstance(first, int) or isinstance(second, int):
            return first == second
        if first.times != second.times or len(first.axes) != len(second.axes):
            return False
        if first.tensor is second.tensor:
            return sorted(first.axes) == sorted(second.axes)
        symbols = [[self._writer.symbol(one.tensor, axis) for axis in one.axes] for one in (first, second)]
        return all(map(all, symbols)) and sorted(symbols[0]) == sorted(symbols[1])

    # ------------------------------------------------------------------ emitting

    def emit(self, op: str, *inputs: Operand, domain: str = "", **attributes: Any) -> Tensor:
        """Add a node with one output, and return that."""
        return self.emit_several(op, *inputs, outputs=1, domain=domain, **attributes)[0]

    def emit_several(
        self, op: str, *inputs: Operand, outputs: int, domain: str = "", **attributes: Any
    ) -> tuple[Tensor, ...]:
        """Add a node with several outputs, and return them."""
        name = self.node.name
        return self._writer.emit(
            op, inputs, outputs, attributes, name=name, where=str(self.node), domain=domain
        )

    def state_shape(self, tensor: Tensor, shape: Shape) -> Tensor:
        """Return a tensor with a shape that ONNX's inference cannot tell."""
        return self._writer.state_shape(tensor, shape)

    def array(self, values: Any, dtype: DType) -> Tensor:
        """Return a constant tensor."""
        array: NDArray[Any] = np.asarray(values).astype(dtype.numpy)
        return self._writer.constant(array, f"{self.node.name}/constant")

    def indices(self, values: Any) -> Tensor:
        """Return a constant of int64, as shapes, axes and indices are given."""
        return self.array(values, DType.INT64)

    def scalar(self, value: float, like: Tensor) -> Tensor:
        """Return a constant without axes, in the dtype of another tensor."""
        return self.array(value, like.dtype)

    def cast(self, tensor: Tensor, dtype: DType) -> Tensor:
        """Return a tensor in a dtype; itself where it is in it."""
        return tensor if tensor.dtype is dtype else self.emit("Cast", tensor, to=ONNX_CODES[dtype])

    def reshape(self, tensor: Tensor, shape: Sequence[int]) -> Tensor:
        """Reshape: 0 keeps a size, one -1 is what remains; itself where it has the shape."""
        if tensor.shape == tuple(shape) and 0 not in shape:
            return tensor
        return self.emit("Reshape", tensor, self.indices(list(shape)))

    def reshape_to(self, tensor: Tensor, sizes: Sequence[Size]) -> Tensor:
        """Reshape to sizes that may be open, of any tensor; one of them may be -1, which is what remains."""
        target: list[Size] = []
        for axis, size in enumerate(sizes):
            is_kept = axis < self.rank(tensor) and self.are_equal(size, self.lengths(tensor)[axis])
            target.append(0 if is_kept and not isinstance(size, int) else size)
        is_open = [not isinstance(size, int) for size in target]
        if sum(is_open) == 1 and -1 not in target:  # what all others leave
            target[is_open.index(True)] = -1
        numbers = [size for size in target if isinstance(size, int)]
        if len(numbers) == len(target):
            return self.reshape(tensor, numbers)
        result = self.emit("Reshape", tensor, self.size_values(target))
        return self.state_sizes(result, sizes)

    def expand(self, tensor: Tensor, sizes: Sequence[Size]) -> Tensor:
        """Repeat along axes of size 1: to sizes that may be open, of any tensor, and 1 for what stays."""
        expanded = self.emit("Expand", tensor, self.size_values(sizes))
        if expanded.shape is not None:
            return expanded
        own = [1] * (len(sizes) - self.rank(tensor)) + self.lengths(tensor)
        return self.state_sizes(expanded, [one if size == 1 else size for size, one in zip(sizes, own)])

    def size_values(self, sizes: Sequence[Size]) -> Tensor:
        """Return sizes as a tensor of int64."""
        numbers = [size for size in sizes if isinstance(size, int)]
        if len(numbers) == len(sizes):
            return self.indices(numbers)
        parts = []
        for size in sizes:
            if isinstance(size, int):
                parts.append(self.indices([size]))
                continue
            own = self.emit("Gather", self.emit("Shape", size.tensor), self.indices(list(size.axes)), axis=0)
            if len(size.axes) > 1:
                own = self.reduce("ReduceProd", own, [0], keepdims=True)
            parts.append(own if size.times == 1 else self.emit("Mul", own, self.indices([size.times])))
        return self.emit("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]

    def state_sizes(self, tensor: Tensor, sizes: Sequence[Size]) -> Tensor:
        """Return a tensor with sizes that ONNX's inference cannot tell; an open axis has the name it had."""
        return self._writer.state_shape(tensor, _shape(sizes), self._symbols(sizes))

    def _symbols(self, sizes: Sequence[Size | None]) -> list[str]:
        """Return what open axes are called; nothing where it is no axis that they have the size of."""
        return [
            self._writer.symbol(size.tensor, size.axes[0])
            if isinstance(size, OpenSize) and len(size.axes) == size.times == 1
            else ""
            for size in sizes
        ]

    def transpose(self, tensor: Tensor, order: Sequence[int]) -> Tensor:
        """Transpose; itself where the axes stay in order."""
        if list(order) == sorted(order):
            return tensor
        return self.emit("Transpose", tensor, perm=list(order))

    def unsqueeze(self, tensor: Tensor, *axes: int) -> Tensor:
        """Add axes of size 1."""
        return self.emit("Unsqueeze", tensor, self.indices(list(axes)))

    def squeeze(self, tensor: Tensor, *axes: int) -> Tensor:
        """Remove axes of size 1."""
        return self.emit("Squeeze", tensor, self.indices(list(axes))) if axes else tensor

    def slice(
        self,
        tensor: Tensor,
        starts: Sequence[int],
        ends: Sequence[int],
        axes: Sequence[int],
        steps: Sequence[int] | None = None,
    ) -> Tensor:
        """Cut a part out."""
        return self.emit(
            "Slice",
            *(tensor, self.indices(list(starts)), self.indices(list(ends)), self.indices(list(axes))),
            None if steps is None else self.indices(list(steps)),
        )

    def split(self, tensor: Tensor, sizes: Sequence[int], axis: int) -> tuple[Tensor, ...]:
        """Split into parts of given sizes."""
        return self.emit_several("Split", tensor, self.indices(list(sizes)), outputs=len(sizes), axis=axis)

    def reduce(self, op: str, tensor: Tensor, axes: Sequence[int] | None, *, keepdims: bool) -> Tensor:
        """Reduce over axes, or over all of them for None.

        ReduceSum takes its axes as an input from opset 13 on, the others from 18 on.
        """
        keep = int(keepdims)
        if axes is None:
            return self.emit(op, tensor, keepdims=keep)
        if not axes:
            return tensor
        if op == "ReduceSum" or self.opset >= 18:
            return self.emit(op, tensor, self.indices(list(axes)), keepdims=keep)
        return self.emit(op, tensor, axes=list(axes), keepdims=keep)

    def clip(self, tensor: Tensor, low: float, high: float) -> Tensor:
        """Keep values between two numbers."""
        return self.emit("Clip", tensor, self.scalar(low, tensor), self.scalar(high, tensor))

    def bounded_indices(self, indices: Tensor, count: int) -> Tensor:
        """Return indices as int64 that point nowhere but into ``count`` rows, as MXNet clips them."""
        return self.clip(self.cast(indices, DType.INT64), 0, count - 1)

    # ------------------------------------------------------------------ control flow

    def write_here(self, number: int, given: Mapping[int, Tensor]) -> list[Tensor]:
        """Write the nodes of a body among those that are being written, and return what it returns.

        Parameters
        ----------
        number
            Which body.
        given
            Position of an input of the node -> what the body reads in its place; all others are read from
            outside.
        """
        assert self._write_body is not None
        variables = {
            name: given.get(place, self.inputs[place])
            for name, place in body_inputs(self.node, number).items()
        }
        return self._write_body(self._writer, self.node.subgraphs[number], variables)

    def body(
        self, name: str, inputs: Sequence[Tensor], write: Callable[[], Sequence[Tensor]]
    ) -> tuple[Any, list[Tensor]]:
        """Return a body as a ``GraphProto``, and what it returns.

        Parameters
        ----------
        name
            What to call it.
        inputs
            What it is given, made by `local`.
        write
            Writes its nodes and returns what it returns.
        """
        with self._writer.body() as nodes:
            known = {tensor.name for tensor in inputs}
            found = []
            for tensor in write():
                computed = {output for node in nodes for output in node.output} - known
                # ONNX wants an output of a body computed in it, and once.
                found.append(tensor if tensor.name in computed else self.emit("Identity", tensor))
                known.add(found[-1].name)
        return self._writer.body_graph(f"{self.node.name}/{name}", nodes, inputs, found), found

    def local(self, name: str, dtype: DType, sizes: Sequence[Size]) -> Tensor:
        """Return what a body is given."""
        symbols = self._symbols(sizes)
        return self._writer.local(f"{self.node.name}/{name}", dtype, _shape(sizes), symbols)

    def emit_control_flow(
        self,
        op: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[tuple[DType, Sequence[Size | None]]],
        **attributes: Any,
    ) -> tuple[Tensor, ...]:
        """Add a node that runs bodies, with the dtypes and sizes of its outputs; None for any size."""
        types = [(dtype, _shape(sizes), self._symbols(sizes)) for dtype, sizes in outputs]
        return self._writer.emit_control_flow(op, inputs, types, attributes, name=self.node.name)


def _shape(sizes: Sequence[Size | None]) -> Shape:
    return tuple([size if isinstance(size, int) and size >= 0 else None for size in sizes])


def _shown(shape: Shape) -> str:
    return "(" + ", ".join("?" if size is None else str(size) for size in shape) + ")"
