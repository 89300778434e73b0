"""A converted model as float32 with a list of what is to stay float32: how OpenVINO is told our decisions."""

from __future__ import annotations

from typing import Mapping, NamedTuple, Sequence

from mxamp.dtypes import DType
from mxamp.graph.builder import GraphBuilder
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.graph.infer import infer_dtypes, variable_dtypes
from mxamp.ops import FACTS
from mxamp.ops.casts import AMP_CAST, AMP_MULTICAST, CAST, CASTABLE
from mxamp.params.parameter import Parameter

_HARD_SIGMOID_DEFAULTS = {"alpha": 0.2, "beta": 0.5}


class Plain(NamedTuple):
    """A float32 model and what was decided of it.

    Attributes
    ----------
    graph, params
        Without casts between float32 and low precision; parameters are float32, rounded as they were.
    low
        The low dtype; None for a model that was float32 before.
    kept
        The names of the model's operators that compute in float32; empty where ``low`` is None.
    marked
        The names of the nodes of ``graph`` that are written for those.
    """

    graph: Graph
    params: Mapping[str, Parameter]
    low: DType | None
    kept: frozenset[str]
    marked: frozenset[str]


def plain_model(graph: Graph, params: Mapping[str, Parameter]) -> Plain:
    """Take the casts out of a converted model, and remember what computed in float32.

    Before:  x -> amp_cast bfloat16 -> Convolution -> amp_cast float32 -> exp
    After:   x -> Convolution -> exp, and exp is kept

    OpenVINO's plugin for CPUs rounds a float32 model by itself where its hint says so. Given the casts it
    would run them: the last layer's result would be rounded, which the hint leaves alone, and what it fuses
    would be interrupted. A hard sigmoid, for which it has no fast kernel, is written out, so that it is fused
    into the layer before. A dense layer that is kept is written as a convolution: of a product with constant
    weights OpenVINO makes a layer of its own, and loses the mark.

    Parameters
    ----------
    graph
        The graph, converted or not.
    params
        Its parameters and auxiliary states.
    """
    dtypes = infer_dtypes(
        graph, variable_dtypes(graph, {name: value.dtype for name, value in params.items()})
    )
    low = {dtype for entries in dtypes for dtype in entries if dtype is not None and dtype.is_low_precision}
    builder = GraphBuilder(node.name for node in graph.nodes)
    became: dict[Entry, Entry] = {}
    kept: set[str] = set()
    marked: set[str] = set()
    for position, node in enumerate(graph.nodes):
        inputs = tuple(became[entry] for entry in node.inputs)
        read = [dtypes[entry.node][entry.output] for entry in node.inputs]
        if node.op == AMP_MULTICAST:
            became.update((Entry(position, number), entry) for number, entry in enumerate(inputs))
            continue
        if node.op == AMP_CAST or (low and _is_between_floats(node, read, dtypes[position][0])):
            became[Entry(position)] = inputs[0]
            continue
        stays = bool(low) and not node.is_variable and set(dtypes[position]) == {DType.FLOAT32}
        before = len(builder)
        if stays and _is_dense_on_rows(node):
            placed = _write_out_dense(builder, node, inputs)
        elif node.op == "hard_sigmoid":
            placed = _write_out_hard_sigmoid(builder, node, inputs[0])
        else:
            placed = builder.add(node._replace(inputs=inputs, attrs=_as_float32(node.attrs)))
        became.update(
            (Entry(position, number), Entry(placed, number)) for number in range(len(dtypes[position]))
        )
        if stays:
            kept.add(node.name)
            marked.update(builder.node(number).name for number in range(before, len(builder)))
    plain = builder.build([became[head] for head in graph.heads], graph.attrs)
    wide = {
        name: value.cast(DType.FLOAT32) if value.dtype.is_low_precision else value
        for name, value in params.items()
    }
    return Plain(plain, wide, min(low, key=str) if low else None, frozenset(kept), frozenset(marked))


def _is_between_floats(node: Node, read: Sequence[DType | None], written: DType | None) -> bool:
    """Whether a ``Cast`` is one between float32 and low precision, as conversions may write them."""
    if node.is_variable or FACTS.canonical(node.op) != CAST:
        return False
    return read[0] in CASTABLE and written in CASTABLE


def _as_float32(attrs: Mapping[str, str]) -> Mapping[str, str]:
    """Return attributes that name no low dtype: of what makes constants, such as ``_zeros``."""
    if attrs.get("dtype") not in ("bfloat16", "float16"):
        return attrs
    return {**attrs, "dtype": "float32"}


def _is_dense_on_rows(node: Node) -> bool:
    """Whether a node is a dense layer that reads one row a sample."""
    if FACTS.canonical(node.op) != "FullyConnected":
        return False
    return node.attrs.get("flatten", "True") in ("True", "1", "true")


def _write_out_dense(builder: GraphBuilder, node: Node, inputs: Sequence[Entry]) -> int:
    """Add the dense layer as a convolution over one place.

    Before:  FullyConnected(x, weight, bias)
    After:   Reshape(Convolution(Reshape(x, n k 1 1), Reshape(weight, m k 1 1), bias), n m)
    """

    def reshaped(entry: Entry, name: str, shape: str) -> Entry:
        return Entry(builder.add(Node("Reshape", name, {"shape": shape}, (entry,))))

    data, weight, *bias = inputs
    rows = reshaped(data, builder.free_name(f"{node.name}_rows"), "(0, -1, 1, 1)")
    kernels = reshaped(weight, builder.free_name(f"{node.name}_kernels"), "(0, 0, 1, 1)")
    attrs = {
        "kernel": "(1, 1)",
        "num_filter": node.attrs["num_hidden"],
        "no_bias": node.attrs.get("no_bias", "False"),
    }
    name = builder.free_name(f"{node.name}_convolution")
    image = Entry(builder.add(Node("Convolution", name, attrs, (rows, kernels, *bias))))
    return reshaped(image, node.name, "(0, -1)").node


def _write_out_hard_sigmoid(builder: GraphBuilder, node: Node, data: Entry) -> int:
    """Add ``clip(x + beta / alpha, 0, 1 / alpha) * alpha``; OpenVINO fuses that into the layer before."""
    alpha, beta = (float(node.attrs.get(key, value)) for key, value in _HARD_SIGMOID_DEFAULTS.items())
    if not alpha:
        return builder.add(node._replace(inputs=(data,)))
    for op, attrs in (
        ("_plus_scalar", {"scalar": repr(beta / alpha)}),
        ("clip", {"a_min": repr(min(0.0, 1 / alpha)), "a_max": repr(max(0.0, 1 / alpha))}),
    ):
        name = builder.free_name(f"{node.name}_{op.strip('_')}")
        data = Entry(builder.add(Node(op, name, attrs, (data,))))
    return builder.add(Node("_mul_scalar", node.name, {"scalar": repr(alpha)}, (data,)))
