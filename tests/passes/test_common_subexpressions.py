"""What is computed twice is computed once, where it is the same and nobody can tell."""

from __future__ import annotations

from typing import Callable

import pytest

from mxamp.graph import Entry, Graph
from mxamp.passes import MergeCommonSubexpressions
from mxamp.policy import Policy
from tests.building import BF16, Net
from tests.passes.preparing import operators, prepared


def test_equal_nodes_are_merged_and_the_first_stays() -> None:
    net = Net()
    data = net.var("data")
    first, second = (net.op("clip", data, name=name, a_min=0, a_max=6) for name in ("first", "second"))
    after, done = prepared(
        MergeCommonSubexpressions, net.graph(net.op("elemwise_add", second, first, name="sum"))
    )
    assert operators(after) == ["first = clip(data) {a_max: 6, a_min: 0}", "sum = elemwise_add(first, first)"]
    (change,) = done.changes
    assert (change.node, change.into) == ("second", "first")


def test_equal_chains_are_merged_from_end_to_end() -> None:
    net = Net()
    data, ends = net.var("data"), []
    for side in ("a", "b"):
        halves = net.op("SliceChannel", data, name=f"split_{side}", outputs=2, num_outputs=2)
        ends.append(net.op("exp", Entry(halves.node, 1), name=f"exp_{side}"))
    after, done = prepared(
        MergeCommonSubexpressions, net.graph(net.op("elemwise_mul", *ends, name="product"))
    )
    assert operators(after) == [
        "split_a = SliceChannel(data) {num_outputs: 2}",
        "exp_a = exp(split_a[1])",
        "product = elemwise_mul(exp_a, exp_a)",
    ]
    assert [change.into for change in done.changes] == ["split_a", "exp_a"]


def test_the_profilers_names_are_no_difference() -> None:
    net = Net()
    data = net.var("data")
    ends = [net.op("exp", data, name=name, __profiler_scope__=name) for name in ("a", "b")]
    after, _ = prepared(MergeCommonSubexpressions, net.graph(net.op("elemwise_add", *ends, name="sum")))
    assert len(operators(after)) == 2


def twice(make: Callable[[Net, Entry, str], Entry], *, head: bool = False) -> Graph:
    net = Net()
    data = net.var("data")
    ends = [make(net, data, name) for name in ("a", "b")]
    last = net.op("elemwise_add", *ends, name="sum")
    return net.graph(last, ends[1]) if head else net.graph(last)


def test_an_output_may_be_the_one_that_stays() -> None:
    net = Net()
    data = net.var("data")
    first, second = net.op("exp", data, name="first"), net.op("exp", data, name="second")
    graph = net.graph(first, net.op("tanh", second, name="tanh"))
    after, _ = prepared(MergeCommonSubexpressions, graph)
    assert operators(after) == ["first = exp(data)", "tanh = tanh(first)"]


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(
            twice(lambda net, x, name: net.op("exp", x, name=name), head=True), id="an output's name"
        ),
        pytest.param(
            twice(lambda net, x, name: net.op("Dropout", x, name=name, mode="always")), id="Dropout"
        ),
        pytest.param(
            twice(lambda net, _, name: net.op("_random_normal", name=name, shape="(2,)")), id="random"
        ),
        pytest.param(twice(lambda net, x, name: net.op("_sample_poisson", x, name=name)), id="sampled"),
        pytest.param(twice(lambda net, x, name: net.op("_npi_normal", x, name=name)), id="NumPy's random"),
        pytest.param(twice(lambda net, x, name: net.op("_shuffle", x, name=name)), id="shuffled"),
        pytest.param(twice(lambda net, x, name: net.op("Custom", x, name=name, op_type="mine")), id="Python"),
        pytest.param(twice(lambda net, x, name: net.op("_mystery", x, name=name)), id="unknown"),
        pytest.param(
            twice(lambda net, x, name: net.op("amp_cast", x, name=name, dtype="float16")), id="casts"
        ),
        pytest.param(
            twice(lambda net, x, name: net.op("_plus_scalar", x, name=name, scalar=len(net.nodes))),
            id="other attributes",
        ),
        pytest.param(twice(lambda net, x, name: net.fc(x, name)), id="other parameters"),
        *(
            pytest.param(twice(lambda net, _, name, op=op, own=own: net.op(op, name=name, **own)), id=what)
            for what, op, own in (
                ("a size that the reader tells", "_zeros", {"shape": "(2, 0, 50)"}),
                ("sizes that the reader tells", "_ones", {}),
                ("a range that the reader ends", "_arange", {"start": 0, "infer_range": "True"}),
            )
        ),
    ],
)
def test_refuses(graph: Graph) -> None:
    after, _ = prepared(MergeCommonSubexpressions, graph)
    assert after is graph


def test_what_says_its_size_is_merged() -> None:
    graph = twice(lambda net, _, name: net.op("_zeros", name=name, shape="(2, 8, 50)"))
    after, _ = prepared(MergeCommonSubexpressions, graph)
    assert len(operators(after)) == 2


def test_batch_norms_are_left_alone() -> None:
    net = Net()
    data = net.var("data")
    statistics = [net.param(f"bn_{part}", 4, value=1.0) for part in ("gamma", "beta", "mean", "var")]
    ends = [net.op("BatchNorm", data, *statistics, name=name, outputs=3) for name in ("a", "b")]
    graph = net.graph(net.op("elemwise_add", *ends, name="sum"))
    after, _ = prepared(MergeCommonSubexpressions, graph, net.params)
    assert after is graph


def test_what_a_rule_of_the_users_picks_stays() -> None:
    graph = twice(lambda net, x, name: net.op("exp", x, name=name))
    policy = Policy.default(BF16).excluding(names=["b"])
    after, _ = prepared(MergeCommonSubexpressions, graph, policy=policy)
    assert after is graph
