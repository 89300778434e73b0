from __future__ import annotations

import dataclasses
import math

import pytest

from mxamp.compare.metrics import Distance
from mxamp.compare.text import format_fidelity


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 96, 120, 200])
def test_no_line_is_longer_than_the_width(fidelity, width):
    text = format_fidelity(fidelity, width)
    assert max(len(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize("width", [20, 60, 120])
def test_every_width_shows_outputs_layers_and_marks(fidelity, width):
    squeezed = "".join(format_fidelity(fidelity, width).split())
    for wanted in ("fc0_output", "0.25", "stage2_unit10_conv2_fwd", "first,jump", "bn0", "Anote."):
        assert wanted in squeezed


def test_the_summary_says_where_it_starts_and_what_was_fused(fidelity):
    lines = format_fidelity(fidelity, 200).splitlines()
    assert "FP32 outputs: fusion off. Converted outputs: with fusion, as deployed." in lines
    assert "Starts to differ at conv0 (Convolution, bfloat16): relative L2 0.002." in lines
    assert "First above the threshold of 0.0625: conv1 (Convolution, bfloat16) with 0.5." in lines
    assert "The error grows most at: conv1 (x90)." in lines
    assert "No NaN and no infinity in either model's outputs." in lines


def test_the_terminal_width_is_used(fidelity, monkeypatch):
    monkeypatch.setenv("COLUMNS", "44")
    assert max(len(line) for line in str(fidelity).splitlines()) <= 44


def test_non_finite_values_are_counted_per_model(fidelity):
    distance = Distance(10, math.inf, math.inf, 0.0, None, reference_nan=1, converted_nan=2, converted_inf=3)
    broken = dataclasses.replace(fidelity.outputs[0], distance=distance)
    text = format_fidelity(dataclasses.replace(fidelity, outputs=(broken,)), 200)
    assert "1/2" in text
    assert "0/3" in text
    assert "No NaN" not in text


def test_it_speaks_of_accuracy_only_to_say_that_this_is_not_it(fidelity):
    text = " ".join(format_fidelity(fidelity, 80).split())
    assert text.count("accuracy") == 1
    assert "not accuracy" in text


def test_equal_models_say_so(fidelity):
    same = Distance(10, 0.0, 0.0, 0.0, 1.0)
    layers = tuple(dataclasses.replace(layer, distance=same, jump=1.0) for layer in fidelity.layers)
    text = format_fidelity(dataclasses.replace(fidelity, layers=layers), 100)
    assert "No layer differs" in text
    assert "No entry exceeds the threshold" in text
