"""The cast operators' type rules, against MXNet's."""

from __future__ import annotations

import itertools
import warnings
from typing import Any, Mapping

import pytest

from mxamp.dtypes import DType
from mxamp.errors import OperatorError
from mxamp.graph import Entry, Graph, Node, write_symbol
from mxamp.graph.infer import infer_dtypes
from mxamp.ops.casts import AMP_CAST, AMP_MULTICAST, CASTABLE, cast_target, multicast_dtypes

ALL = tuple(DType)
AMP_CAST_TARGETS = tuple(dtype for dtype in ALL if dtype is not DType.BOOL)
F16, BF16, F32, F64, I32 = DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64, DType.INT32


@pytest.fixture(scope="module")
def mx() -> Any:
    return pytest.importorskip("mxnet", reason="the rules are compared with MXNet's own type inference")


def one_operator(op: str, attrs: Mapping[str, str], count: int) -> Graph:
    """Return a graph of one operator that reads ``count`` variables and has as many outputs."""
    variables = tuple(Node("null", f"v{number}") for number in range(count))
    inputs = tuple(Entry(number) for number in range(count))
    node = Node(op, "n", attrs, inputs, num_outputs=count)
    return Graph((*variables, node), tuple(Entry(count, number) for number in range(count)))


def infer_with_mxnet(mx: Any, graph: Graph, dtypes: tuple[DType, ...]) -> tuple[DType, ...]:
    # Symbol.infer_type takes no bfloat16; the variables' attribute does.
    nodes = [node._replace(attrs={"__dtype__": str(dtype.value)}) for node, dtype in zip(graph.nodes, dtypes)]
    typed = Graph((*nodes, *graph.nodes[len(nodes) :]), graph.heads)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # "Cannot decide type for ..."
        _, outputs, _ = mx.sym.load_json(write_symbol(typed)).infer_type()
    return tuple(DType.from_numpy(dtype) for dtype in outputs)


def infer_ourselves(graph: Graph, dtypes: tuple[DType, ...]) -> tuple[DType | None, ...]:
    return infer_dtypes(graph, {f"v{number}": dtype for number, dtype in enumerate(dtypes)})[-1]


@pytest.mark.parametrize("target", AMP_CAST_TARGETS, ids=str)
@pytest.mark.parametrize("source", ALL, ids=str)
def test_amp_cast_is_mxnets(mx: Any, source: DType, target: DType) -> None:
    graph = one_operator(AMP_CAST, {"dtype": target.label}, 1)
    assert infer_ourselves(graph, (source,)) == infer_with_mxnet(mx, graph, (source,))


@pytest.mark.parametrize("target", ALL, ids=str)
@pytest.mark.parametrize("source", ALL, ids=str)
def test_cast_is_mxnets(mx: Any, source: DType, target: DType) -> None:
    graph = one_operator("Cast", {"dtype": target.label}, 1)
    assert infer_ourselves(graph, (source,)) == infer_with_mxnet(mx, graph, (source,)) == (target,)


@pytest.mark.parametrize("cast_narrow", [None, "False", "True", "1", "0", "true", "false"])
@pytest.mark.parametrize("first", ALL, ids=str)
def test_amp_multicast_of_two_is_mxnets(mx: Any, first: DType, cast_narrow: str | None) -> None:
    attrs = {"num_outputs": "2"} if cast_narrow is None else {"num_outputs": "2", "cast_narrow": cast_narrow}
    graph = one_operator(AMP_MULTICAST, attrs, 2)
    for second in ALL:
        dtypes = (first, second)
        assert infer_ourselves(graph, dtypes) == infer_with_mxnet(mx, graph, dtypes), second


@pytest.mark.parametrize("cast_narrow", ["False", "True"])
def test_amp_multicast_of_three_is_mxnets(mx: Any, cast_narrow: str) -> None:
    graph = one_operator(AMP_MULTICAST, {"num_outputs": "3", "cast_narrow": cast_narrow}, 3)
    for dtypes in itertools.product((F32, F16, BF16, F64, I32), repeat=3):
        assert infer_ourselves(graph, dtypes) == infer_with_mxnet(mx, graph, dtypes), dtypes


def test_amp_cast_lets_integers_and_float64_pass() -> None:
    for dtype in set(ALL) - CASTABLE:
        graph = one_operator(AMP_CAST, {"dtype": "float16"}, 1)
        assert infer_ourselves(graph, (dtype,)) == (dtype,)


def test_amp_multicast_of_low_inputs_takes_the_first_ones_dtype() -> None:
    assert multicast_dtypes({}, (BF16, F16)) == (BF16, BF16)
    assert multicast_dtypes({}, (F16, BF16)) == (F16, F16)


def test_amp_multicast_behind_an_integer_makes_integers_of_low_inputs() -> None:
    assert multicast_dtypes({}, (I32, F16)) == (I32, I32)
    assert multicast_dtypes({}, (F64, BF16, I32)) == (F64, F64, I32)
    assert multicast_dtypes({}, (I32, F16, F32)) == (I32, F32, F32)


def test_narrow_amp_multicast_takes_the_last_low_dtype() -> None:
    narrow = {"cast_narrow": "True"}
    assert multicast_dtypes(narrow, (F16, BF16, F32)) == (BF16, BF16, BF16)
    assert multicast_dtypes(narrow, (I32, F32)) == (I32, F32)


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        ((F16, None), (None, None)),  # FP32 if the unknown one is
        ((None, F16), (None, None)),
        ((F32, None), (F32, None)),  # FP32 or an integer that passes through
        ((I32, None), (I32, None)),
    ],
)
def test_unknown_input_leaves_open_what_it_decides(
    inputs: tuple[DType | None, ...], outputs: tuple[DType | None, ...]
) -> None:
    assert multicast_dtypes({}, inputs) == outputs


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        ((None, F16), (None, F16)),  # the last low one wins, whatever comes before
        ((F16, None), (None, None)),
        ((F32, None), (None, None)),
    ],
)
def test_unknown_input_leaves_open_what_it_decides_when_narrow(
    inputs: tuple[DType | None, ...], outputs: tuple[DType | None, ...]
) -> None:
    assert multicast_dtypes({"cast_narrow": "True"}, inputs) == outputs


def test_cast_target_reads_the_attribute() -> None:
    assert cast_target({"dtype": "bfloat16"}, "node 'c' (amp_cast)") is BF16


def test_cast_without_dtype_is_named() -> None:
    with pytest.raises(OperatorError, match=r"node 'c' \(amp_cast\) has no 'dtype' attribute"):
        cast_target({}, "node 'c' (amp_cast)")


def test_cast_to_something_that_is_no_dtype_is_named() -> None:
    with pytest.raises(OperatorError, match=r"node 'c' \(Cast\): 'half' is not a dtype of MXNet"):
        cast_target({"dtype": "half"}, "node 'c' (Cast)")
