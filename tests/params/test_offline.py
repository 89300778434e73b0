"""Parameters cast in the background are the same, bit for bit, as parameters cast one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.dtypes import DType
from mxamp.ops.cast_batch import can_batch_casts
from mxamp.params.offline import OfflineCasts
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.params.scaled import ScaledParameter
from mxamp.params.unmeasured import unmeasured_parameters
from tests.building import BF16, F16, F32, LOW, Net, convert

RANDOM = np.random.default_rng(11)

every_low = pytest.mark.parametrize("dtype", LOW, ids=str)


@pytest.fixture(params=[True, False], ids=["native", "NumPy"])
def native(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run with the native kernels, and without."""
    if not request.param:
        monkeypatch.setenv("MXAMP_NATIVE", "0")
    elif not can_batch_casts():
        pytest.skip("the native kernels are not built here: no compiler")
    return bool(request.param)


def weight(*shape: int, scale: float = 1.0) -> ArrayParameter:
    return ArrayParameter((RANDOM.standard_normal(shape) * scale).astype(np.float32))


def scaled(*shape: int, factors: tuple[int, ...]) -> ScaledParameter:
    return ScaledParameter(weight(*shape), RANDOM.uniform(0.1, 3.0, factors))


def bits(parameter: Parameter) -> Any:
    return parameter.values().view(np.uint16)


PARAMETERS = {
    "a large weight": weight(300, 700),
    "one value": weight(1),
    "no values": weight(0, 3),
    "a convolution, scaled": scaled(64, 33, 3, 3, factors=(64, 1, 1, 1)),
    "a depthwise convolution, scaled": scaled(32, 1, 3, 3, factors=(32, 1, 1, 1)),
    "a deconvolution, scaled": scaled(16, 8, 4, 4, factors=(16, 8, 1, 1)),
    "one channel, scaled": scaled(1, 70_000, factors=(1, 1)),
    "long rows": scaled(3, 100_000, factors=(3, 1)),
    "transposed": ArrayParameter(RANDOM.standard_normal((50, 40)).astype(np.float32).T),
    "float64": ArrayParameter(RANDOM.standard_normal(1000)),
}


@every_low
def test_the_bits_are_those_of_casting_one_by_one(dtype: DType, native: bool) -> None:
    with OfflineCasts(PARAMETERS, {name: [dtype] for name in PARAMETERS}) as casts:
        pass

    for name, parameter in PARAMETERS.items():
        np.testing.assert_array_equal(bits(casts.results[name, dtype]), bits(parameter.cast(dtype)), name)
    assert not casts.may_have_lost_range


def test_both_dtypes_of_one_parameter(native: bool) -> None:
    with OfflineCasts({"w": PARAMETERS["a large weight"]}, {"w": [F16, BF16]}) as casts:
        pass

    for dtype in LOW:
        expected = PARAMETERS["a large weight"].cast(dtype)
        np.testing.assert_array_equal(bits(casts.results["w", dtype]), bits(expected))


def test_leaving_by_an_error_waits_for_the_casts(native: bool) -> None:
    with pytest.raises(KeyError, match="elsewhere"):  # noqa: SIM117  (the inner block is what is tested)
        with OfflineCasts({"w": PARAMETERS["a large weight"]}, {"w": [BF16]}) as casts:
            raise KeyError("elsewhere")

    expected = PARAMETERS["a large weight"].cast(BF16)
    np.testing.assert_array_equal(bits(casts.results["w", BF16]), bits(expected))


@pytest.mark.skipif(not can_batch_casts(), reason="the native kernels are not built here: no compiler")
@pytest.mark.parametrize(
    ("values", "dtype", "lost"),
    [
        pytest.param([1.0, 65504.0], F16, False, id="the largest float16"),
        pytest.param([1.0, -65520.0], F16, True, id="beyond float16"),
        pytest.param([1.0, 1e30], BF16, False, id="large in bfloat16"),
        pytest.param([1.0, 3.4e38], BF16, True, id="beyond bfloat16"),
        pytest.param([1e-9, 1e-9, 1.0], F16, True, id="mostly zero in float16"),
        pytest.param([1e-9, 1.0, 1.0, 1.0], F16, False, id="few become zero"),
        pytest.param([1e-9, 1e-9, 1.0], BF16, False, id="bfloat16 has the exponents"),
    ],
)
def test_values_out_of_range_are_noticed_in_passing(values: list[float], dtype: DType, lost: bool) -> None:
    parameter = ArrayParameter(np.float32(values))

    with OfflineCasts({"w": parameter}, {"w": [dtype]}) as casts:
        pass

    assert casts.may_have_lost_range == lost
    assert lost == (parameter.range_loss(dtype) is not None)


def layer_with(values: np.ndarray[Any, Any]) -> tuple[Any, dict[str, Any]]:
    """Return x -> FullyConnected -> BatchNorm -> FullyConnected with ``values`` in the first weight."""
    net = Net()
    hidden = net.bn(net.fc(net.var("x"), name="first"), "bn")
    graph = net.graph(net.fc(hidden, name="second"))
    first = net.params["first_weight"]
    first.reshape(-1)[: values.size] = values
    return graph, net.params


@pytest.mark.skipif(not can_batch_casts(), reason="the native kernels are not built here: no compiler")
@pytest.mark.parametrize("fold", [False, True], ids=["as it is", "folded"])
@pytest.mark.parametrize(
    "values",
    [
        pytest.param([0.5], id="in range"),
        pytest.param([1e5], id="beyond float16"),
        pytest.param([3.4e38], id="beyond bfloat16"),
        pytest.param([np.inf], id="infinite"),
        pytest.param([np.nan], id="NaN"),
        pytest.param([1e-9] * 16, id="below float16"),
        pytest.param([0.0] * 16, id="zero"),
    ],
)
@every_low
def test_a_conversion_does_not_depend_on_the_native_kernels(
    dtype: DType, values: list[float], fold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, params = layer_with(np.float32(values))

    fast = convert(graph, params, dtype, fold_batch_norm=fold)
    monkeypatch.setenv("MXAMP_NATIVE", "0")
    slow = convert(graph, params, dtype, fold_batch_norm=fold)

    assert fast.graph == slow.graph
    assert fast.report == slow.report
    assert list(fast.arg_params) == list(slow.arg_params)
    for name, parameter in slow.arg_params.items():
        np.testing.assert_array_equal(
            fast.arg_params[name].values().view(np.uint8), parameter.values().view(np.uint8), name
        )


def test_a_parameter_that_decides_where_float32_spreads_is_measured() -> None:
    net = Net()
    multiplied = net.fc(net.var("x"), name="fc")
    mask = net.param("mask", 4)
    graph = net.graph(net.op("broadcast_add", multiplied, mask))
    given = {name: ArrayParameter(values) for name, values in net.params.items()}

    assert "mask" not in unmeasured_parameters(graph, given)


def test_only_float32_parameters_that_no_output_hands_on_are_left_unmeasured() -> None:
    net = Net()
    layer = net.fc(net.var("x"), name="fc")
    graph = net.graph(layer, graph_entry(net, "fc_weight"))

    assert unmeasured_parameters(graph, {"fc_weight": weight(4, 4)}) == {}
    double = ArrayParameter(np.ones((4, 4)))
    assert unmeasured_parameters(net.graph(layer), {"fc_weight": double}) == {}
    assert double.dtype is not F32


def graph_entry(net: Net, name: str) -> Any:
    """Return the entry of a variable that was added before."""
    from mxamp.graph import Entry

    return Entry(next(position for position, node in enumerate(net.nodes) if node.name == name))
