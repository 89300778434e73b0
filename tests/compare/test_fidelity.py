from __future__ import annotations

import dataclasses
import json
import math

import pytest

from mxamp.compare.metrics import Distance
from mxamp.errors import AccuracyError, DataError


def with_output(fidelity, **changes):
    output = dataclasses.replace(fidelity.outputs[0], **changes)
    return dataclasses.replace(fidelity, outputs=(output,))


def test_first_difference_threshold_and_jumps_name_the_layers(fidelity):
    assert fidelity.first_difference.name == "conv0"
    assert fidelity.first_above_threshold.name == "conv1"
    assert [layer.name for layer in fidelity.largest_jumps()] == ["conv1"]


def test_without_layers_there_is_no_first_difference(fidelity):
    bare = dataclasses.replace(fidelity, layers=None)
    assert (bare.first_difference, bare.first_above_threshold, bare.largest_jumps()) == (None, None, ())


def test_an_error_at_the_tolerance_is_accepted(fidelity):
    fidelity.check(0.25)


def test_an_error_beyond_the_tolerance_names_output_and_layer(fidelity):
    with pytest.raises(AccuracyError) as caught:
        fidelity.check(0.1)
    assert str(caught.value) == (
        "The output 'fc0_output' is further from FP32 than the tolerance: its relative L2 error is 0.25, the "
        "tolerance 0.1. The error grows most at 'conv1' (Convolution), to 0.5: try --exclude conv1."
    )


def test_an_error_that_fusion_makes_is_not_blamed_on_a_layer(fidelity):
    with pytest.raises(AccuracyError, match=r"With fusion off it is 0\.004, so MXNet's fused operators"):
        with_output(fidelity, unfused_relative_l2=0.004).check(0.1)


@pytest.mark.parametrize("tolerance", [-1.0, math.nan])
def test_a_tolerance_that_is_no_distance_is_refused(fidelity, tolerance):
    with pytest.raises(DataError, match="must be a number from 0 on"):
        fidelity.check(tolerance)


def test_infinite_error_exceeds_every_tolerance(fidelity):
    broken = with_output(fidelity, distance=Distance(1, math.inf, math.inf, 0.0, None, converted_inf=1))
    with pytest.raises(AccuracyError, match="is inf"):
        broken.check(1e30)


def test_json_is_strict_and_complete(fidelity):
    broken = with_output(fidelity, distance=Distance(1, math.inf, math.inf, 0.0, None, converted_inf=1))

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    document = json.loads(broken.to_json(), parse_constant=refuse)
    assert document["format"] == 1
    assert document["outputs"][0]["distance"]["relative_l2"] == "inf"
    assert document["outputs"][0]["distance"]["sqnr_db"] == "-inf"
    assert document["outputs"][0]["distance"]["cosine"] is None
    assert document["layers"][1]["distance"]["sqnr_db"] == pytest.approx(6.02, abs=0.01)
    assert document["first_above_threshold"] == "conv1"
    assert document["largest_jumps"] == ["conv1"]
    assert document["notes"] == ["A note."]


def test_json_without_layers_says_null(fidelity):
    document = json.loads(dataclasses.replace(fidelity, layers=None).to_json())
    assert document["layers"] is None
    assert document["first_difference"] is None
