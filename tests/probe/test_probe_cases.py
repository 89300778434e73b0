"""The cases: what the target's table needs is measured, and shapes are what they say."""

from __future__ import annotations

import pytest

from mxamp.ops import FACTS
from mxamp.probe.case import Dims, of
from mxamp.probe.cases import all_cases
from mxamp.probe.jobs import BEHIND, CHECK, PLAIN, TIME, is_on_volumes, jobs_of, units_of
from mxamp.targets import Target

CASES = all_cases()

ZOO = (
    *("Activation", "BatchNorm", "BlockGrad", "Cast", "Concat", "Convolution", "Deconvolution", "Dropout"),
    *(
        "Flatten",
        "FullyConnected",
        "L2Normalization",
        "LeakyReLU",
        "Pad",
        "Pooling",
        "Reshape",
        "SliceChannel",
    ),
    *("SwapAxis", "UpSampling", "_contrib_AdaptiveAvgPooling2D", "_contrib_BilinearResize2D"),
    *("_contrib_ModulatedDeformableConvolution", "_contrib_ROIAlign", "_contrib_SyncBatchNorm"),
    *("_contrib_box_decode", "_contrib_box_nms", "_div_scalar", "_equal_scalar", "_greater_scalar"),
    *("_lesser_scalar", "_maximum_scalar", "_minus_scalar", "_mul_scalar", "_plus_scalar", "add_n"),
    *("amp_multicast", "argsort", "batch_dot", "broadcast_add", "broadcast_axis", "broadcast_div"),
    *("broadcast_equal", "broadcast_like", "broadcast_minimum", "broadcast_mod", "broadcast_mul", "clip"),
    *("elemwise_add", "elemwise_mul", "elemwise_sub", "exp", "expand_dims", "floor", "gather_nd", "log2"),
    *("max", "mean", "ones_like", "relu", "repeat", "reshape_like", "reverse", "shape_array", "sigmoid"),
    *("slice", "slice_axis", "slice_like", "softmax", "sqrt", "squeeze", "stack", "sum", "tile", "topk"),
    *("transpose", "where", "zeros_like"),
)
"""What GluonCV's float models are made of, but for ``_arange``, which reads nothing."""


def test_every_operator_of_the_zoo_is_measured() -> None:
    measured = {FACTS.canonical(case.steps[0].op) for case in CASES.values() if len(case.steps) == 1}
    assert set(ZOO) - measured == set()


def test_every_operator_of_the_built_in_target_is_measured() -> None:
    measured = {FACTS.canonical(case.steps[0].op) for case in CASES.values() if len(case.steps) == 1}
    assert set(Target.builtin("cpu-bf16").operators) - measured == set()


def test_every_operator_has_facts() -> None:
    operators = {one.op for case in CASES.values() for one in case.steps}
    assert {op for op in operators if FACTS.get(FACTS.canonical(op)) is None} == set()


@pytest.mark.parametrize("name", ["relu", "zeros_like", "Reshape (0, -1)", "elemwise_add 4-D"])
def test_operators_are_checked_behind_convolutions_of_images_and_volumes(name: str) -> None:
    image, volume = CASES[name], CASES[f"{name}, on volumes"]
    for case, axes in ((image, 4), (volume, 5)):
        jobs = [job for job in jobs_of(case, CHECK) if job["feed"] == BEHIND]
        assert {job["dims"][1] for job in jobs} >= {24, 3}
        assert all(len(case.first.shape(Dims(*job["dims"]))) == axes for job in jobs)
        assert all(is_on_volumes(case, job) == (axes == 5) for job in jobs)
    assert not any(is_on_volumes(volume, job) for job in jobs_of(volume, CHECK) if job["feed"] == PLAIN)


def test_plain_inputs_come_first_so_that_a_crash_there_is_seen() -> None:
    for case in CASES.values():
        feeds = [job["feed"] for job in jobs_of(case, CHECK)]
        assert feeds == sorted(feeds, key=lambda feed: feed != PLAIN)


def test_all_checks_are_done_before_the_first_time_is_taken() -> None:
    kinds = [unit.kind for unit in units_of(CASES)]
    assert kinds == sorted(kinds, key=[CHECK, TIME].index)


def test_shapes_follow_the_dimensions() -> None:
    assert of("n", "2c", "c/2", 7)(Dims(1, 8, 5)) == (1, 16, 4, 7)
    assert of("n", "c", 1, 1).volume()(Dims(1, 8, 5)) == (1, 8, 1, 1, 1)
    assert of("n", "c", "s", "s").volume()(Dims(1, 8, 5)) == (1, 8, 4, 5, 5)
    with pytest.raises(ValueError, match="'x' is not a dimension"):
        of("x")(Dims(1, 1, 1))
