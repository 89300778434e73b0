"""Read the gradients at entries of a model: how its outputs answer to a small change of each."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.errors import OperatorError
from mxamp.graph.builder import GraphBuilder
from mxamp.graph.graph import VARIABLE, Entry, Graph, Node
from mxamp.model import Model
from mxamp.ops import FACTS
from mxamp.runtime.device import parse_context
from mxamp.runtime.executor import bind_environment
from mxamp.runtime.mxnet import import_mxnet
from mxamp.runtime.shapes import infer_shapes
from mxamp.runtime.symbol import symbol_from_graph

_AS_IN_INFERENCE: Mapping[str, Mapping[str, str]] = {
    # Gradients come from a training pass, in which these operators do something else.
    "BatchNorm": {"use_global_stats": "True"},
    "Dropout": {"p": "0"},
    "RNN": {"p": "0"},
}

_INFERENCE_OF: Mapping[str, str] = {
    # Their gradients are those of a loss, whatever comes from behind.
    "BlockGrad": "_copy",
    "LinearRegressionOutput": "_copy",
    "MAERegressionOutput": "_copy",
    "MakeLoss": "_copy",
    "make_loss": "_copy",
    "LogisticRegressionOutput": "sigmoid",
    "SVMOutput": "_copy",
}


_ALL_OF_IT = {"axis": "0", "begin": "0", "end": "None"}
"""A slice that leaves nothing out, and whose gradient is in plain order.

Of one in blocks of channels, as a convolution behind it hands back, MXNet 1.9.1's Concat cannot cut parts
that fill no blocks: the process ends with SIGFPE, or an error (measured: 7 and 9, 4 and 4, 20 and 20
channels).
"""


@dataclass(frozen=True)
class Gradients:
    """The gradients of one pass.

    Attributes
    ----------
    entries
        For every entry, in the order in which they were asked for; float32, of the entry's shape.
    parameters
        Name -> gradient, summed over the samples.
    """

    entries: Sequence[NDArray[np.float32]]
    parameters: Mapping[str, NDArray[np.float32]]


class GradientReader:
    """Runs a float32 model forward and backward, as in inference, with fusion off.

    Parameters
    ----------
    model
        The model; not changed.
    entries
        Where gradients are wanted: float32 entries of ``model.graph``.
    parameters
        The names of parameters whose gradients are wanted, too.
    heads
        The entries that gradients are of.
    ctx
        Where to run; the CPU by default.

    Notes
    -----
    Behind every entry a variable of zeros is added to it; the gradient with respect to that variable is the
    entry's. Each pass runs forward anew, since MXNet's backward pass reuses the memory of the forward one.
    """

    def __init__(
        self,
        model: Model,
        entries: Sequence[Entry],
        parameters: Sequence[str],
        heads: Sequence[Entry],
        *,
        ctx: Any = None,
    ) -> None:
        self._ctx = parse_context("cpu" if ctx is None else ctx)
        self._model = model
        self._count = len(heads)
        self._entries, self._parameters = tuple(entries), tuple(parameters)
        self._zeros: list[str] = []
        self._graph = self._with_zeros(heads)
        self._symbol = symbol_from_graph(self._graph)
        arrays = {**model.args, **model.auxs}
        # Copies: oneDNN reorders the weights it is given in place.
        self._arrays = {
            name: arrays[name].copyto(self._ctx)
            for name in [*self._symbol.list_arguments(), *self._symbol.list_auxiliary_states()]
            if name in arrays
        }
        self._shapes: tuple[tuple[int, ...], ...] = ()
        self._executor: Any = None

    def _with_zeros(self, heads: Sequence[Entry]) -> Graph:
        graph, wanted = self._model.graph, frozenset(self._entries)
        builder = GraphBuilder(node.name for node in graph.nodes)
        moved: dict[Entry, Entry] = {}
        plain: dict[Entry, Entry] = {}
        zeros: dict[Entry, str] = {}
        for position, node in enumerate(graph.nodes):
            inputs = tuple(moved[entry] for entry in node.inputs)
            deps = tuple(moved[Entry(dependency)].node for dependency in node.control_deps)
            new = builder.add(_as_in_inference(node._replace(inputs=inputs, control_deps=deps)))
            if FACTS.canonical(node.op) == "Concat":
                name = builder.free_name(f"{node.name}_plain")
                new = builder.add(Node("slice_axis", name, _ALL_OF_IT, (Entry(new),)))
            for output in range(node.num_outputs):
                entry = Entry(position, output)
                moved[entry] = plain[entry] = Entry(new, output)
                if entry in wanted:
                    zeros[entry] = builder.free_name(f"mxamp_zeros_{len(zeros)}")
                    zero = Entry(builder.add(Node(VARIABLE, zeros[entry])))
                    name = builder.free_name(f"{zeros[entry]}_added")
                    moved[entry] = Entry(builder.add(Node("elemwise_add", name, {}, (plain[entry], zero))))
        values = []
        for number, entry in enumerate(self._entries):
            name = builder.free_name(f"mxamp_value_{number}")
            values.append(Entry(builder.add(Node("BlockGrad", name, {}, (plain[entry],)))))
        self._zeros = [zeros[entry] for entry in self._entries]
        return builder.build([*(moved[head] for head in heads), *values], graph.attrs)

    # ------------------------------------------------------------------ running

    def forward(
        self, data: Mapping[str, NDArray[Any]]
    ) -> tuple[list[NDArray[np.float32]], list[NDArray[np.float32]]]:
        """Run forward and return the values of the heads, and of the entries.

        Parameters
        ----------
        data
            Input name -> values.

        Raises
        ------
        OperatorError
            When an operator fails, or has no gradient.
        """
        with _explained():
            self._load(data)
            outputs = [output.asnumpy() for output in self._executor.forward(is_train=True)]
        return outputs[: self._count], outputs[self._count :]

    def heads_with(
        self, data: Mapping[str, NDArray[Any]], parameters: Mapping[str, NDArray[np.float32]]
    ) -> list[NDArray[np.float32]]:
        """Run forward with other values of some parameters, and return the values of the heads.

        Parameters
        ----------
        data
            Input name -> values.
        parameters
            Name -> values for this pass alone; of those whose gradients are wanted.

        Raises
        ------
        OperatorError
            When an operator fails.
        """
        with _explained():
            self._load(data)
            own = {name: self._executor.arg_dict[name].asnumpy() for name in parameters}
            self._store(parameters)
            try:
                outputs = self._executor.forward(is_train=True)[: self._count]
                return [output.asnumpy() for output in outputs]
            finally:
                self._store(own)

    def _store(self, parameters: Mapping[str, NDArray[np.float32]]) -> None:
        mx = import_mxnet()
        for name, values in parameters.items():
            self._executor.arg_dict[name][:] = mx.nd.array(values, ctx=self._ctx)

    def backward(self, cotangents: Sequence[NDArray[np.float32]]) -> Gradients:
        """Run backward from the forward pass before; once for each.

        Parameters
        ----------
        cotangents
            For every head an array of its shape: what its values are weighed with.

        Raises
        ------
        OperatorError
            When an operator fails.
        """
        mx = import_mxnet()
        with _explained():
            given = [mx.nd.array(values, ctx=self._ctx) for values in cotangents]
            shared: dict[tuple[int, ...], Any] = {}
            for output in self._executor.outputs[self._count :]:
                if output.shape not in shared:
                    shared[output.shape] = mx.nd.zeros(output.shape, ctx=self._ctx)
                given.append(shared[output.shape])
            self._executor.backward(given)
            found = self._executor.grad_dict
            return Gradients(
                [found[name].asnumpy() for name in self._zeros],
                {name: found[name].asnumpy() for name in self._parameters if name in found},
            )

    def _load(self, data: Mapping[str, NDArray[Any]]) -> None:
        mx = import_mxnet()
        arguments = self._symbol.list_arguments()
        added = frozenset(self._zeros)
        inputs = [name for name in arguments if name not in self._arrays and name not in added]
        shapes = tuple(data[name].shape for name in inputs)
        if self._executor is None or shapes != self._shapes:
            self._executor = None  # its memory is needed
            stored = {**self._model.arg_params, **self._model.aux_params}
            known = infer_shapes(self._model.graph, {name: data[name].shape for name in inputs}, stored)
            bound = dict(self._arrays)
            for name in inputs:
                bound[name] = mx.nd.zeros(data[name].shape, ctx=self._ctx)
            shared: dict[tuple[int, ...], Any] = {}
            gradients = {}
            for name, entry in zip(self._zeros, self._entries):
                shape = known[entry.node][entry.output]
                if shape is None:
                    raise OperatorError(
                        f"The shape of {self._model.graph.describe(entry)} shows only when the model runs, "
                        "so that no gradient can be read there."
                    )
                if shape not in shared:
                    shared[shape] = mx.nd.zeros(shape, ctx=self._ctx)
                bound[name] = shared[shape]
                gradients[name] = mx.nd.zeros(shape, ctx=self._ctx)
            for name in self._parameters:
                gradients[name] = mx.nd.zeros(bound[name].shape, ctx=self._ctx)
            requests = {name: "write" if name in gradients else "null" for name in arguments}
            with bind_environment(fusion=False):
                self._executor = self._symbol.bind(
                    self._ctx,
                    args={name: bound[name] for name in arguments},
                    args_grad=gradients,
                    grad_req=requests,
                    aux_states={name: bound[name] for name in self._symbol.list_auxiliary_states()},
                )
            self._shapes = shapes
        for name in inputs:
            self._executor.arg_dict[name][:] = mx.nd.array(data[name], ctx=self._ctx)


def _as_in_inference(node: Node) -> Node:
    """Return a node that computes in training what it computes in inference."""
    changed = _AS_IN_INFERENCE.get(node.op)
    if changed is not None:
        return node._replace(attrs={**node.attrs, **changed})
    if node.op == "SoftmaxOutput":
        over_channels = any(
            node.attrs.get(key, "False") in ("True", "1", "true") for key in ("multi_output",)
        )
        attrs = {"axis": "1" if over_channels else "-1"}
        return node._replace(op="softmax", attrs=attrs, inputs=node.inputs[:1])
    op = _INFERENCE_OF.get(node.op)
    return node if op is None else node._replace(op=op, attrs={}, inputs=node.inputs[:1])


@contextmanager
def _explained() -> Iterator[None]:
    """Say of what MXNet cannot compute that it is a gradient."""
    mx = import_mxnet()
    try:
        yield
    except mx.base.MXNetError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = [line for line in lines if "differentiable" in line or line.startswith("MXNetError")]
        why = (said or lines[-1:] or [error])[0]
        raise OperatorError(f"MXNet cannot compute the gradients of this model: {why}") from error
