"""Prices in a calibration: kept, merged, shown, and what a conversion does with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

mx = pytest.importorskip("mxnet")

import mxamp
from mxamp.calibration import Calibration
from mxamp.calibration.pricing import price_roundings
from mxamp.errors import PolicyError
from mxamp.model import Model
from mxamp.runtime.executor import run_outputs
from tests.building import Net, parameters
from tests.calibration.models import small_model

Images = NDArray[np.float32]


@pytest.fixture(scope="module")
def samples() -> Images:
    return np.random.default_rng(0).standard_normal((24, 3, 32, 32)).astype(np.float32)


@pytest.fixture(scope="module")
def model() -> Model:
    """Six convolutions of one size, and a wide dense layer at the end."""
    random = np.random.default_rng(0)
    net = Net()
    x = net.var("data")
    reads = 3
    for number in range(6):
        weight = net.param(f"conv{number}_weight", 32, reads, 3, 3)
        net.params[f"conv{number}_weight"] = (
            random.standard_normal((32, reads, 3, 3)) / np.sqrt(4.5 * reads)
        ).astype(np.float32)
        x = net.op(
            "Convolution",
            x,
            weight,
            name=f"conv{number}",
            kernel="(3, 3)",
            pad="(1, 1)",
            num_filter=32,
            no_bias=True,
        )
        x = net.op("Activation", x, name=f"relu{number}", act_type="relu")
        reads = 32
    x = net.op("Pooling", x, name="pool", kernel="(1, 1)", global_pool=True, pool_type="avg")
    weight, bias = net.param("fc_weight", 4, 32), net.param("fc_bias", 4)
    graph = net.graph(net.op("FullyConnected", x, weight, bias, name="fc", num_hidden=4))
    return Model(graph, parameters(net.params), {})


@pytest.fixture(scope="module")
def calibration(model: Model, samples: Images) -> Calibration:
    return mxamp.calibrate(model, samples[:16])


def converted(model: Model, **options: Any) -> Model:
    return mxamp.convert_model(
        model.graph,
        model.arg_params,
        model.aux_params,
        "bfloat16",
        target="cpu-bf16",
        input_shapes={"data": (1, 3, 32, 32)},
        **options,
    )


def error_and_time(model: Model, found: Model, samples: Images) -> tuple[float, float]:
    exact, own = (run_outputs(each, {"data": samples[16:]})[0] for each in (model, found))
    assert found.report is not None
    assert found.report.time is not None
    return float(np.linalg.norm(own - exact) / np.linalg.norm(exact)), found.report.time.mixed_us


def test_a_calibration_has_the_prices_and_keeps_them(
    model: Model, calibration: Calibration, samples: Images, tmp_path: Path
) -> None:
    prices = calibration.prices
    assert prices is not None
    apart = price_roundings(model, samples[:16], draws=2)
    assert prices.entries == apart.entries
    assert prices.parameters == apart.parameters
    assert prices.samples == 16
    calibration.save(tmp_path / "it.calibration")
    assert Calibration.load(tmp_path / "it.calibration").prices == prices
    assert "roundings priced with 16 samples" in str(calibration)


def test_merged_prices_are_the_mean_over_all_samples(
    model: Model, calibration: Calibration, samples: Images
) -> None:
    other = mxamp.calibrate(model, samples[16:])
    merged = calibration.merge(other).prices
    assert merged is not None
    assert calibration.prices is not None
    assert other.prices is not None
    assert merged.samples == 24
    for name, price in merged.entries["bfloat16"].items():
        both = [each.entries["bfloat16"][name] for each in (calibration.prices, other.prices)]
        assert price == pytest.approx((16 * both[0] + 8 * both[1]) / 24)


def test_a_calibration_without_prices_says_why(samples: Images) -> None:
    images = np.random.default_rng(0).standard_normal((4, 4, 8, 8)).astype(np.float32)
    without = mxamp.calibrate(small_model(), images, prices=False)
    assert without.prices is None
    assert "not known: that was left out." in str(without)
    ranked = mx.sym.argmax(mx.sym.var("data"), axis=1, name="ranked")
    found = mxamp.calibrate((ranked, {}, {}), images)
    assert found.prices is None
    assert "has a gradient" in found.why_unpriced


def test_more_time_buys_a_smaller_error(model: Model, calibration: Calibration, samples: Images) -> None:
    budgets = (0.0, 0.1, 0.4, 1.0)
    found = [converted(model, calibration=calibration, time_budget=budget) for budget in budgets]
    errors, times = zip(*(error_and_time(model, each, samples) for each in found))
    assert all(time <= (1.001 + budget) * times[0] for time, budget in zip(times, budgets))
    assert errors[1] <= errors[0]
    assert errors[-1] < 1e-5  # whoever gives a budget wants no file that is small besides
    assert found[1].report is not None
    reasons = [node.reason for node in found[1].report.nodes]
    assert any(
        "errs least for at most 10 % more time, as priced by the calibration" in why for why in reasons
    )


def test_without_a_budget_as_much_is_given_up_as_without_a_calibration(
    model: Model, calibration: Calibration, samples: Images
) -> None:
    default = converted(model)
    own = converted(model, calibration=calibration)
    fastest = converted(model, calibration=calibration, time_budget=0)
    error, time = error_and_time(model, own, samples)
    assert time <= 1.021 * error_and_time(model, fastest, samples)[1]
    assert error <= 1.05 * error_and_time(model, default, samples)[0]


def test_compensation_does_not_change_what_the_guard_measured(
    model: Model, calibration: Calibration, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mxamp.conversion.options import Options
    from mxamp.policy.resolve import resolve_policy
    from mxamp.targets import Target

    policy = resolve_policy(None, "bfloat16", model.graph)
    options = Options(
        policy,
        Target.for_dtype(policy.target_dtype),
        calibration=calibration,
        compensate=mxamp.calibration.Compensation("full"),
    )
    from mxamp.conversion import Source, convert_graph

    source = Source(model.graph, model.arg_params, model.aux_params)
    trial, whole = (convert_graph(source, each) for each in (replace(options, is_trial=True), options))
    assert trial.graph == whole.graph
    assert trial.report is not None
    assert whole.report is not None
    assert trial.report.compensation is None
    assert whole.report.compensation is not None


@pytest.mark.parametrize("budget", [-0.1, "much", True, float("nan"), 11])
def test_what_is_no_budget_is_refused(model: Model, calibration: Calibration, budget: Any) -> None:
    with pytest.raises(PolicyError, match="time_budget must be a number from 0 to 10"):
        converted(model, calibration=calibration, time_budget=budget)


def test_a_budget_needs_prices(model: Model, calibration: Calibration) -> None:
    with pytest.raises(PolicyError, match="weighs time against errors: give calibration"):
        converted(model, time_budget=0.1)
    unpriced = replace(calibration, prices=None, why_unpriced="that was left out")
    with pytest.raises(PolicyError, match="that was left out"):
        converted(model, calibration=unpriced, time_budget=0.1)
