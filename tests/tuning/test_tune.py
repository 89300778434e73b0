"""Tuning chooses what was asked for on one half of the samples, and reports on the other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

import mxamp
from mxamp.cli.main import main
from mxamp.errors import DataError, TargetError
from tests.roofline import ROOFLINE, write_roofline
from tests.tuning.networks import network, with_weights


@pytest.fixture(scope="module")
def model() -> Any:
    return with_weights(network(), data=(1, 3, 12, 12))


@pytest.fixture(scope="module")
def data(model: Any) -> tuple[Any, Any]:
    from mxamp.runtime.executor import run_outputs

    images = np.random.default_rng(0).normal(size=(60, 3, 12, 12)).astype(np.float32)
    return images, run_outputs(model, {"data": images})[0].argmax(1)


@pytest.fixture(scope="module")
def curve(model: Any, data: Any) -> Any:
    return mxamp.tune(model, {"data": data[0]}, target=ROOFLINE, latency_seconds=0)


def test_the_curve_goes_from_fast_to_exact_and_has_todays_conversion(curve: Any) -> None:
    times = [point.estimated_us for point in curve.points]
    predicted = [point.predicted for point in curve.points if not point.is_today]
    assert times == sorted(times)
    assert predicted == sorted(predicted, reverse=True)
    assert sum(point.is_today for point in curve.points) == 1
    assert 2 <= len(curve.points) <= 12
    assert curve.chosen is None
    with pytest.raises(DataError, match="No point was chosen"):
        _ = curve.model


def test_predictions_are_within_a_factor_of_two_of_what_is_measured(curve: Any) -> None:
    pairs = [(p.predicted, p.on_choosing.error) for p in curve.points if p.on_choosing.error > 1e-5]
    assert pairs
    assert all(1 / 2 < predicted / error < 2 for predicted, error in pairs)


def test_the_same_seed_gives_the_same_curve(model: Any, data: Any, curve: Any) -> None:
    again = mxamp.tune(model, {"data": data[0]}, target=ROOFLINE, latency_seconds=0)
    assert again.points == curve.points


def test_the_fastest_within_an_error_is_chosen_and_confirmed_on_other_samples(
    model: Any, data: Any, curve: Any
) -> None:
    limit = 1.1 * curve.points[0].on_choosing.interval[1]
    tuned = mxamp.tune(model, {"data": data[0]}, target=ROOFLINE, latency_seconds=0, max_error=limit)
    assert tuned.chosen == 0
    tighter = curve.points[0].on_choosing.error / 2
    tuned = mxamp.tune(model, {"data": data[0]}, target=ROOFLINE, latency_seconds=0, max_error=tighter)
    assert tuned.chosen is not None
    assert tuned.chosen > 0
    chosen = tuned.points[tuned.chosen]
    assert chosen.on_choosing.interval[1] <= tighter
    assert tuned.is_promised == (chosen.on_reporting.interval[1] <= tighter)
    assert tuned.model is tuned.models[tuned.chosen]
    assert chosen.on_choosing.samples == chosen.on_reporting.samples == 30


def test_the_most_exact_that_is_fast_enough_is_chosen(model: Any, data: Any, curve: Any) -> None:
    speed = curve.points[0].estimated_speed * 0.999
    tuned = mxamp.tune(model, {"data": data[0]}, target=ROOFLINE, latency_seconds=0, min_speed=speed)
    assert tuned.chosen is not None
    assert tuned.points[tuned.chosen].estimated_speed >= speed
    tuned = mxamp.tune(model, {"data": data[0]}, target=ROOFLINE, latency_seconds=0, min_speed=1000)
    assert tuned.is_promised is False
    assert "No point is 1000 times as fast" in str(tuned)


def test_too_few_samples_to_promise_a_drop_is_said(model: Any, data: Any) -> None:
    tuned = mxamp.tune(model, {"data": data[0]}, data[1], target=ROOFLINE, latency_seconds=0, max_drop=0.001)
    assert tuned.is_promised is False
    assert "too few to promise" in str(tuned)
    tuned = mxamp.tune(model, {"data": data[0]}, data[1], target=ROOFLINE, latency_seconds=0, max_drop=0.4)
    assert tuned.chosen == 0
    assert tuned.is_promised
    assert tuned.points[0].on_reporting.metric is not None


def test_labels_are_measured_by_top_1_where_no_metric_is_named(model: Any, data: Any) -> None:
    samples, labels = data
    tuned = mxamp.tune(model, {"data": samples}, labels, target=ROOFLINE, points=2, latency_seconds=0)
    found = [point.on_reporting.metric for point in tuned.points]
    assert [None if metric is None else metric.name for metric in found] == ["top-1"] * len(found)


def test_float16_is_emulated_where_there_are_no_kernels_for_it(model: Any, data: Any) -> None:
    tuned = mxamp.tune(
        model,
        {"data": data[0]},
        target_dtype="float16",
        target="cuda-fp16-sm86",
        batch_size=4096,  # what a GPU is for
        latency_seconds=0,
        points=3,
    )
    assert tuned.how == "emulated"
    assert tuned.points[0].on_choosing.error < 2e-3


def test_a_target_without_costs_is_refused_with_what_to_do(model: Any, data: Any) -> None:
    with pytest.raises(TargetError, match="mxamp probe"):
        mxamp.tune(model, {"data": data[0]}, target="generic-bf16", latency_seconds=0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_error": 1e-3, "min_speed": 2}, "Give one of"),
        ({"max_error": -1.0}, "from 0 on"),
        ({"max_error": 0}, "above 0"),
        ({"max_drop": 0.01}, "no labels"),
        ({"max_samples": 1}, "at least two"),
    ],
)
def test_bad_requests_are_explained(model: Any, data: Any, options: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        mxamp.tune(model, {"data": data[0]}, **options)


def test_a_detector_like_model_is_priced_up_to_its_ranking(data: Any) -> None:
    sym = mx.sym.topk(network(), k=3, ret_typ="value", name="best")
    tuned = mxamp.tune(
        with_weights(sym, data=(1, 3, 12, 12)),
        {"data": data[0]},
        target=ROOFLINE,
        latency_seconds=0,
        points=2,
    )
    assert "has no gradient" in str(tuned)


def test_every_kind_of_model_gives_the_same_curve(model: Any, data: Any, curve: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "net")
    for given in ((model.sym, model.args, model.auxs), tmp_path / "net"):
        found = mxamp.tune(given, {"data": data[0]}, target=ROOFLINE, latency_seconds=0)
        assert [p.float32 for p in found.points] == [p.float32 for p in curve.points]


def test_sensitivity_ranks_roundings_and_shares_add_up(model: Any, data: Any) -> None:
    found = mxamp.sensitivity(model, {"data": data[0]}, target=ROOFLINE)
    for ranked in (found.activations, found.weights):
        errors = [one.error for one in ranked]
        assert errors == sorted(errors, reverse=True)
    total = sum(one.share for one in (*found.activations, *found.weights))
    assert total == pytest.approx(1.0)
    assert found.error == pytest.approx(np.hypot(found.of_activations, found.of_weights))
    assert all(one.microseconds is None or one.microseconds >= 0 for one in found.activations)
    assert "cumulated" in str(found)


def test_the_commands_print_draw_and_write(
    model: Any, data: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model.save(tmp_path / "net")
    np.savez(tmp_path / "val.npz", data=data[0], label=data[1])
    target = ["--target", write_roofline(tmp_path)]
    given = [str(tmp_path / "net"), "--data", str(tmp_path / "val.npz"), *target]
    assert main(["sensitivity", *given]) == 0
    assert "to avoid" in capsys.readouterr().out
    assert main(["sensitivity", *given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 32
    options = ["--latency-seconds", "0", "--points", "3"]
    assert main(["tune", *given, *options]) == 0
    assert "today" in capsys.readouterr().out
    out = tmp_path / "tuned"
    assert main(["tune", *given, *options, "--max-error", "0.5", "-o", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["is_promised"] is True
    assert mxamp.load(out).graph is not None
    assert main(["tune", *given, *options, "--max-error", "0.5", "-o", str(out)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert main(["tune", *given, *options, "-o", str(tmp_path / "other")]) == 2
    assert "nothing says which" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_curve_is_drawn(curve: Any, tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    curve.plot(tmp_path / f"curve.{suffix}")
    assert (tmp_path / f"curve.{suffix}").stat().st_size > 1000
    with pytest.raises(DataError, match=r"\.png or an \.svg"):
        curve.plot(tmp_path / "curve.gif")
