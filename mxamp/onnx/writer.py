"""The ONNX graph while it is written: nodes one after another, each with the types of its outputs."""

from __future__ import annotations

import contextlib
from typing import Any, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.errors import ExportError
from mxamp.onnx.package import import_onnx
from mxamp.onnx.runtime_gaps import NO_GAPS, RuntimeGaps
from mxamp.onnx.tensor import DTYPE_OF_CODE, ONNX_CODES, Shape, Tensor
from mxamp.params.parameter import Parameter

BATCH = "batch"
"""What the size of the batch is called where it is left open."""

_SMALL = 1 << 16
"""Constants of so many bytes are looked up, so that each is stored once; larger ones are seldom equal."""


class Writer:
    """Collects the nodes, constants and parameters of one ONNX graph.

    Parameters
    ----------
    opset
        The version of ONNX's operators to write for.
    gaps
        What the runtime that is to read the file lacks.

    Notes
    -----
    The shape and dtype of every tensor are inferred as soon as its node is there, by ONNX's own inference
    (`onnx.shape_inference.infer_node_outputs`). So a mapping can ask for the shapes of what it reads, and
    files need no MXNet to tell them. Linear in nodes.
    """

    def __init__(self, opset: int, *, gaps: RuntimeGaps = NO_GAPS) -> None:
        self._onnx = import_onnx()
        self.opset = opset
        self.gaps = gaps
        self.ir_version = int(
            self._onnx.helper.find_min_ir_version_for([self._onnx.helper.make_opsetid("", opset)])
        )
        self._opsets = [self._onnx.helper.make_opsetid("", opset)]
        self.domains: set[str] = set()
        self.nodes: list[Any] = []
        self.parameters: dict[str, Parameter] = {}
        self.constants: dict[str, NDArray[Any]] = {}
        self._known_constants: dict[tuple[Any, ...], Tensor] = {}
        self._types: dict[str, Any] = {}
        self._small: dict[str, Any] = {}
        self._taken: set[str] = set()
        self._taken_nodes: set[str] = set()
        self._renamed: dict[str, str] = {}
        self._computed_by: dict[str, str] = {}

    # ------------------------------------------------------------------ names

    def reserve(self, name: str) -> None:
        """Keep a name for the one who will ask for it."""
        self._taken.add(name)

    def unique(self, name: str, taken: set[str] | None = None) -> str:
        """Return ``name``, or where it is taken the name with a number."""
        taken = self._taken if taken is None else taken
        candidate, number = name, 1
        while candidate in taken:
            candidate = f"{name}_{number}"
            number += 1
        taken.add(candidate)
        return candidate

    def rename(self, tensor: Tensor, name: str) -> None:
        """Give a tensor that a node computes the name it will have in the file."""
        self._renamed[tensor.name] = name

    def attribute(self, names: Iterable[str], node: str) -> None:
        """Note that a node of MXNet's computes tensors, or helps to."""
        self._computed_by.update(dict.fromkeys(names, node))

    def computed_by(self) -> dict[str, str]:
        """Return the node of MXNet's for every tensor, by the names that the file has."""
        return {self._renamed.get(name, name): node for name, node in self._computed_by.items()}

    def is_renamed(self, tensor: Tensor) -> bool:
        """Whether a tensor was given its name already."""
        return tensor.name in self._renamed

    # ------------------------------------------------------------------ values

    def input(self, name: str, dtype: DType, shape: Shape, symbols: Sequence[str] | None = None) -> Tensor:
        """Declare a graph input, and what its open axes are called."""
        self._taken.add(name)
        return self._typed(Tensor(name, dtype, shape), symbols)

    def local(self, name: str, dtype: DType, shape: Shape, symbols: Sequence[str]) -> Tensor:
        """Declare an input of a body."""
        return self._typed(Tensor(self.unique(name), dtype, shape), symbols)

    def parameter(self, name: str, parameter: Parameter) -> Tensor:
        """Declare a parameter; its values are read when the file is written."""
        self._taken.add(name)
        self.parameters[name] = parameter
        return self._typed(Tensor(name, parameter.dtype, tuple(parameter.shape)))

    def constant(self, values: NDArray[Any], name: str = "constant") -> Tensor:
        """Return a constant; equal ones are one."""
        values = np.ascontiguousarray(values).reshape(np.shape(values))
        dtype = DType.from_numpy(values.dtype)
        key: tuple[Any, ...] | None = None
        if values.nbytes <= _SMALL:
            key = (dtype, values.shape, values.tobytes())
            if key in self._known_constants:
                return self._known_constants[key]
        tensor = Tensor(self.unique(name), dtype, values.shape, values)
        self.constants[tensor.name] = values
        self._typed(tensor)
        if key is not None:
            self._known_constants[key] = tensor
            self._small[tensor.name] = self._onnx.helper.make_tensor(
                tensor.name, ONNX_CODES[dtype], values.shape, values.tobytes(), raw=True
            )
        return tensor

    def _typed(self, tensor: Tensor, symbols: Sequence[str] | None = None) -> Tensor:
        assert tensor.shape is not None
        symbols = [BATCH] * len(tensor.shape) if symbols is None else symbols
        sizes = [symbol or None if size is None else size for size, symbol in zip(tensor.shape, symbols)]
        self._types[tensor.name] = self._onnx.helper.make_tensor_type_proto(ONNX_CODES[tensor.dtype], sizes)
        return tensor

    # ------------------------------------------------------------------ nodes

    def emit(
        self,
        op: str,
        inputs: Sequence[Tensor | None],
        outputs: int,
        attributes: Mapping[str, Any],
        *,
        name: str,
        where: str,
        domain: str = "",
    ) -> tuple[Tensor, ...]:
        """Add a node.

        Parameters
        ----------
        op
            ONNX operator.
        inputs
            What it reads; None for an optional input that is left out.
        outputs
            How many outputs it has.
        attributes
            Its attributes; those that are None are left out.
        name
            What to call it and its outputs, until these are renamed.
        where
            What messages call the MXNet node that it is written for.
        domain
            The operator's domain; nothing is known of the outputs of a domain other than ONNX's.

        Raises
        ------
        ExportError
            When the operator does not take such inputs at this opset.
        """
        helper = self._onnx.helper
        given = [tensor for tensor in inputs if tensor is not None]
        # Optional inputs at the end are left out, not empty: some readers do not know the empty name.
        count = max((number for number, tensor in enumerate(inputs, 1) if tensor is not None), default=0)
        names = [self.unique(f"{name}/{op}") for _ in range(outputs)]
        node = helper.make_node(
            op,
            [tensor.name if tensor is not None else "" for tensor in inputs[:count]],
            names,
            name=self.unique(name, self._taken_nodes),
            domain=domain,
            **{key: value for key, value in attributes.items() if value is not None},
        )
        self.nodes.append(node)
        if domain:
            self.domains.add(domain)
            return tuple(Tensor(output, given[0].dtype, None) for output in names)
        try:
            schema = self._onnx.defs.get_schema(op, self.opset, "")
            types = self._onnx.shape_inference.infer_node_outputs(
                schema,
                node,
                {tensor.name: self._types[tensor.name] for tensor in given if tensor.name in self._types},
                {tensor.name: self._small[tensor.name] for tensor in given if tensor.name in self._small},
                opset_imports=self._opsets,
                ir_version=self.ir_version,
            )
        except Exception as error:  # onnx raises several kinds, of its own and of C++
            raise ExportError(
                f"ONNX's {op} of opset {self.opset} does not take what {where} gives it: "
                f"{' '.join(str(error).split())}"
            ) from error
        self._types.update(types)
        return tuple(self._tensor(output) for output in names)

    @contextlib.contextmanager
    def body(self) -> Iterator[list[Any]]:
        """Collect the nodes that are emitted within, which are those of a body."""
        outer, self.nodes = self.nodes, []
        try:
            yield self.nodes
        finally:
            self.nodes = outer

    def body_graph(
        self, name: str, nodes: Sequence[Any], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> Any:
        """Return the ``GraphProto`` of a body; what it reads from outside has its name from there."""
        helper = self._onnx.helper
        infos = [
            [helper.make_value_info(tensor.name, self._types[tensor.name]) for tensor in tensors]
            for tensors in (inputs, outputs)
        ]
        return helper.make_graph(list(nodes), self.unique(name, self._taken_nodes), *infos)

    def emit_control_flow(
        self,
        op: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[tuple[DType, Shape, Sequence[str]]],
        attributes: Mapping[str, Any],
        *,
        name: str,
    ) -> tuple[Tensor, ...]:
        """Add a node that runs bodies, which say what its outputs are."""
        names = [self.unique(f"{name}/{op}") for _ in outputs]
        self.nodes.append(
            self._onnx.helper.make_node(
                op,
                [tensor.name for tensor in inputs],
                names,
                name=self.unique(name, self._taken_nodes),
                **attributes,
            )
        )
        return tuple(
            self._typed(Tensor(output, dtype, shape), symbols)
            for output, (dtype, shape, symbols) in zip(names, outputs)
        )

    def _tensor(self, name: str) -> Tensor:
        found = self._types.get(name)
        if found is None or not found.HasField("tensor_type"):
            raise ExportError(f"ONNX's inference does not tell the type of {name!r}. Please report it.")
        kind = found.tensor_type
        shape: Shape | None = None
        if kind.HasField("shape"):
            shape = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim)
        return Tensor(name, DTYPE_OF_CODE[kind.elem_type], shape)

    def state_shape(self, tensor: Tensor, shape: Shape, symbols: Sequence[str] | None = None) -> Tensor:
        """Return a tensor with what is known of its shape beside what ONNX's inference says.

        An open axis is the batch, or what ``symbols`` says for it: nothing, where that is empty.
        """
        return self._typed(Tensor(tensor.name, tensor.dtype, shape, tensor.value), symbols)

    def symbol(self, tensor: Tensor, axis: int) -> str:
        """Return what an axis is called whose size is known only when the model runs; empty for others."""
        kind = self.type_of(tensor).tensor_type
        return str(kind.shape.dim[axis].dim_param) if axis < len(kind.shape.dim) else ""

    def finished_nodes(self) -> list[Any]:
        """Return the nodes under their final names, without those whose results nobody reads."""
        self._rename_in(self.nodes)
        return self.nodes

    def _rename_in(self, nodes: Sequence[Any]) -> None:
        for node in nodes:
            for names in (node.input, node.output):
                for number, name in enumerate(names):
                    if name in self._renamed:
                        names[number] = self._renamed[name]
            for body in bodies_of(node):
                for value in (*body.input, *body.output):
                    value.name = self._renamed.get(value.name, value.name)
                self._rename_in(body.node)

    def type_of(self, tensor: Tensor) -> Any:
        """Return the ``TypeProto`` of a tensor."""
        if tensor.name in self._types:
            return self._types[tensor.name]
        return self._onnx.helper.make_tensor_type_proto(ONNX_CODES[tensor.dtype], None)


def bodies_of(node: Any) -> list[Any]:
    """Return the ``GraphProto`` s that a node runs."""
    return [attribute.g for attribute in node.attribute if attribute.HasField("g")]
