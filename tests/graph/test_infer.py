"""Dtypes of entries, without MXNet."""

from __future__ import annotations

import pytest

from mxamp.dtypes import DType
from mxamp.errors import OperatorError
from mxamp.graph import Entry, Graph, Node
from mxamp.graph.infer import (
    certain_dtypes,
    check_dtypes,
    infer_dtypes,
    infer_with_data_dtypes,
    variable_dtypes,
)
from mxamp.ops import FACTS
from tests.building import BF16, F16, F32, Net


def dtypes(net: Net, **variables: DType) -> dict[str, tuple[DType | None, ...]]:
    graph = net.graph(Entry(len(net.nodes) - 1))
    known = {**variable_dtypes(graph, {}), **variables}
    return {node.name: found for node, found in zip(graph.nodes, infer_dtypes(graph, known))}


def test_a_stored_parameter_beats_the_attribute_and_the_attribute_the_default() -> None:
    net = Net()
    for name in ("stored", "marked", "plain"):
        net.var(name, **({} if name == "plain" else {"__dtype__": "2"}))
    graph = net.graph(Entry(0))
    assert variable_dtypes(graph, {"stored": BF16}) == {"stored": BF16, "marked": F16, "plain": F32}


def test_an_input_beside_a_low_weight_is_low_as_mxnet_infers_it() -> None:
    net = Net()
    net.fc(net.var("data"), "fc")
    assert variable_dtypes(net.graph(Entry(2)), {"fc_weight": F16})["data"] is F16


@pytest.mark.parametrize("op", ["_npi_stack", "stack", "elemwise_add"])
def test_an_input_beside_integers_is_of_their_dtype_as_mxnet_infers_it(op: str) -> None:
    net = Net()
    places = net.op("_arange", start=0, stop=4, dtype="int32")
    flat = net.op("Reshape", net.op("transpose", net.var("data")), shape="(-1,)")
    both = net.op(op, net.op("repeat", places, repeats=2), flat)
    net.op("gather_nd", net.var("features"), both)
    graph = net.graph(Entry(len(net.nodes) - 1))
    assert variable_dtypes(graph, {}) == {"data": DType.INT32, "features": F32}
    check_dtypes(graph, infer_dtypes(graph, variable_dtypes(graph, {})))


def test_an_input_beside_integers_that_are_promoted_is_what_it_would_be() -> None:
    net = Net()
    places = net.op("_arange", start=0, stop=4, dtype="int32")
    net.op("_npi_add", places, net.var("data"))
    assert variable_dtypes(net.graph(Entry(2)), {}) == {"data": F32}


@pytest.mark.parametrize(
    ("between", "is_certain"),
    [
        pytest.param(["slice_axis", "transpose"], True, id="moved on the way to a layer"),
        pytest.param(["amp_cast"], False, id="images are cast on the way"),
        pytest.param(["slice_axis", "Cast", "transpose"], False, id="images are cast, and moved before"),
    ],
)
def test_a_layer_tells_what_is_fed_to_all_that_leads_to_it(between: list[str], is_certain: bool) -> None:
    """MXNet runs none whose data and weight are of two dtypes."""
    net = Net()
    x = net.var("data")
    for op in between:
        x = net.op(op, x, name=op, **({"dtype": "float32"} if op in ("Cast", "amp_cast") else {}))
    net.fc(x, "fc")
    other = net.op("transpose", net.var("images"))
    graph = net.graph(Entry(len(net.nodes) - 3), other)
    variables = variable_dtypes(graph, {"fc_weight": F32})
    found = certain_dtypes(graph, variables, ["data", "images"])
    by_name = {node.name: dtypes[0] for node, dtypes in zip(graph.nodes, found)}
    assert by_name["data"] is by_name[between[0]] is (F32 if is_certain else None)
    assert by_name["fc"] is F32
    assert by_name["images"] is by_name[graph.nodes[other.node].name] is None


def test_what_leads_to_two_inputs_that_say_nothing_is_not_certain() -> None:
    net = Net()
    net.op("elemwise_add", net.var("a"), net.op("transpose", net.var("b")), name="sum")
    graph = net.graph(Entry(3))
    assert set(certain_dtypes(graph, variable_dtypes(graph, {}), ["a", "b"])) == {(None,)}


@pytest.mark.parametrize("code", ["99", "float16", "", "2.0"])
def test_a_dtype_attribute_that_is_no_code_is_named(code: str) -> None:
    net = Net()
    net.var("x", __dtype__=code)
    with pytest.raises(OperatorError, match=r"variable 'x' has the attribute __dtype__="):
        variable_dtypes(net.graph(Entry(0)), {})


def test_dtype_follows_the_data_and_not_the_indices() -> None:
    net = Net()
    index, rows = net.var("index"), net.var("rows")
    net.op("Embedding", index, rows, name="e", input_dim=9, output_dim=2)
    assert dtypes(net, index=F32, rows=BF16)["e"] == (BF16,)


def test_casts_pass_integers_through() -> None:
    net = Net()
    x = net.var("x")
    net.op("amp_cast", x, name="pinned", dtype="float32")
    net.op("Cast", x, name="cast", dtype="float32")
    found = dtypes(net, x=DType.INT32)
    assert (found["pinned"], found["cast"]) == ((DType.INT32,), (F32,))


def test_batch_norm_hands_on_fp32_statistics_of_low_data() -> None:
    net = Net()
    net.bn(net.var("x"), "bn")
    assert dtypes(net, x=F16)["bn"] == (F16, F32, F32)


def test_an_unknown_operator_has_unknown_outputs_and_they_spread() -> None:
    net = Net()
    unknown = net.op("mystery", net.var("x"), name="u", outputs=2)
    net.op("exp", Entry(unknown.node, 1), name="e")
    found = dtypes(net)
    assert found["u"] == (None, None)
    assert found["e"] == (None,)


def test_one_known_operand_makes_the_sum_known() -> None:
    net = Net()
    unknown = net.op("mystery", net.var("x"))
    net.op("elemwise_add", unknown, net.var("y"), name="s")
    assert dtypes(net, y=F32)["s"] == (F32,)


def test_clashing_operands_are_both_named() -> None:
    net = Net()
    left, right = net.var("left"), net.var("right")
    graph = net.graph(net.op("Concat", left, left, right, name="join"))
    with pytest.raises(OperatorError, match=r"'join' \(Concat\) reads 'left' as float32 and 'right' as bfl"):
        check_dtypes(graph, infer_dtypes(graph, {"left": F32, "right": BF16}))


def test_a_low_scale_of_batch_norm_is_refused() -> None:
    net = Net()
    graph = net.graph(net.bn(net.var("x"), "bn"))
    low_gamma = infer_dtypes(graph, {**variable_dtypes(graph, {}), "x": BF16, "bn_gamma": BF16})
    with pytest.raises(OperatorError, match="'bn_gamma' as bfloat16, and that input is always float32"):
        check_dtypes(graph, low_gamma)


def test_a_dtype_attribute_of_an_operator_that_is_no_dtype_is_named() -> None:
    net = Net()
    net.op("softmax", net.var("x"), dtype="float19")
    with pytest.raises(OperatorError, match=r"softmax has the attribute dtype='float19'.*Did you mean"):
        dtypes(net)


def test_a_cast_without_a_dtype_is_named() -> None:
    net = Net()
    net.op("amp_cast", net.var("x"), name="c")
    with pytest.raises(OperatorError, match=r"'c' .* has no 'dtype' attribute"):
        dtypes(net)


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("in_data_locs", "[0", "not a list of positions"),
        ("in_data_locs", "[7]", "does not exist"),
        ("in_state_locs", "[-1]", "not a list of positions"),
        ("remain_locs", "[True]", "not a list of positions"),
    ],
)
def test_a_loop_wired_to_nowhere_is_named(attribute: str, value: str, message: str) -> None:
    inner = Net()
    body = inner.graph(inner.op("exp", inner.var("i")))
    attrs = {"in_data_locs": "[0]", "in_state_locs": "[]", "remain_locs": "[]", attribute: value}
    loop = Node("_foreach", "loop", attrs, (Entry(0),), 1, (body,))
    graph = Graph((Node("null", "x"), loop), (Entry(1),))
    with pytest.raises(OperatorError, match=f"'loop' .*{message}"):
        infer_dtypes(graph, {"x": F32})


@pytest.mark.parametrize("given", [(F32, F32), (F16, F32), (DType.INT32, F32), (DType.INT8, DType.INT8)])
def test_what_a_node_computes_in_is_what_its_facts_say(given: tuple[DType, DType]) -> None:
    for op in FACTS.names():
        facts = FACTS.of(op, {})
        if facts is None:
            continue
        net = Net()
        graph = net.graph(net.op(op, net.var("x"), net.var("y"), name="n", outputs=2))
        known = dict(zip("xy", given))
        entries, computed_in = infer_with_data_dtypes(graph, known)
        assert entries == infer_dtypes(graph, known)
        assert list(computed_in) == [None, None, facts.data_dtype({}, given)], op
        assert list(facts.all_roles(2, {})) == [facts.role(0, {}), facts.role(1, {})], op
