"""What the policy says of MXNet's NumPy mode: a color for every operator, and two rules of its own."""

from __future__ import annotations

import sys

import pytest

from mxamp.dtypes import DType
from mxamp.graph import Entry
from mxamp.ops import FACTS
from mxamp.policy import Color, Policy
from mxamp.policy.built_in import TABLE
from tests.building import BF16, F16, LOW, Net, colors, convert, plan_for

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NUMPY_MODE = ("_np_", "_npi_", "_npx_")


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_every_operator_of_numpy_mode_has_a_color_and_a_reason(dtype: DType) -> None:
    operators = Policy.default(dtype).operators
    records = [record for record in FACTS.records() if record.name.startswith(NUMPY_MODE)]
    assert len(records) > 190
    assert [record.name for record in records if not operators[record.name].reason] == []


def test_no_operator_is_in_the_built_in_table_twice() -> None:
    groups = tomllib.loads(TABLE.read_text("utf-8"))["group"]
    names = [name for group in groups for name in group["operators"]]
    assert len(set(names)) == len(names)
    for dtype in LOW:
        assert set(names) == set(Policy.default(dtype).operators)


def test_the_built_in_table_says_everything_of_every_dtype() -> None:
    table = tomllib.loads(TABLE.read_text("utf-8"))
    for entry in (*table["group"], *table["condition"]):
        for dtype in LOW:
            stated = {**entry, **entry.get(str(dtype), {})}
            assert {"color", "reason"} <= set(stated), entry
            assert "{" not in stated["reason"].format_map({**table["facts"][str(dtype)], "dtype": dtype})


@pytest.mark.parametrize("dtype", LOW, ids=str)
@pytest.mark.parametrize(
    ("numpy_mode", "legacy"),
    [
        ("_npx_reshape", "Reshape"),
        ("_npi_concatenate", "Concat"),
        ("_npi_add", "broadcast_add"),
        ("_npi_multiply_scalar", "_mul_scalar"),
        ("_npi_exp", "exp"),
        ("_npi_log", "log"),
        ("_npi_square", "square"),
        ("_npi_power", "broadcast_power"),
        ("_np_sum", "sum"),
        ("_npi_mean", "mean"),
        ("_npx_relu", "relu"),
        ("_np_max", "max"),
        ("_npi_greater", "broadcast_greater"),
        ("_npi_argmax", "argmax"),
        ("_npi_where", "where"),
        ("_np_dot", "dot"),
        ("_npi_normal", "_random_normal"),
    ],
)
def test_an_operator_has_the_color_of_its_twin_without_numpy(
    numpy_mode: str, legacy: str, dtype: DType
) -> None:
    operators = Policy.default(dtype).operators
    assert operators[numpy_mode].color is operators[legacy].color


def test_a_product_that_sums_in_float16_is_red() -> None:
    entry = Policy.default(F16).operators["_npi_matmul"]
    assert entry.color is Color.RED
    assert "sums in float16" in entry.reason


def product(other: str) -> Net:
    """Return features times a variable of this dtype code."""
    net = Net()
    net.op("_npi_multiply", net.fc(net.var("x")), net.var("other", __dtype__=other), name="product")
    return net


@pytest.mark.parametrize(
    ("dtype", "other", "color"),
    [
        (BF16, DType.INT32, Color.RED),
        (BF16, DType.BOOL, Color.RED),
        (F16, DType.INT64, Color.RED),
        (F16, DType.BOOL, Color.GRAY),
        (BF16, DType.FLOAT32, Color.GRAY),
        (F16, DType.FLOAT32, Color.GRAY),
    ],
    ids=str,
)
def test_low_precision_beside_integers_is_refused_where_it_would_change_the_result(
    dtype: DType, other: DType, color: Color
) -> None:
    net = product(str(other.value))
    verdict = colors(net.graph(_last(net)), net.params, dtype)["product"]
    assert verdict.color is color
    assert (verdict.rule == "promotion") is (color is Color.RED)


def _last(net: Net) -> Entry:
    return Entry(len(net.nodes) - 1)


def test_a_users_green_does_not_turn_features_into_integers() -> None:
    net = product(str(DType.INT32.value))
    model = convert(net.graph(_last(net)), net.params, BF16, policy=_green(BF16))
    assert model.report is not None
    node = model.report.node("product")
    assert node.compute == "float32"
    assert "drops the fractions" in node.reason


def _green(dtype: DType) -> Policy:
    return Policy.default(dtype).with_color_function(lambda node: Color.GREEN)


def test_inputs_of_two_float_dtypes_are_made_one_before_they_meet() -> None:
    """MXNet's kernels do not take every mix that its type inference does."""
    net = Net()
    net.op("_npi_add", net.fc(net.var("x")), net.param("bias", 4), name="sum")
    for dtype in LOW:
        decision = plan_for(net.graph(_last(net)), net.params, dtype).decisions[-1]
        assert decision is not None
        assert len(set(decision.inputs)) == 1
        assert decision.outputs == (decision.compute,)


@pytest.mark.parametrize(
    ("op", "inputs", "dtype"),
    [("_npi_hypot", 2, BF16), ("_npi_arctan2", 2, BF16), ("_npi_around", 1, F16)],
)
def test_a_dtype_that_mxnet_refuses_is_never_chosen(op: str, inputs: int, dtype: DType) -> None:
    net = Net()
    net.op(op, *(net.var(f"x{number}") for number in range(inputs)), name="n")
    verdict = colors(net.graph(_last(net)), {}, dtype, _green(dtype))["n"]
    assert verdict.color is Color.RED
    assert "refuses" in verdict.reason


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("_npi_add_scalar", {"scalar": -1e18}),
        ("_npi_where_rscalar", {"scalar": -1e18}),
        ("_npi_where_scalar2", {"x": 0, "y": -1e18}),
        ("_npi_full_like", {"fill_value": -1e18}),
    ],
)
def test_a_mask_stays_float32_up_to_its_softmax(op: str, attrs: dict[str, float]) -> None:
    net = Net()
    inputs = [net.var("mask"), net.var("y")] if op == "_npi_where_rscalar" else [net.var("mask")]
    mask = net.op(op, *inputs, name="masked", **attrs)
    moved = net.op("_npx_reshape", mask, name="moved", newshape="(-1,)")
    graph = net.graph(net.op("softmax", net.op("_npi_add", moved, net.fc(net.var("x"))), name="prob"))
    verdicts = colors(graph, net.params, F16)
    for name in ("moved", "prob"):
        assert verdicts[name].color is Color.RED, name
        assert "beyond float16's largest value" in verdicts[name].reason


def test_positions_of_argmax_stay_exact() -> None:
    net = Net()
    scores = net.op("_npi_add", net.var("a"), net.param("b", 4), name="scores")
    graph = net.graph(net.op("_npi_argmax", scores, name="best", axis=-1))
    plan = plan_for(graph, net.params, BF16)
    assert plan.decisions[-1] is not None
    assert plan.decisions[-1].outputs == (DType.INT64,)
    assert colors(graph, net.params, BF16)["scores"].rule == "exact region"
