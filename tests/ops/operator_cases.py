"""One call of an operator, as a value; how it is built, and what MXNet infers for it.

Lists of calls are in ``*_cases.py`` beside this file. Nothing here imports MXNet before it is needed.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, Mapping, NamedTuple, Sequence

from mxamp.dtypes import DType
from mxamp.graph import Entry, Graph, parse_symbol, write_symbol
from tools.registered_operators import operator_handle, registered_operators

__all__ = ["Case", "Inferred", "build", "case", "infer_with_mxnet", "input_names", "refuses"]


class Case(NamedTuple):
    """One way to call an operator.

    ``inputs`` are MXNet's names of its inputs, in order; ``v0 v1`` those of a variadic operator, which have
    none. ``saved`` are attributes that its Python function does not take but a ``symbol.json`` may hold.
    """

    op: str
    inputs: tuple[str, ...]
    attrs: Mapping[str, Any]
    index_dtypes: tuple[DType, ...] = (DType.FLOAT32, DType.INT32)
    saved: Mapping[str, str] = {}

    def __str__(self) -> str:
        attrs = {**self.attrs, **self.saved}
        return "-".join([self.op, *self.inputs, *(f"{key}={value}" for key, value in attrs.items())])


def case(op: str, inputs: str, **attrs: Any) -> Case:
    """Write one call: the canonical name, the names of the inputs with spaces between, the attributes."""
    return Case(op, tuple(inputs.split()), attrs)


def _compose(op: str, attrs: Mapping[str, Any], inputs: Sequence[str]) -> Any:
    """Return the symbol of a call; variables that are not given are made by MXNet."""
    import mxnet as mx
    from mxnet._ctypes.symbol import _symbol_creator

    variables = [mx.sym.var(f"n_{name}") for name in inputs]
    handle = operator_handle(op)
    return _symbol_creator(handle, variables, None, list(attrs), list(attrs.values()), "n", False)


def build(given: Case) -> Graph:
    """Return the graph of one call: variables and the operator, all of whose outputs are heads."""
    from mxnet.base import MXNetError

    operator = registered_operators()[given.op]
    attrs = dict(given.attrs)
    if operator.count_key and "v0" in given.inputs:
        attrs.setdefault(operator.count_key, len(given.inputs))
    try:
        # MXNet makes the variables, so that their names and number are known to be right.
        sym = _compose(given.op, attrs, () if "v0" not in given.inputs else given.inputs)
    except MXNetError as error:
        if "Not enough argument" not in str(error):
            raise
        sym = _compose(given.op, attrs, given.inputs)  # it has no names for its inputs
    graph = parse_symbol(sym.tojson())
    last = len(graph.nodes) - 1
    node = graph.nodes[last]
    heads = tuple(Entry(last, index) for index in range(node.num_outputs))
    nodes = (*graph.nodes[:last], node._replace(attrs={**node.attrs, **given.saved}))
    return dataclasses.replace(graph, nodes=nodes, heads=heads, head_versions=())


def input_names(graph: Graph) -> tuple[str, ...]:
    """Return the names of the variables that the last node reads, in the order of its inputs."""
    return tuple(graph.nodes[entry.node].name for entry in graph.nodes[-1].inputs)


class Inferred(NamedTuple):
    """What MXNet infers: the dtypes of the variables and of the outputs."""

    variables: Mapping[str, DType]
    outputs: tuple[DType, ...]


def infer_with_mxnet(graph: Graph, given: Mapping[str, DType]) -> Inferred | None:
    """Let MXNet infer from the dtypes of some or all variables.

    Returns None where it cannot tell; raises MXNetError where it refuses.
    """
    import mxnet as mx

    # Symbol.infer_type takes no bfloat16; the variables' attribute does.
    nodes = tuple(
        node._replace(attrs={**node.attrs, "__dtype__": str(given[node.name].value)})
        if node.name in given and node.is_variable
        else node
        for node in graph.nodes
    )
    sym = mx.sym.load_json(write_symbol(dataclasses.replace(graph, nodes=nodes)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "Cannot decide type for ..."
        args, outputs, auxs = sym.infer_type()
    if args is None:
        return None
    found = dict(zip(sym.list_arguments(), args))
    found.update(zip(sym.list_auxiliary_states(), auxs))
    return Inferred(
        {name: DType.from_numpy(dtype) for name, dtype in found.items()},
        tuple(DType.from_numpy(dtype) for dtype in outputs),
    )


def refuses(graph: Graph, given: Mapping[str, DType]) -> bool:
    """Whether MXNet rejects these dtypes, cannot complete them, or puts others in their place."""
    from mxnet.base import MXNetError

    try:
        found = infer_with_mxnet(graph, given)
    except MXNetError:
        return True
    return found is None or found.variables != given
