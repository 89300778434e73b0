"""Operators of training in a graph that is converted all the same: they are left as they were."""

from __future__ import annotations

import warnings

import pytest

from mxamp.dtypes import DType
from mxamp.policy import Policy
from tests.building import BF16, LOW, Net, assert_sound, casts, convert, reads


@pytest.mark.parametrize("dtype", LOW, ids=str)
@pytest.mark.parametrize(
    ("op", "reason"),
    [
        ("_backward_Activation", "a gradient: MXNet runs it in backward passes alone"),
        ("_backward_np_sum", "a gradient"),
        ("_split_v2_backward", "a gradient"),
        ("_backward_my_own", "a gradient"),
        ("multi_sum_sq", "a training step"),
        ("_image_random_hue", "random image augmentation"),
    ],
)
def test_operator_reads_and_writes_what_it_always_did(op: str, reason: str, dtype: DType) -> None:
    net = Net()
    hidden = net.fc(net.var("data"), name="before")
    graph = net.graph(net.fc(net.op(op, hidden, name="strange"), name="after"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is known, so there is nothing to warn of
        model = convert(graph, net.params, dtype)
    assert_sound(graph, model)
    node = model.report.node("strange")
    assert (node.color, node.rule, node.compute) == ("red", "never in inference", "float32")
    assert node.reason.startswith(reason)
    assert reads(model.graph, "strange") == ["before_amp_cast_float32"]
    assert f"strange -> {dtype}" in casts(model.graph)


def test_wish_for_low_precision_is_refused_with_the_reason() -> None:
    net = Net()
    graph = net.graph(net.op("_backward_Activation", net.fc(net.var("data")), name="strange"))
    policy = Policy.default(BF16).with_color_function(lambda node: "green")
    model = convert(graph, net.params, policy=policy)
    node = model.report.node("strange")
    assert node.compute == "float32"
    assert "although green was asked for" in node.reason
