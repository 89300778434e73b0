"""Where MXNet gives away memory whose tensor's shape is still to be read, we say so, and nowhere else."""

from __future__ import annotations

import json
from typing import Any, Callable

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="the defect is MXNet's, and is looked for by execution")

import mxamp
from mxamp.conversion import PREPARATIONS
from mxamp.ops import FACTS, InputRole
from mxamp.runtime.symbol import graph_from_symbol
from mxamp.targets.memory_defect import REFERENCES, Memory, references

S = mx.sym
SHAPE = (1, 16, 32, 32)

Network = Callable[[], Any]


def conv(data: Any, filters: int, name: str, stride: int = 1) -> Any:
    return S.Convolution(
        data, num_filter=filters, kernel=(3, 3), pad=(1, 1), stride=(stride, stride), no_bias=True, name=name
    )


def chain() -> tuple[Any, Any]:
    """Return what a layer writes, and that much later, at half its width: what lies between is larger."""
    first = conv(S.var("data"), 16, "first")
    last = conv(conv(conv(conv(first, 32, "half", 2), 64, "wide"), 32, "narrow"), 16, "last")
    return first, last


def double(data: Any) -> Any:
    return S.tile(data, reps=(1, 1, 2, 2))


def of_operator(op: str) -> Network:
    """Return a network in which an operator reads nothing of what the first layer wrote but its shape."""

    def make() -> Any:
        first, last = chain()
        if REFERENCES[op] == 1:
            like = {"reshape_like": S.reshape_like, "_identity_with_attr_like_rhs": None}[op]
            like = like or S._internal._identity_with_attr_like_rhs
            return like(double(last), first, name="like")
        attrs = {"_npi_full_like": {"fill_value": "1.0"}, "_contrib_arange_like": {"axis": "1"}}.get(op, {})
        saved = json.loads(S.Group([last, S.zeros_like(first, name="like")]).tojson())
        for node in saved["nodes"]:
            if node["name"] == "like":  # some of these have no function in Python
                node.update(op=op, attrs=attrs)
        return S.load_json(json.dumps(saved))

    return make


def outputs(symbol: Any, args: Any, auxs: Any = None) -> list[Any]:
    bound = symbol.bind(mx.cpu(), dict(args), aux_states=auxs, grad_req="null")
    return [output.asnumpy() for output in bound.forward()]


def arrays(symbol: Any) -> dict[str, Any]:
    shapes, _, _ = symbol.infer_shape(data=SHAPE)
    random = np.random.default_rng(0)
    return {
        name: mx.nd.array(random.uniform(-0.1, 0.1, shape))
        for name, shape in zip(symbol.list_arguments(), shapes)
    }


def converted(symbol: Any, args: Any, **options: Any) -> mxamp.Model:
    weights = {name: value for name, value in args.items() if name != "data"}
    return mxamp.convert_model(symbol, weights, {}, "bfloat16", input_shapes={"data": SHAPE}, **options)


@pytest.fixture(autouse=True)
def _fused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "MKLDNN")


@pytest.mark.parametrize("op", sorted(REFERENCES))
def test_mxnet_gives_the_memory_away_and_a_conversion_runs(op: str) -> None:
    symbol = of_operator(op)()
    graph = graph_from_symbol(symbol)
    (use,) = references(graph)
    assert graph.nodes[use.node].op == op
    assert Memory(graph).may_be_lost(graph.nodes[use.node].inputs[use.input], use.node)
    args = arrays(symbol)
    with pytest.raises(mx.MXNetError, match="doesn't match the requested MKLDNN memory desc"):
        outputs(symbol, args)
    layers = ["first", "half", "wide", "narrow", "last"]
    for float32 in ([], layers):
        model = converted(symbol, args, excluded_sym_names=float32)
        found = outputs(model.sym, {**model.args, "data": args["data"]})
        assert all(np.isfinite(values.astype(np.float32)).all() for values in found)
        assert found[-1].shape == symbol.infer_shape(data=SHAPE)[1][-1]


def read_again() -> Any:
    """Return a network in which the tensor itself is read behind that."""
    first, last = chain()
    return S.elemwise_add(S.reshape_like(double(last), first, name="like"), first)


def read_by_alias() -> Any:
    """Return one in which a Reshape of it is read as late, which lies in the same memory."""
    first, last = chain()
    rows = S.Reshape(first, shape=(0, 0, -1))
    return S.reshape_like(
        S.Concat(rows, S.Reshape(double(last), shape=(0, 0, -1)), dim=0),
        S.Concat(S.Reshape(rows, shape=(0, 0, 32, 32)), S.Reshape(rows, shape=(0, 0, 32, 32)), dim=0),
    )


def at_once() -> Any:
    """Return one in which nothing is written in between."""
    first = conv(S.var("data"), 16, "first")
    return S.reshape_like(S.Reshape(S.exp(first), shape=(0, 0, -1)), first)


def of_input() -> Any:
    """Return one that reads the shape of an input, whose memory is the caller's."""
    data = S.var("data")
    first = conv(data, 16, "first")
    return S.reshape_like(double(conv(conv(first, 64, "wide"), 16, "last", 2)), data)


def is_output() -> Any:
    """Return one whose reference is a graph output."""
    first, last = chain()
    return S.Group([S.reshape_like(double(last), first), first])


@pytest.mark.parametrize("network", [read_again, read_by_alias, at_once, of_input, is_output])
def test_what_is_kept_is_left_alone(network: Network) -> None:
    symbol = network()
    graph = graph_from_symbol(symbol)
    memory = Memory(graph)
    for use in references(graph):
        assert not memory.may_be_lost(graph.nodes[use.node].inputs[use.input], use.node)
    args = arrays(symbol)
    expected = outputs(symbol, args)
    model = converted(symbol, args, prepare=[])
    found = outputs(model.sym, {**model.args, "data": args["data"]})
    for one, other in zip(expected, found):
        assert np.allclose(one, other, atol=3e-2 * np.abs(one).max())


def joined_rows() -> Any:
    """Return a network that keeps the first layer's tensor by reading it as rows, in the FP32 model."""
    first, last = chain()
    rows = S.Reshape(first, shape=(0, 0, -1), name="rows")
    joined = S.Concat(rows, S.Reshape(double(last), shape=(0, 0, -1)), dim=1, name="joined")
    back = {"lhs_begin": 2, "lhs_end": 3, "rhs_begin": 2, "rhs_end": 4}
    return S.reshape_like(joined, first, name="like", **back)


@pytest.mark.parametrize("prepare", [PREPARATIONS, ()], ids=["prepared", "unprepared"])
def test_a_cast_takes_away_what_kept_it_and_is_read_instead(prepare: Any) -> None:
    symbol = joined_rows()
    args = arrays(symbol)
    expected = outputs(symbol, args)
    model = converted(symbol, args, excluded_sym_names=["rows", "joined"], prepare=prepare)
    graph = graph_from_symbol(model.sym)
    (use,) = references(graph)
    assert graph.nodes[graph.nodes[use.node].inputs[use.input].node].op == "amp_cast"
    assert not any(node.name.endswith("_kept") for node in graph.nodes)
    found = outputs(model.sym, {**model.args, "data": args["data"]})
    assert np.allclose(expected[0], found[0], atol=3e-2 * np.abs(expected[0]).max())
    (node,) = [node for node in model.report.nodes if node.name == "like"]
    assert "gives away the memory of 'first'" in node.reason


def test_converting_again_changes_nothing() -> None:
    symbol = of_operator("reshape_like")()
    args = arrays(symbol)
    once = converted(symbol, args)
    assert any(node.name.endswith("_kept") for node in graph_from_symbol(once.sym).nodes)
    again = mxamp.convert_model(once.sym, once.args, once.auxs, "bfloat16", input_shapes={"data": SHAPE})
    assert again.sym.tojson(remove_amp_cast=False) == once.sym.tojson(remove_amp_cast=False)


def test_other_backends_keep_it() -> None:
    from mxamp.targets import Backend

    graph = graph_from_symbol(of_operator("reshape_like")())
    assert Backend("mxnet", "cpu").uncounted_references(graph)
    assert not Backend("mxnet", "gpu").uncounted_references(graph)


COUNTED: dict[str, Callable[[Any, Any], Any]] = {
    "broadcast_like": lambda first, last: S.broadcast_like(S.sum(last, axis=(2, 3), keepdims=True), first),
    "slice_like": lambda first, last: S.slice_like(S.tile(last, reps=(1, 1, 4, 4)), first),
    "shape_array": lambda first, last: S.Group([last, S.shape_array(first)]),
    "size_array": lambda first, last: S.Group([last, S.size_array(first)]),
    "_contrib_index_array": lambda first, last: S.Group([last, S.contrib.index_array(first)]),
    "_contrib_BilinearResize2D": lambda first, last: S.contrib.BilinearResize2D(last, first, mode="like"),
    "SoftmaxOutput": lambda first, last: S.SoftmaxOutput(double(last), first),
    "LinearRegressionOutput": lambda first, last: S.LinearRegressionOutput(double(last), first),
    "MAERegressionOutput": lambda first, last: S.MAERegressionOutput(double(last), first),
    "LogisticRegressionOutput": lambda first, last: S.LogisticRegressionOutput(double(last), first),
}
"""Operators that read a shape alone, and of which MXNet knows that they read at all."""

NEVER_A_LAYER = {
    "_contrib_getnnz": "reads sparse arrays",
    "_npi_diag_indices_from": "reads squares",
    "_npi_share_memory": "is for eager arrays",
    "SVMOutput": "its label has one axis",
}


@pytest.mark.parametrize("op", COUNTED)
def test_what_mxnet_counts_is_kept(op: str) -> None:
    symbol = COUNTED[op](*chain())
    assert not references(graph_from_symbol(symbol))
    outputs(symbol, arrays(symbol))


def test_every_operator_that_reads_a_shape_alone_was_tried() -> None:
    unread = {InputRole.LIKE, InputRole.LIKE_SAME}
    found = {record.name for record in FACTS.records() if unread.intersection(record.roles)}
    assert found - {*REFERENCES, *COUNTED, *NEVER_A_LAYER} == set()
