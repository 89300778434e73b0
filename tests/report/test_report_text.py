"""The report as text: every decision that matters is on the screen, at any width."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mxamp.decisions import LowPrecision
from mxamp.messages.counts import count_of, some_of
from mxamp.policy import Policy
from mxamp.report.model import Report
from mxamp.report.text import summary
from tests import building
from tests.building import BF16, LOW, Net, capable, parameters


def convert(net: Net, *heads, dtype=BF16, policy: Policy | None = None, **options) -> Report:
    model = building.converted(
        net.graph(*heads),
        parameters(net.params),
        {},
        policy=policy or Policy.default(dtype),
        target=capable(dtype),
        **options,
    )
    assert model.report is not None
    return model.report


@pytest.fixture
def report() -> Report:
    net = Net()
    first = net.fc(net.var("data"), "fc0")
    power = net.op("exp", first, name="exp0")
    return convert(net, net.fc(power, "fc1"), power)


def test_str_of_a_report_is_its_summary(report, monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    assert str(report) == summary(report, 90)


def test_summary_counts_colors_and_dtypes(report):
    lines = summary(report, 100).splitlines()
    assert lines[0] == (
        "Converted to bfloat16 for the target capable-bfloat16: 2 of 3 operator nodes compute in bfloat16."
    )
    table = [line.split() for line in lines]
    assert ["green", "2", "0"] in table
    assert ["red", "0", "1"] in table


def test_summary_says_where_each_cast_is_and_why(report):
    text = summary(report, 200)
    reason = report.node("exp0").reason
    assert "4 casts at run time: 2 down, 2 up" in text
    for kind, why, place in (
        ("float32 -> bfloat16", "an input of the model, which stays float32", "data for fc0"),
        ("bfloat16 -> float32", f"what reads it needs float32: {reason}", "fc0 for exp0"),
        ("float32 -> bfloat16", f"what makes it stays float32: {reason}", "exp0 for fc1"),
        ("bfloat16 -> float32", "an output of the model, which stays float32", "fc1 for (output)"),
    ):
        assert f"  {kind}: {why}\n      {place}\n" in text


@pytest.mark.parametrize(("reasons", "left_out"), [(13, 0), (14, 2)])
def test_one_more_reason_is_shown_and_not_counted(reasons, left_out):
    net = Net()
    nodes = [net.op("exp", net.var(f"x{number}"), name=f"exp{number}") for number in range(reasons)]
    report = convert(net, *nodes)
    apart = [replace(node, reason=f"reason {number}") for number, node in enumerate(report.nodes)]
    text = summary(replace(report, nodes=tuple(apart), casts=()), 100)
    assert text.count("1 node: reason ") == reasons - left_out
    assert ("other reason" in text) is bool(left_out)
    assert not left_out or "and 2 nodes for 2 other reasons." in text


def test_what_subtracts_no_mean_is_not_said_to():
    net = Net()
    norm = net.op("L2Normalization", net.var("data"), name="norm")
    window = net.op("LRN", norm, name="lrn", outputs=2, nsize=5)
    for node in convert(net, window).nodes:
        assert "mean" not in node.reason
        assert "squares" in node.reason


def test_summary_groups_float32_nodes_by_reason():
    net = Net()
    entry = net.fc(net.var("data"), "fc0")
    for number in range(9):
        entry = net.op("exp", entry, name=f"exp{number}")
    text = summary(convert(net, entry), 100)
    assert "9 nodes: " in text
    assert "exp0, exp1, exp2, exp3, exp4, exp5 and 3 more" in text


def test_summary_gives_the_parameters_before_and_after(report):
    assert "Parameters: 128 bytes -> 64 bytes (50.0 %) in 2 arrays." in summary(report, 100)


def test_summary_names_parameters_that_are_stored_twice():
    net = Net()
    weight = net.param("shared", 4, 4)
    low = net.op("FullyConnected", net.var("data"), weight, name="fc0", num_hidden=4, no_bias=True)
    heads = (low, net.op("exp", weight, name="exp0"))
    text = summary(convert(net, *heads, low_precision=LowPrecision.REQUIRED), 200)
    assert "Stored in two dtypes, because their readers disagree: shared." in text


def test_long_lists_are_shortened_and_say_so():
    net = Net()
    data = net.var("data")
    outputs = [net.op("exp", net.fc(data, f"fc{n}"), name=f"exp{n}") for n in range(30)]
    report = convert(net, *outputs)
    text = summary(report, 100)
    assert "  30 x bfloat16 -> float32: what reads it needs float32" in text
    assert "      and 26 more" in text
    assert len(text.splitlines()) < 60


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("dtype", LOW)
def test_no_line_is_too_wide(width, dtype):
    net = Net()
    first = net.fc(net.var("data"), "a_network_with_rather_long_names_stage1_unit1_fc0_fwd")
    report = convert(net, net.op("exp", first, name="exp0"), dtype=dtype)
    assert max(map(len, summary(report, width).splitlines())) <= width


def test_model_without_operators_has_a_summary():
    net = Net()
    assert "No operator nodes." in summary(convert(net, net.var("data")), 80)


@pytest.mark.parametrize(("number", "text"), [(0, "0 casts"), (1, "1 cast"), (1200, "1,200 casts")])
def test_counts_agree_with_their_noun(number, text):
    assert count_of(number, "cast") == text


def test_one_name_more_is_shown_instead_of_counted():
    assert some_of(["a", "b", "c"], 2) == "a, b, c"
    assert some_of(["a", "b", "c", "d"], 2) == "a, b and 2 more"
