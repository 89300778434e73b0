"""The rewriter puts in the casts a plan asks for, each once, and nothing else."""

from __future__ import annotations

import pytest

from mxamp.decisions import LowPrecision
from mxamp.dtypes import DType
from mxamp.graph import Entry, Graph, Node
from mxamp.graph.infer import infer_dtypes, variable_dtypes
from mxamp.passes import InsertCasts, run_passes
from mxamp.policy import Color, Policy
from tests.building import BF16, F16, F32, LOW, Net, casts, named, planned_state, reads
from tests.passes.harness import insert_casts


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes if not node.is_variable]


# ---------------------------------------------------------------------- how many casts


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_one_cast_down_serves_every_low_reader(dtype: DType) -> None:
    net = Net()
    x = net.var("x")
    total = net.op("add_n", *(net.fc(x, f"fc{number}") for number in range(5)), name="total")
    after = insert_casts(net.graph(total), net.params, dtype)
    # The input down for five layers, the sum up for the head.
    assert casts(after) == [f"x -> {dtype}", f"total_{dtype} -> float32"]


def test_one_cast_up_serves_every_fp32_reader_and_the_head() -> None:
    net = Net()
    layer = net.fc(net.var("x"), "fc")
    graph = net.graph(net.op("exp", layer, name="e"), layer, net.op("log", layer, name="l"), layer)
    after = insert_casts(graph, net.params)
    assert casts(after) == ["x -> bfloat16", "fc_bfloat16 -> float32"]
    assert reads(after, "e") == reads(after, "l") == ["fc"]


def test_casting_back_returns_the_original_entry() -> None:
    net = Net()
    layer = net.fc(net.var("x"), "fc")
    exact = net.op("exp", layer, name="e")
    both = net.op("Embedding", layer, exact, name="both", input_dim=9, output_dim=4)
    graph = net.graph(net.fc(net.op("elemwise_add", exact, layer, name="sum"), "out"), both)
    after = insert_casts(graph, net.params, policy=Policy.default(BF16).excluding(names=["sum"]))
    # Up for exp, the sum and the lookup; never down again to what fc handed on.
    assert casts(after).count("fc -> float32") == 1
    assert "fc_amp_cast_float32 -> bfloat16" not in casts(after)


def test_a_low_reader_behind_a_pin_reads_the_low_original() -> None:
    net = Net()
    layer = net.fc(net.var("x"), "fc")
    exact = net.op("exp", layer, name="e")
    graph = net.graph(net.fc(layer, "again"), exact)
    after = insert_casts(graph, net.params)
    assert reads(after, "again_bfloat16") == ["fc", "again_weight"]


def test_each_output_is_cast_for_itself() -> None:
    net = Net()
    halves = net.op("SliceChannel", net.fc(net.var("x"), "fc"), name="halves", outputs=2, num_outputs=2)
    second = Entry(halves.node, 1)
    graph = net.graph(
        *(net.op("exp", entry, name=f"e{n}") for n, entry in enumerate((halves, second, second)))
    )
    # Left to itself, the split would be FP32, and one cast of its input would do.
    policy = Policy.default(BF16).with_operators(Color.GREEN, ["SliceChannel"], "for the test")
    after = insert_casts(graph, net.params, policy=policy)
    assert casts(after)[-2:] == ["halves -> float32", "halves[1] -> float32"]
    assert len(casts(after)) == 3


def test_integers_and_indices_are_never_cast() -> None:
    net = Net()
    index = net.var("index")
    whole = net.op("Cast", net.var("x"), name="whole", dtype="int32")
    rows = net.op("Embedding", index, net.param("table", 9, 4), name="rows", input_dim=9, output_dim=4)
    more = net.op("take", rows, whole, name="more")
    after = insert_casts(net.graph(net.fc(more, "fc")), net.params)
    assert reads(after, "rows")[0] == "index"
    assert reads(after, "more")[1] == "whole"
    assert casts(after) == ["x -> int32", "fc_bfloat16 -> float32"]


def test_a_graph_with_nothing_to_gain_is_returned_as_it_is() -> None:
    net = Net()
    graph = net.graph(net.op("exp", net.op("Reshape", net.var("x"), shape="(-1,)")))
    assert insert_casts(graph) is graph


# ---------------------------------------------------------------------- parameters


def test_a_parameter_is_stored_low_and_not_cast() -> None:
    net = Net()
    after = insert_casts(net.graph(net.fc(net.var("x"), "fc")), net.params)
    assert reads(after, "fc_bfloat16") == ["x_amp_cast_bfloat16", "fc_weight"]
    assert named(after, "fc_weight").attrs["__dtype__"] == "12"


def shared_weight() -> tuple[Graph, Net]:
    net = Net()
    layer = net.fc(net.var("x"), "fc")
    weight = Entry(net.graph(layer).variables["fc_weight"])
    return net.graph(layer, net.op("exp", weight, name="e"), net.op("log", weight, name="l")), net


def test_a_parameter_whose_readers_disagree_is_stored_once_per_dtype() -> None:
    graph, net = shared_weight()
    after = insert_casts(graph, net.params, low_precision=LowPrecision.REQUIRED)
    assert reads(after, "e") == reads(after, "l") == ["fc_weight"]
    assert reads(after, "fc_bfloat16")[1] == "fc_weight_bfloat16"
    assert list(after.variables) == ["x", "fc_weight", "fc_weight_bfloat16"]
    assert named(after, "fc_weight").attrs["__dtype__"] == "0"  # for Module, which its readers may not tell
    assert casts(after) == ["x -> bfloat16", "fc_bfloat16 -> float32"]


def test_a_twin_takes_a_name_that_is_free() -> None:
    graph, net = shared_weight()
    taken = Graph((*graph.nodes, Node("null", "fc_weight_bfloat16")), graph.heads, graph.attrs)
    used = Entry(len(taken.nodes) - 1)
    taken = Graph(taken.nodes, (*taken.heads, used), taken.attrs)
    after = insert_casts(taken, net.params, low_precision=LowPrecision.REQUIRED)
    assert reads(after, "fc_bfloat16")[1] == "fc_weight_bfloat16_1"


def test_a_parameter_that_is_an_output_stays_fp32_beside_its_twin() -> None:
    net = Net()
    layer = net.fc(net.var("x"), "fc")
    weight = Entry(net.graph(layer).variables["fc_weight"])
    after = insert_casts(net.graph(layer, weight), net.params, low_precision=LowPrecision.REQUIRED)
    assert after.describe(after.heads[1]) == "fc_weight"
    assert set(after.variables) == {"x", "fc_weight", "fc_weight_bfloat16"}


def test_statistics_stay_fp32_and_under_their_names() -> None:
    net = Net()
    after = insert_casts(net.graph(net.bn(net.conv(net.var("x"), "conv"), "bn")), net.params, F16)
    assert set(after.variables) == set(net.params) | {"x"}
    assert all("__dtype__" not in named(after, name).attrs for name in net.params if name.startswith("bn"))
    assert reads(after, "bn_float16") == ["conv", "bn_gamma", "bn_beta", "bn_moving_mean", "bn_moving_var"]


def test_without_offline_casts_parameters_are_cast_at_run_time_once() -> None:
    net = Net()
    x = net.var("x")
    first = net.fc(x, "fc")
    weight = Entry(net.graph(first).variables["fc_weight"])
    second = net.op("FullyConnected", first, weight, name="again", num_hidden=4, no_bias=True)
    after = insert_casts(net.graph(second), net.params, offline=False)
    assert sorted(casts(after)) == ["again_bfloat16 -> float32", "fc_weight -> bfloat16", "x -> bfloat16"]
    assert named(after, "fc_weight").attrs["__dtype__"] == "0", "stored FP32, read low"


# ---------------------------------------------------------------------- heads and names


def test_the_cast_of_an_output_takes_the_nodes_name() -> None:
    net = Net()
    after = insert_casts(net.graph(net.fc(net.var("x"), "fc")), net.params)
    assert named(after, "fc").op == "amp_cast"
    assert named(after, "fc_bfloat16").op == "FullyConnected"


def test_the_new_name_of_an_output_is_free() -> None:
    net = Net()
    graph = net.graph(net.fc(net.op("exp", net.var("x"), name="fc_bfloat16"), "fc"))
    after = insert_casts(graph, net.params)
    assert named(after, "fc_bfloat16_1").op == "FullyConnected"
    assert named(after, "fc_bfloat16").op == "exp"


def test_the_name_of_a_cast_is_free() -> None:
    net = Net()
    taken = net.op("exp", net.var("x"), name="x_amp_cast_bfloat16")
    after = insert_casts(net.graph(taken, net.fc(Entry(0), "fc")), net.params)
    names = [node.name for node in after.nodes]
    assert len(set(names)) == len(names)
    assert casts(after)[0] == "x -> bfloat16"


def test_casts_of_two_nodes_of_one_name_have_two_names() -> None:
    net = Net()
    x = net.var("x")
    twins = [net.op("exp", entry, name="same") for entry in (x, net.op("log", x))]
    graph = net.graph(*(net.fc(twin, f"fc{n}") for n, twin in enumerate(twins)))
    after = insert_casts(graph, net.params)
    added = [node.name for node in after.nodes if node.op == "amp_cast"]
    assert len(set(added)) == len(added) == 4


def test_an_output_that_is_read_inside_keeps_both_its_readers_and_its_name() -> None:
    net = Net()
    inner = net.fc(net.var("x"), "inner")
    after = insert_casts(net.graph(net.fc(inner, "outer"), inner), net.params)
    assert reads(after, "outer_bfloat16") == ["inner_bfloat16", "outer_weight"]
    assert [after.describe(head) for head in after.heads] == ["outer", "inner"]
    assert len(casts(after)) == 3


def test_one_output_twice_is_one_cast_twice() -> None:
    net = Net()
    layer = net.fc(net.var("x"), "fc")
    after = insert_casts(net.graph(layer, layer), net.params)
    assert after.heads[0] == after.heads[1]
    assert len(casts(after)) == 2


def test_an_output_that_is_an_input_is_left_alone() -> None:
    net = Net()
    x = net.var("x")
    after = insert_casts(net.graph(net.fc(x, "fc"), x), net.params)
    assert after.describe(after.heads[1]) == "x"


def test_the_only_output_may_be_an_input() -> None:
    net = Net()
    graph = net.graph(net.var("x"))
    assert insert_casts(graph) is graph


def test_outputs_of_a_multi_output_operator_keep_their_names() -> None:
    net = Net()
    halves = net.op("SliceChannel", net.fc(net.var("x"), "fc"), name="halves", outputs=2, num_outputs=2)
    after = insert_casts(net.graph(Entry(halves.node, 1), halves), net.params)
    assert casts(after) == ["x -> bfloat16", "fc -> float32"]


def test_a_cast_that_was_there_does_not_take_the_name_of_an_output() -> None:
    net = Net()
    layer = net.fc(net.var("x"), "fc")
    pinned = net.op("amp_cast", layer, name="pinned", dtype="float32")
    after = insert_casts(net.graph(layer, pinned), net.params)
    assert [after.describe(head) for head in after.heads] == ["fc", "pinned"]


def test_an_fp32_output_that_is_asked_for_low_keeps_its_name() -> None:
    net = Net()
    wide = net.op("amp_cast", net.var("x", __dtype__="12"), name="wide", dtype="float32")
    graph = net.graph(net.op("exp", wide, name="e"), wide)
    after = insert_casts(graph, low_heads=frozenset({0, 1}), heads_fp32=False)
    assert [after.describe(head) for head in after.heads] == ["e", "wide"]
    assert casts(after) == ["x -> float32", "e_float32 -> bfloat16", "wide_float32 -> bfloat16"]


def test_low_outputs_are_handed_on_as_they_are() -> None:
    net = Net()
    graph = net.graph(net.fc(net.var("x"), "fc"))
    options = {"low_inputs": {"x": BF16}, "low_heads": frozenset({0})}
    plain = insert_casts(graph, net.params, **options, heads_fp32=False)
    assert casts(plain) == []
    assert named(plain, "x").attrs["__dtype__"] == "12"


# ---------------------------------------------------------------------- unknown operators


def test_an_unknown_operator_reads_fp32_and_is_pinned_with_amp_cast() -> None:
    net = Net()
    unknown = net.op("mystery", net.fc(net.var("x"), "fc"), name="u")
    after = insert_casts(net.graph(net.op("exp", unknown, name="e")), net.params, F16, cast_op="Cast")
    assert reads(after, "u") == ["fc_amp_cast_float32"]
    assert named(after, "fc_amp_cast_float32").op == "Cast"
    # Cast would turn an unknown operator's integers into floats; amp_cast lets them pass.
    (pin,) = [node for node in after.nodes if node.op == "amp_cast"]
    assert (after.describe(pin.inputs[0]), pin.attrs["dtype"]) == ("u", "float32")
    assert reads(after, "e") == [pin.name]


def test_an_unknown_operator_at_the_end_hands_on_what_it_did() -> None:
    net = Net()
    after = insert_casts(net.graph(net.op("mystery", net.fc(net.var("x"), "fc"), name="u")), net.params)
    assert after.nodes[-1].op == "mystery"


def test_a_low_reader_of_an_unknown_operator_pins_it_to_its_own_dtype() -> None:
    net = Net()
    unknown = net.op("mystery", net.var("x"), name="u")
    after = insert_casts(net.graph(net.fc(unknown, "fc")), net.params)
    assert casts(after) == ["u -> bfloat16", "fc_bfloat16 -> float32"]
    assert "amp_multicast" not in ops(after)


def test_an_unknown_operand_is_pinned_to_the_dtype_of_the_low_node_that_reads_it() -> None:
    net = Net()
    unknown, exact = net.op("mystery", net.var("x"), name="u"), net.op("exp", net.var("y"), name="e")
    total = net.op("elemwise_add", unknown, exact, name="total")
    heads = [net.fc(entry, f"fc{n}") for n, entry in enumerate((unknown, exact, total))]
    after = insert_casts(net.graph(*heads), net.params)
    # Whatever the sum computes in, both its operands are cast to that.
    found = infer_dtypes(after, {**variable_dtypes(after, {}), **dict.fromkeys(net.params, BF16)})
    total_reads = {found[entry.node][entry.output] for entry in named(after, "total").inputs}
    assert len(total_reads) == 1
    assert "amp_multicast" not in ops(after)


def test_multicast_stands_only_where_nobody_can_tell_the_dtype() -> None:
    net = Net()
    half = net.op("amp_cast", net.var("x"), name="half", dtype="float16")
    unknown = net.op("mystery", net.var("y"), name="u")
    graph = net.graph(net.op("Concat", unknown, half, name="both"))
    after = run_passes([InsertCasts()], planned_state(graph)).graph
    assert [op for op in ops(after) if op == "amp_multicast"] == ["amp_multicast"]
    assert reads(after, "both") == ["both_amp_multicast", "both_amp_multicast[1]"]


# ---------------------------------------------------------------------- casts that were there


def test_a_cast_of_the_original_graph_is_used_and_not_doubled() -> None:
    net = Net()
    x = net.var("x")
    low = net.op("amp_cast", x, name="low", dtype="bfloat16")
    graph = net.graph(net.op("relu", low, name="r"), net.fc(x, "fc"))
    after = insert_casts(graph, net.params)
    assert reads(after, "fc_bfloat16")[0] == "low"
    assert casts(after).count("x -> bfloat16") == 1


def test_rounding_in_the_original_graph_is_the_users_meaning() -> None:
    net = Net()
    x = net.var("x")
    rounded = net.op(
        "amp_cast", net.op("amp_cast", x, name="down", dtype="float16"), name="up", dtype="float32"
    )
    after = insert_casts(net.graph(net.op("exp", rounded, name="e")))
    assert casts(after) == ["x -> float16", "down -> float32"]
    assert reads(after, "e") == ["up"]


def test_a_widening_cast_of_the_original_graph_has_a_way_back() -> None:
    net = Net()
    low = net.var("x", __dtype__="12")
    wide = net.op("amp_cast", low, name="wide", dtype="float32")
    after = insert_casts(net.graph(net.fc(wide, "fc")), net.params)
    assert reads(after, "fc_bfloat16")[0] == "x"


def test_another_low_precision_is_left_as_it_was() -> None:
    net = Net()
    half = net.op("amp_cast", net.var("x"), name="half", dtype="float16")
    added = net.op("_plus_scalar", half, name="added", scalar=1)
    back = net.op("amp_cast", added, name="back", dtype="float32")
    after = insert_casts(net.graph(net.fc(back, "fc")), net.params, BF16)
    assert reads(after, "added") == ["half"]
    assert casts(after)[:2] == ["x -> float16", "added -> float32"]


def test_a_multicast_of_the_original_graph_is_understood() -> None:
    net = Net()
    layer = net.fc(net.var("x"), "fc")
    wide = net.op("amp_multicast", layer, net.var("y"), name="m", outputs=2, num_outputs=2)
    total = net.op("Concat", wide, Entry(wide.node, 1), name="total")
    after = insert_casts(net.graph(total), net.params)
    assert ops(after).count("amp_multicast") == 1


# ---------------------------------------------------------------------- kinds of casts


def test_plain_casts_replace_amp_casts_on_request() -> None:
    net = Net()
    after = insert_casts(
        net.graph(net.op("exp", net.fc(net.var("x"), "fc"))), net.params, F16, cast_op="Cast"
    )
    assert "amp_cast" not in ops(after)
    assert ops(after).count("Cast") == 2


def test_softmax_hands_on_fp32_through_its_own_attribute() -> None:
    net = Net()
    chances = net.op("softmax", net.fc(net.var("x"), "fc"), name="chances", axis=-1)
    after = insert_casts(net.graph(chances), net.params, F16)
    assert named(after, "chances").attrs == {"axis": "-1", "dtype": "float32"}
    assert casts(after) == ["x -> float16"], "no cast up: softmax does it"


def test_softmax_with_a_dtype_of_its_own_keeps_it() -> None:
    net = Net()
    chances = net.op("softmax", net.fc(net.var("x"), "fc"), name="chances", dtype="float64")
    after = insert_casts(net.graph(chances), net.params, F16)
    assert named(after, "chances").attrs["dtype"] == "float64"


# ---------------------------------------------------------------------- what is carried along


def test_control_dependencies_versions_and_attributes_are_carried_along() -> None:
    net = Net()
    net.fc(net.var("x"), "fc")
    net.nodes.append(
        Node("exp", "e", {"ctx_group": "a"}, (Entry(2),), control_deps=(0, 2), input_versions=(4,))
    )
    graph = Graph(tuple(net.nodes), (Entry(3),), {"mxnet_version": ["int", 10600]}, (7,))
    after = insert_casts(graph, net.params)
    last = named(after, "e")
    assert [after.nodes[position].name for position in last.control_deps] == ["x", "fc"]
    assert (last.attrs, last.input_versions) == ({"ctx_group": "a"}, (4,))
    assert (after.attrs, after.head_versions) == (graph.attrs, (7,))


def test_a_long_chain_is_rewritten_without_recursion() -> None:
    net = Net()
    last = net.fc(net.var("x"), "fc")
    for _ in range(5_000):
        last = net.op("exp", net.op("relu", last))
    after = insert_casts(net.graph(last), net.params)
    assert F32.label in casts(after)[1]
    assert len(casts(after)) == 2
