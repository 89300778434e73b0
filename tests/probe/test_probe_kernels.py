"""Costs of kernels: random shapes, trees that are found again, and documents that hold them."""

from __future__ import annotations

import ast
import copy
import json
import math
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mxamp.dtypes import DType
from mxamp.errors import TargetError
from mxamp.probe.fit_kernels import fit_family, fit_kernels
from mxamp.probe.kernel_samples import KernelSample, read_kernels
from mxamp.probe.kernels import FAMILIES, Kernel, draw_guest, draw_kernels, seat_guests
from mxamp.probe.time_kernels import (
    JUDGE_SEED,
    KernelTiming,
    guests_from,
    time_guests,
    time_in_surroundings,
    time_random_kernels,
    weights_by_error,
)
from mxamp.probe.workers import probe_environment
from mxamp.targets import CostModel, Target, Work
from mxamp.targets.choose import automatic_target
from mxamp.targets.kernel_cost import (
    Forest,
    Split,
    cost_from_document,
    cost_to_document,
    kernel_microseconds,
    together,
    trees_of,
)
from mxamp.targets.kernel_family import family_of
from mxamp.targets.kernel_terms import amounts_and_traits


def convolution(filters: int, channels: int = 32, side: int = 14, taps: int = 3, groups: int = 1) -> Work:
    image, output = (1, channels, side, side), (1, filters, side, side)
    weight = (filters, channels // groups, taps, taps)
    return Work(
        multiply_adds=math.prod(output) * math.prod(weight[1:]),
        elements=math.prod(image) + math.prod(output) + math.prod(weight),
        channels=channels,
        is_depthwise=groups > 1 and groups == channels,
        rank=4,
        attributes={"kernel": f"({taps}, {taps})", "num_group": str(groups)},
        inputs=(image, weight),
        output=output,
        is_blocked=True,
    )


def of_words(width: int, image: int) -> Work:
    """Return a convolution with kernels of three rows, as wide as said."""
    inputs, output = ((1, 1, 32, image), (16, 1, 3, width)), (1, 16, 30, image - width + 1)
    return convolution(16)._replace(channels=1, inputs=inputs, output=output)


def upsampling(side: int) -> Work:
    """Return a Deconvolution of an image with such a side."""
    return Work(0, 1, inputs=((1, 100, side, side), (100, 64, 4, 4)), output=(1, 64, side + 3, side + 3))


def pooling(height: int, width: int) -> Work:
    """Return a pooling over the first axis of an image of such sides."""
    attributes = {"kernel": f"({height}, 1)"}
    return Work(
        0, 1, attributes=attributes, inputs=((1, 100, height, width),), output=(1, 100, 1, width), rank=4
    )


def timed(work: Work) -> float:
    """Return what a library takes that has a fast kernel for whole blocks of 16 filters, and a slow one."""
    fills = work.output[1] % 16 == 0
    return (5.0 if fills else 40.0) + work.multiply_adds * (1e-5 if fills else 2e-4)


def samples(count: int, seed: int = 0) -> list[KernelSample]:
    random = np.random.default_rng(seed)
    works = [
        convolution(int(random.choice([16, 32, 48, 64, 20, 24, 7, 100])), side=int(random.integers(4, 40)))
        for _ in range(count)
    ]
    return [KernelSample("Convolution", "Convolution", work, (timed(work), None)) for work in works]


def test_a_slow_kernel_for_filters_that_fill_no_block_is_told_from_the_fast_one() -> None:
    tree = fit_family(samples(80), low=False)
    assert isinstance(tree, Split)
    for sample in samples(40, seed=1):  # others than it was fitted on
        found = kernel_microseconds(tree, *amounts_and_traits(sample.op, sample.work, low=False))
        assert found == pytest.approx(timed(sample.work), rel=0.25)


def known_costs(slower: float = 1.0) -> CostModel:
    """Return costs that tell the fast kernel of :func:`timed` from the slow one."""
    fast, slow = (
        {"one": slower * one, "multiply_adds": slower * rate} for one, rate in ((5.0, 1e-5), (40.0, 2e-4))
    )
    tree = {"trait": "filters_fill", "below": 16, "then": slow, "else": fast}
    return model(Convolution={"float32": tree})


def test_of_a_library_that_is_known_few_kernels_tell_how_fast_this_machine_is() -> None:
    """Ten are too few to tell one kernel of the library from another."""
    few = samples(10)
    apart = samples(40, seed=1)

    def worst(document: dict[str, Any]) -> float:
        tree = cost_from_document(document["Convolution"]["float32"], "Convolution")
        found = [kernel_microseconds(tree, *amounts_and_traits(one.op, one.work, low=False)) for one in apart]
        return max(abs(math.log(us / timed(one.work))) for us, one in zip(found, apart))

    assert worst(fit_kernels(few)) > math.log(1.5)
    assert worst(fit_kernels(few, known_costs(slower=3.0))) < math.log(1.25)


def test_what_a_known_library_does_otherwise_here_is_told_by_many_kernels() -> None:
    flat = model(Convolution={"float32": {"one": 9.0, "multiply_adds": 9e-5}})
    (costs,) = fit_kernels(samples(80), flat).values()
    assert costs["float32"]["trait"] in ("filters_fill", "group_filters_fill")


def surrounded(count: int, megabytes: float) -> list[KernelSample]:
    """Return kernels with so much around them; more than 100 MB make them take three times as long."""
    around = round(megabytes * 2**20 / 4)
    return [
        one._replace(
            work=one.work._replace(around=around, model=around),
            times=((one.times[0] or 0) * (3 if megabytes > 100 else 1), None),
        )
        for one in samples(count)
    ]


def test_how_much_more_than_a_cache_holds_lies_around_a_kernel_makes_no_difference() -> None:
    def bounds(tree: Any) -> list[float]:
        if not isinstance(tree, Split):
            return []
        own = [tree.below] if tree.trait in ("around", "model") else []
        return [*own, *bounds(tree.lower), *bounds(tree.upper)]

    kernels = [*surrounded(60, 70), *surrounded(60, 400)]
    assert not bounds(fit_family(kernels, low=False))
    found = bounds(fit_family([*surrounded(60, 20), *surrounded(60, 400)], low=False))
    assert found
    assert all(20 * 2**20 < below <= 64 * 2**20 for below in found)
    known = cost_from_document(
        {"trait": "around", "below": 2.0**28, "then": {"one": 2.0}, "else": {"one": 9.0}}, "Convolution"
    )
    assert not bounds(fit_family(kernels, low=False, known=known))


def test_kernels_that_were_not_timed_in_a_dtype_are_not_told_from_known_ones() -> None:
    known = known_costs()
    assert set(fit_kernels(samples(5), known)["Convolution"]) == {"float32"}
    assert fit_kernels([], known) == {}


def test_known_kernels_of_which_none_was_timed_take_as_much_longer_as_the_others() -> None:
    known = model(
        Convolution={"float32": {"one": 4.5, "multiply_adds": 5e-6}},
        Pooling={"float32": {"one": 2.0, "read": 0.5}, "low": {"one": 1.0}},
    )
    works = [convolution(16, side=side) for side in range(4, 30)]
    slow = [
        KernelSample("Convolution", "Convolution", work, (9.0 + work.multiply_adds * 1e-5, None))
        for work in works
    ]
    assert fit_kernels(slow, known)["Pooling"] == {"float32": {"one": 4.0, "read": 1.0}}


def test_what_none_of_some_kernels_does_costs_them_what_it_costs_others() -> None:
    """Those of slow kernels that were timed had no sum behind them; a network's may."""

    def with_sum(work: Work) -> Work:
        return work._replace(elements=work.elements + math.prod(work.output))

    def moved(work: Work) -> float:
        return timed(work) + 1e-3 * (
            work.elements - convolution(work.output[1], side=work.output[2]).elements
        )

    random = np.random.default_rng(0)
    works = [
        convolution(int(random.choice([16, 32, 48, 64, 20, 7, 100])), side=int(random.integers(20, 60)))
        for _ in range(120)
    ]
    works = [
        with_sum(work) if work.output[1] % 16 == 0 and number % 2 else work
        for number, work in enumerate(works)
    ]
    tree = fit_family(
        [KernelSample("Convolution", "Convolution", work, (moved(work), None)) for work in works], low=False
    )
    assert isinstance(tree, Split)
    plain = convolution(20, side=40)
    without, summed = (
        kernel_microseconds(tree, *amounts_and_traits("Convolution", work, low=False))
        for work in (plain, with_sum(plain))
    )
    assert without == pytest.approx(moved(plain), rel=0.25)
    assert without < summed < 3 * moved(with_sum(plain))


def test_one_kernel_that_has_little_of_something_does_not_say_what_much_of_it_takes() -> None:
    """It took half as long again by accident, and its 256 bytes from memory are not why."""
    known = cost_from_document({"one": 5.0, "beyond_cache": 1e-5, "beyond_shared_cache": 1e-4}, "Pooling")

    def sample(size: int, slower: float = 1.0) -> KernelSample:
        work = pooling(8, 8)._replace(elements=size // 4)
        amounts = amounts_and_traits("Pooling", work, low=False)
        return KernelSample("Pooling", "Pooling", work, (slower * kernel_microseconds(known, *amounts), None))

    random = np.random.default_rng(0)
    few_bytes = [sample(int(size)) for size in random.integers(1 << 12, 8 << 20, 60)]
    tree = fit_family([*few_bytes, sample((8 << 20) + 256, slower=1.5)], low=False, known=known)
    assert tree is not None
    large = sample(64 << 20)
    found = kernel_microseconds(tree, *amounts_and_traits("Pooling", large.work, low=False))
    assert found == pytest.approx(large.times[0], rel=0.25)


def test_noise_makes_no_conditions() -> None:
    random = np.random.default_rng(0)
    noisy = [
        sample._replace(times=((10 + sample.work.multiply_adds * 1e-5) * random.uniform(0.9, 1.1), None))
        for sample in samples(60)
    ]
    assert not isinstance(fit_family(noisy, low=False), Split)


def test_too_few_times_tell_nothing() -> None:
    assert fit_family(samples(5), low=False) is None
    assert fit_kernels(samples(5)) == {}


def test_several_known_trees_are_all_fitted_anew() -> None:
    grown = [fit_family(samples(200)[start::2], low=False) for start in (0, 1)]
    known = together([tree for one in grown if one is not None for tree in trees_of(one)])
    assert isinstance(known, Forest)
    slow = [one._replace(times=(3.0 * (one.times[0] or 0.0), None)) for one in samples(60)]
    found = fit_family(slow, low=False, known=known)
    assert isinstance(found, Forest)
    assert len(found.trees) == len(known.trees) == 2
    for sample in slow:
        told = kernel_microseconds(found, *amounts_and_traits(sample.op, sample.work, low=False))
        assert told == pytest.approx(sample.times[0], rel=0.25)
    assert fit_family([], low=False, known=known) is None


def test_a_tree_is_the_same_after_writing_and_reading() -> None:
    tree = fit_family(samples(80), low=False)
    assert tree is not None
    assert cost_from_document(cost_to_document(tree), "a test") == tree


def test_what_was_timed_in_one_process_is_read_in_another() -> None:
    work = convolution(16)
    rows = [
        {"op": "Convolution", "work": work.to_document(), "us": {"float32": 3.0, "low": 2.0}},
        {"op": "amp_cast", "work": work.to_document(), "us": {"float32": 1.0, "low": 4.0}},
        {"op": "exp", "work": None, "us": {"float32": 1.0}},
    ]
    assert [(one.family, one.times) for one in read_kernels(rows)] == [
        ("Convolution", (3.0, 2.0)),
        ("cast down", (1.0, None)),
        ("cast up", (4.0, None)),
    ]
    assert read_kernels(rows)[0].work == work


def of_rows(batch: int, height: int, width: int) -> Work:
    """Return a 1x1 convolution of 64 channels."""
    data, weight = (batch, 64, height, width), (32, 64, 1, 1)
    return Work(0, 0, inputs=(data, weight), output=(batch, 32, height, width))


def layer_of(*rows: int) -> Work:
    """Return a layer of 64 channels and 32 units."""
    return Work(0, 0, inputs=((*rows, 64), (32, 64)), output=(*rows, 32))


@pytest.mark.parametrize(
    ("op", "work", "family"),
    [
        ("Convolution", convolution(16), "Convolution"),
        ("Convolution", convolution(16, taps=1), "Convolution 1x1"),
        ("Convolution", convolution(16, channels=3), "Convolution of few channels"),
        ("Convolution", of_rows(1, 8, 1), "Convolution 1x1 of rows"),
        ("Convolution", of_rows(1, 1, 64), "Convolution 1x1 of rows"),
        ("Convolution", of_rows(1, 1, 65), "Convolution 1x1"),
        ("Convolution", of_rows(1, 1, 1), "Convolution 1x1"),
        ("Convolution", of_rows(1, 2, 2), "Convolution 1x1"),
        ("Convolution", of_rows(8, 8, 1), "Convolution 1x1"),
        ("Convolution", of_words(300, 300), "Convolution of rows"),
        ("Convolution", of_words(300, 400), "Convolution of few channels"),
        ("Convolution", of_words(11, 11), "Convolution of few channels"),
        ("Convolution", convolution(32, groups=32), "Convolution depthwise"),
        ("Convolution", convolution(32, groups=4), "Convolution grouped"),
        ("FullyConnected", layer_of(1), "FullyConnected"),
        ("FullyConnected", layer_of(2), "FullyConnected of few rows"),
        ("FullyConnected", layer_of(4, 4), "FullyConnected of few rows"),
        ("FullyConnected", layer_of(17), "FullyConnected"),
        ("Deconvolution", upsampling(side=1), "Deconvolution of one place"),
        ("Deconvolution", upsampling(side=4), "Deconvolution"),
        ("Pooling", pooling(30, 1), "Pooling of rows"),
        ("Pooling", pooling(30, 30), "Pooling"),
        ("Pooling", pooling(1, 1), "Pooling"),
        ("Activation", Work(0, 1, attributes={"act_type": "tanh"}), "Activation tanh"),
        ("LeakyReLU", Work(0, 1), "LeakyReLU leaky"),
        ("exp", Work(0, 1), "exp"),
    ],
)
def test_kernels_are_told_apart(op: str, work: Work, family: str) -> None:
    assert family_of(op, work) == family


def blocked(channels: int) -> Work:
    """Return a relu of what a convolution wrote."""
    shape = (1, channels, 7, 7)
    return Work(0, 2 * math.prod(shape), channels=channels, inputs=(shape,), output=shape, is_blocked=True)


@pytest.mark.parametrize(("channels", "float32", "low"), [(32, 2, 2), (24, 1, 0), (25, 0, 0)])
def test_which_layout_data_come_in_depends_on_channels_and_dtype(
    channels: int, float32: int, low: int
) -> None:
    for is_low, layout in ((False, float32), (True, low)):
        amounts, traits = amounts_and_traits("Activation", blocked(channels), low=is_low)
        assert traits["layout"] == layout
        assert (amounts["reordered"] > 0) == (layout > 0)


@pytest.mark.parametrize(("channels", "fill"), [(24, 8), (96, 32), (512, 512), (1536, 512), (4096, 512)])
def test_powers_of_two_are_told_up_to_where_a_channels_values_share_sets_of_a_cache(
    channels: int, fill: int
) -> None:
    assert amounts_and_traits("exp", blocked(channels), low=False)[1]["channels_fill"] == fill


def test_a_sum_that_an_activation_follows_is_an_amount_of_its_own() -> None:
    work = convolution(20)
    summed = work._replace(elements=work.elements + math.prod(work.output))
    for one, values in (
        (work._replace(has_activation=True), 0),
        (summed, 0),
        (summed._replace(has_activation=True), math.prod(work.output)),
    ):
        amounts, _ = amounts_and_traits("Convolution", one, low=True)
        assert amounts["activated_sum"] == 2 * values


def test_what_strides_apart_is_gathered_as_what_several_taps_read_is() -> None:
    pointwise = convolution(20, taps=1)
    strided = pointwise._replace(attributes={**pointwise.attributes, "stride": "(2, 2)"})
    columns = [
        amounts_and_traits("Convolution", work, low=False)[0]["columns"] for work in (pointwise, strided)
    ]
    assert columns == [0, 4 * 14 * 14 * 32]


def test_recurrent_weights_that_no_cache_near_the_core_holds_are_brought_in_every_turn() -> None:
    def brought(hidden: int, steps: int, *, low: bool = False) -> float:
        attributes = {"state_size": str(hidden), "mode": "gru", "num_layers": "1"}
        work = Work(0, 1, attributes=attributes, inputs=((steps, 1, 64), (1,)), output=(steps, 1, hidden))
        return amounts_and_traits("RNN", work, low=low)[0]["recurrent_weights_beyond_cache"]

    assert brought(256, 64) == 0
    assert brought(512, 64) == 64 * (4 * 3 * 512 * 512 - 2**20)
    assert brought(512, 64, low=True) == 64 * (2 * 3 * 512 * 512 - 2**20)


@pytest.mark.parametrize(
    ("reps", "around"), [("(1, 1, 160, 1)", (72, 1, 8)), ("(2, 1)", (72, 1, 8)), ("(1, 1)", (1, 576, 1))]
)
def test_what_lies_around_a_copied_axis_is_told(reps: str, around: tuple[int, int, int]) -> None:
    work = Work(0, 1, attributes={"reps": reps}, inputs=((1, 72, 1, 8),), output=(1, 72, 160, 8))
    _, traits = amounts_and_traits("tile", work, low=False)
    assert (traits["outer"], traits["reduced"], traits["inner"]) == around


def test_what_is_cut_into_parts_counts_them_as_what_is_put_together_does() -> None:
    whole, part = (8, 100, 30), (8, 1, 30)
    cut, _ = amounts_and_traits("SliceChannel", Work(0, 1, inputs=(whole,), output=part), low=False)
    put, _ = amounts_and_traits("Concat", Work(0, 1, inputs=(part,) * 100, output=whole), low=False)
    assert cut["inputs"] == put["inputs"] == 100


def test_a_target_that_was_measured_before_a_family_was_told_apart_prices_the_broader_one() -> None:
    rates = {"float32": {"one": 7.0}, "low": {"one": 3.0}}
    before, since = (
        {"Convolution of few channels": rates},
        {"Convolution of few channels": rates, "Convolution of rows": {"float32": {"one": 5.0}}},
    )
    work = of_words(300, 300)
    assert model(**before).microseconds("Convolution", work, low=False) == 7
    assert model(**since).microseconds("Convolution", work, low=False) == 5
    assert model(**since).microseconds("Convolution", of_words(9, 300), low=True) == 3


# ---------------------------------------------------------------------- documents


def model(**kernels: Any) -> CostModel:
    return CostModel.from_document(
        {
            "measured": True,
            "source": "a test",
            "flops_per_us": {"float32": 1, "low": 2},
            "bytes_per_us": {"float32": 1, "low": 1},
            "overhead_us": {"float32": 0, "low": 0},
            "cast": {"bytes_per_us": 6, "overhead_us": 3},
            "kernels": kernels,
        }
    )


def test_a_kernel_has_the_costs_of_its_family_and_others_those_of_the_table() -> None:
    costs = model(Convolution={"float32": {"one": 7, "multiply_adds": 0.5}})
    work = convolution(16)
    assert costs.microseconds("Convolution", work, low=False) == 7 + 0.5 * work.multiply_adds
    assert costs.microseconds("exp", Work(0, 10), low=False) == 40


def test_a_kernel_timed_in_float32_alone_keeps_the_ratio_of_the_table() -> None:
    costs, work = model(Convolution={"float32": {"one": 100}}), convolution(16)
    assert costs.microseconds("Convolution", work, low=True) == pytest.approx(50)


def test_casts_cost_by_shape_layout_and_direction() -> None:
    costs = model(
        **{
            "cast down": {
                "float32": {"trait": "layout", "below": 1, "then": {"one": 1}, "else": {"one": 9}},
            }
        }
    )
    shape = (1, 16, 10, 10)
    assert costs.cast_microseconds(1600, shape=shape, down=True) == 1
    assert costs.cast_microseconds(1600, shape=shape, is_blocked=True, down=True) == 9
    assert costs.cast_microseconds(1600, shape=shape) == 3 + 1600


@pytest.mark.parametrize(
    "tree",
    [
        pytest.param(3, id="a number"),
        pytest.param({"multiply": 1}, id="no amount"),
        pytest.param({"one": -1}, id="less than nothing"),
        pytest.param({"trait": "colour", "below": 1, "then": {}, "else": {}}, id="no trait"),
        pytest.param({"trait": "rank", "below": "4", "then": {}, "else": {}}, id="no number"),
        pytest.param({"trait": "rank", "below": 4, "then": {}}, id="half a condition"),
    ],
)
def test_a_tree_that_is_none_is_refused(tree: Any) -> None:
    document = copy.deepcopy(dict(Target.builtin_document("cpu-bf16")))
    document["cost"] = {**document["cost"], "kernels": {"Convolution": {"float32": tree}}}
    with pytest.raises(TargetError, match=r"t\.json is not a target"):
        Target.from_document(document, source="t.json")


@pytest.mark.parametrize(
    ("changes", "kept", "gone"),
    [
        ({"cast": {"bytes_per_us": 5, "overhead_us": 2}}, "Convolution 1x1", "cast up"),
        ({"operators": {"Convolution": [{"float32": 1, "low": 1}]}}, "cast up", "Convolution 1x1"),
        ({"flops_per_us": {"float32": 5, "low": 5}}, None, "Convolution 1x1"),
    ],
)
def test_what_a_document_prices_itself_is_not_inherited(
    changes: dict[str, Any], kept: str | None, gone: str
) -> None:
    document = {"based_on": "cpu-bf16-amx", "name": "mine", "dtype": "bfloat16", "cost": changes}
    cost = Target.from_document(document, source="t.json").cost
    assert cost is not None
    assert gone not in cost.kernels
    assert kept is None or kept in cost.kernels


@pytest.mark.parametrize("name", ["cpu-bf16-intel", "cpu-bf16-amx"])
def test_built_in_targets_say_where_their_kernels_were_measured(name: str) -> None:
    cost = Target.builtin(name).cost
    assert cost is not None
    assert "Intel" in cost.kernels_measured
    assert {"Convolution", "FullyConnected", "RNN lstm", "cast down", "cast up"} <= set(cost.kernels)


def test_filters_that_fill_no_block_cost_more_than_more_filters_that_do() -> None:
    cost = Target.builtin("cpu-bf16-amx").cost
    assert cost is not None
    ragged, whole = (cost.microseconds("Convolution", convolution(n, 64, 28), low=True) for n in (52, 64))
    assert ragged > whole


@pytest.mark.parametrize("low", [False, True])
def test_what_large_kernels_take_more_holds_for_kinds_of_which_none_was_large(low: bool) -> None:
    """Channels that fill no block take three times as long; from 8 MB on each byte costs as much again."""

    def relu(channels: int, side: int) -> Work:
        shape = (1, channels, side, side)
        return Work(0, 2 * math.prod(shape), rank=4, inputs=(shape,), output=shape)

    def microseconds(work: Work) -> float:
        amounts, _ = amounts_and_traits("relu", work, low=low)
        each = 1e-3 if work.output[1] % 16 == 0 else 3e-3
        return 1 + each * amounts["read"] + 1e-3 * amounts["beyond_shared_cache"]

    works = [relu(64, side) for side in range(20, 290, 2)] + [relu(60, side) for side in range(20, 110)]
    samples = [
        KernelSample("relu", "relu", works[number], (microseconds(works[number]),) * 2)
        for number in np.random.default_rng(0).permutation(len(works))
    ]
    tree = fit_family(samples, low=low)
    assert tree is not None
    for work in (relu(64, 100), relu(60, 80), relu(64, 280), relu(60, 280)):
        found = kernel_microseconds(tree, *amounts_and_traits("relu", work, low=low))
        assert found == pytest.approx(microseconds(work), rel=0.1)


def test_weights_have_a_rate_of_their_own_and_are_not_beyond_the_shared_cache() -> None:
    weights = Work(
        0,
        2 * 6 * 6 * 256 + 256 * 256 * 81,
        4,
        inputs=((1, 256, 6, 6), (256, 256, 9, 9)),
        output=(1, 256, 6, 6),
    )
    images = Work(
        0,
        2 * 56 * 56 * 8 * 256 + 256 * 256,
        4,
        inputs=((8, 256, 56, 56), (256, 256, 1, 1)),
        output=(8, 256, 56, 56),
    )
    assert amounts_and_traits("Convolution", weights, low=False)[0]["beyond_shared_cache"] == 0
    moved = 4 * 2 * 56 * 56 * 8 * 256
    assert amounts_and_traits("Convolution", images, low=False)[0]["beyond_shared_cache"] == moved - (8 << 20)


# ---------------------------------------------------------------------- drawing and timing


def test_the_same_seed_draws_the_same_kernels() -> None:
    first, again = (draw_kernels(50, np.random.default_rng(3)) for _ in range(2))
    assert first == again


def test_weights_say_what_is_drawn() -> None:
    drawn = draw_kernels(20, np.random.default_rng(0), {"Pooling": 1.0})
    assert {one.op for one in drawn} == {"Pooling"}


def test_products_fit_the_smallest_network_too() -> None:
    # One in some hundred graphs asked for a product that its loop could not make small enough, for ever.
    for seed in range(300):
        for one in draw_kernels(8, np.random.default_rng(seed), {"product": 1.0}):
            first, second = (operand.shape for operand in one.operands)
            summed_up = first[1] if "transpose_a" in one.attrs else first[-1]
            columns = math.prod(second[1:] if one.op == "batch_dot" else second) // summed_up
            assert math.prod(first) * columns <= 3e8, one


def drawn(family: str) -> list[Kernel]:
    """Return kernels of many graphs."""
    return [one for seed in range(60) for one in draw_kernels(8, np.random.default_rng(seed), {family: 1.0})]


def test_some_dense_layers_tell_the_words_of_a_vocabulary() -> None:
    units = [one.operands[1].shape[0] for one in drawn("FullyConnected")]
    assert 0.02 < sum(number > 4096 for number in units) / len(units) < 0.3


def test_rows_are_few_and_their_weights_often_many() -> None:
    kernels = drawn("Convolution 1x1 of rows")
    assert {1 in one.operands[0].shape[2:] for one in kernels} == {True}
    assert all(1 < math.prod(one.operands[0].shape[2:]) <= 64 for one in kernels)
    weights = [math.prod(one.operands[1].shape) for one in kernels]
    assert sum(count >= 1 << 18 for count in weights) / len(weights) > 0.3


def test_what_reads_words_has_round_sizes_more_often_than_others() -> None:
    weights = [one.operands[1].shape for one in drawn("Convolution of rows")]
    are_round = [filters % 50 == width % 50 == 0 for filters, _, _, width in weights]
    assert 0.3 < sum(are_round) / len(are_round) < 0.5


def test_broadcasts_are_along_every_axis_and_along_none() -> None:
    spread = {
        tuple(axis for axis, (whole, other) in enumerate(zip(first, second)) if whole != other)
        for one in drawn("broadcast")
        for first, second in [[operand.shape for operand in one.operands]]
    }
    assert {(), (0,), (1,), (2,), (3,), (2, 3), (0, 1)} <= spread


def test_copies_are_made_along_every_axis() -> None:
    reps = [ast.literal_eval(one.attrs["reps"]) for one in drawn("moving") if one.op == "tile"]
    along = {tuple(number > 1 for number in own).index(True) for own in reps if max(own) > 1}
    assert along == {0, 1, 2, 3}
    assert max(map(max, reps)) > 50


def test_some_products_are_of_many_rows_with_one_vector() -> None:
    vectors = [one for one in drawn("product") if len(one.operands[1].shape) == 1]
    assert vectors
    assert max(one.operands[0].shape[0] for one in vectors) > 10_000


def test_some_products_add_up_along_the_second_axis() -> None:
    turned = [one for one in drawn("product") if one.attrs.get("transpose_a") == "True"]
    assert turned
    assert {one.operands[1].shape for one in turned} == {(*one.operands[0].shape[:2], 1) for one in turned}


def test_slices_are_of_every_axis_and_of_every_share() -> None:
    slices = [one for one in drawn("moving") if one.op == "slice_axis"]
    assert {one.attrs["axis"] for one in slices} == {"0", "1", "2", "3"}
    shares = [int(one.attrs["end"]) / one.operands[0].shape[int(one.attrs["axis"])] for one in slices]
    assert min(shares) < 0.05
    assert max(shares) == 1
    assert sum(0.1 < share < 0.9 for share in shares) > len(shares) / 4


def test_many_channels_are_powers_of_two_as_those_of_networks() -> None:
    channels = [one.operands[0].shape[1] for one in drawn("BatchNorm") if len(one.operands[0].shape) == 4]
    powers = [number for number in channels if number & (number - 1) == 0]
    assert 0.2 < len(powers) / len(channels) < 0.6
    assert max(powers) >= 512


def test_some_choose_between_two_tensors() -> None:
    assert {len(one.operands) for one in drawn("pairwise") if one.op == "where"} == {3}


def test_some_casts_are_of_more_than_a_cache_holds() -> None:
    sizes = [
        one.elements
        for seed in range(160)
        for one in draw_kernels(24, np.random.default_rng(seed), {"cast": 1.0})
    ]
    assert 6.5e6 < max(sizes) < 1.3e7
    assert 0.05 < sum(size > 1.4e6 for size in sizes) / len(sizes) < 0.3


def test_some_graphs_are_of_few_large_kernels() -> None:
    graphs = [draw_kernels(24, np.random.default_rng(seed), {"unary": 1.0}) for seed in range(60)]
    large = [graph for graph in graphs if len(graph) < 24]
    assert 10 < len(large) < 30
    assert {len(graph) for graph in large} == {6}
    most = [max(max(one.elements for one in graph) for graph in own) for own in (graphs, large)]
    assert most[0] == most[1] > 2e6


def test_graphs_are_of_few_kinds_or_of_many() -> None:
    """As networks are: their code stays in the caches near the core, or does not."""
    graphs = [draw_kernels(24, np.random.default_rng(seed)) for seed in range(100)]
    kinds = [len({one.family for one in graph}) for graph in graphs]
    assert kinds.count(1) > 10
    assert sum(number > 6 for number in kinds) > 10


_EACH_FAMILY = """
import json
import numpy as np
from mxamp.dtypes import DType
from mxamp.probe.kernels import FAMILIES, draw_kernels
from mxamp.runtime.kernel_times import time_kernels
random = np.random.default_rng(2)
chosen = [draw_kernels(1, random, {name: 1.0})[0] for name in FAMILIES if "Convolution" not in name]
timed = time_kernels(chosen, DType.BFLOAT16, [], seed=0)
print(json.dumps([[one.operands[0].shape for one in chosen], timed]))
"""


def test_one_of_each_family_runs_and_is_timed() -> None:
    pytest.importorskip("mxnet", reason="MXNet runs the kernels")
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _EACH_FAMILY],
        capture_output=True,
        text=True,
        check=False,
        env={**probe_environment(1, check_heap=False), "MXNET_ENGINE_TYPE": "NaiveEngine"},
    )
    assert process.returncode == 0, process.stderr
    shapes, timed = json.loads(process.stdout.splitlines()[-1])
    assert len(shapes) == len(timed) == sum("Convolution" not in name for name in FAMILIES)
    for shape, result in zip(shapes, timed):
        assert result["us"]["float32"] > 0, result
        assert Work.from_document(result["work"]).inputs[0] == tuple(shape)


@pytest.fixture
def timing() -> KernelTiming:
    pytest.importorskip("mxnet", reason="MXNet runs the kernels")
    return KernelTiming(DType.BFLOAT16, probe_environment(1, check_heap=False), seconds=0.1)


def test_kernels_are_timed_in_a_process_of_their_own(timing: KernelTiming) -> None:
    target = automatic_target(DType.BFLOAT16)
    timed = time_random_kernels(timing, target, weights={"Pooling": 1.0})
    assert timed
    assert {sample.family for sample in read_kernels(timed)} == {"Pooling"}


def test_kernels_are_timed_among_others_again_and_again(timing: KernelTiming) -> None:
    each = time_in_surroundings(
        replace(timing, seconds=8.0), automatic_target(DType.BFLOAT16), 2, seed=JUDGE_SEED + 100
    )
    assert len(each) == 2
    for number, times in enumerate(each):
        assert len(times) >= 2
        guest = draw_guest(JUDGE_SEED + 100 + number)
        assert {one["family"] for one in times} == {guest.family}
        works = [Work.from_document(one["work"]) for one in times]
        assert {work.inputs[0] for work in works} == {tuple(guest.operands[0].shape)}
        assert len({work.around for work in works}) > 1  # it had other company


@pytest.mark.parametrize(("name", "kind"), [("Pooling", "op"), ("Convolution 1x1", "family")])
def test_guests_may_be_of_some_operators_alone(name: str, kind: str) -> None:
    guests = guests_from(JUDGE_SEED + 200, 60, {name})
    assert guests
    is_one = [getattr(draw_guest(JUDGE_SEED + 200 + number), kind) == name for number in range(60)]
    assert guests == [JUDGE_SEED + 200 + number for number in range(60) if is_one[number]]
    assert guests_from(5, 3) == [5, 6, 7]
    assert guests_from(JUDGE_SEED + 200, 4, {"no such"}) == []


def test_those_that_guests_are_among_are_told_once_a_graph(timing: KernelTiming) -> None:
    guests, target = [JUDGE_SEED + 300], automatic_target(DType.BFLOAT16)
    graphs = list(time_guests(replace(timing, seconds=8.0), target, guests, seed=JUDGE_SEED + 301))
    assert len(graphs) >= 2
    assert all({seed for seed, _ in graph.guests} == set(guests) for graph in graphs)
    assert any(graph.hosts for graph in graphs)
    for graph in graphs:
        works = [Work.from_document(one["work"]) for one in graph.hosts if one["work"]]
        alike = [repr(work._replace(around=0, model=0, operators=0)) for work in works]
        assert len(alike) == len(set(alike)), "what is there twice comes once"
        assert all(us > 0 for one in graph.hosts for us in one["us"].values())
    assert any(one["us"] for graph in graphs for one in graph.hosts)
    assert list(time_guests(timing, target, [], seed=0)) == []


def test_guests_take_the_places_of_a_few() -> None:
    chosen = draw_kernels(24, np.random.default_rng(1), {"Pooling": 1.0})
    seated, places = seat_guests(chosen, range(20), np.random.default_rng(0))
    assert len(seated) == 24
    assert len(places) == 8 == len(set(places))
    assert [seated[place] for place in places] == [draw_guest(seed) for seed in range(8)]
    others = set(range(24)) - set(places)
    assert [seated[place] for place in others] == [chosen[place] for place in others]
    alone, places = seat_guests(chosen[:1], range(20), np.random.default_rng(0))
    assert (list(alone), list(places)) == ([draw_guest(0)], [0])


def test_a_process_that_keeps_dying_is_told(timing: KernelTiming) -> None:
    dying = replace(timing, seconds=60.0, command=(sys.executable, "-c", ""))
    with pytest.raises(TargetError, match="again and again"):
        time_random_kernels(dying, Target.builtin("cpu-bf16"))


def test_a_process_that_hangs_is_ended(timing: KernelTiming) -> None:
    asleep = (sys.executable, "-c", "import time; time.sleep(600)")
    hanging = replace(timing, seconds=1.0, command=asleep, patience=0.2)
    start = time.monotonic()
    assert time_random_kernels(hanging, Target.builtin("cpu-bf16")) == []
    assert time.monotonic() - start < 30


def test_what_is_estimated_badly_is_drawn_more_often() -> None:
    random = np.random.default_rng(0)
    erratic = [one._replace(times=(random.uniform(1, 1000), None)) for one in samples(60)]
    even = [
        KernelSample("Pooling", "Pooling", one.work, (5.0 + one.work.elements * 1e-3, None))
        for one in samples(60)
    ]
    weights = weights_by_error([*erratic, *even])
    assert weights["Convolution"] / FAMILIES["Convolution"][0] > weights["Pooling"] / FAMILIES["Pooling"][0]


@pytest.mark.parametrize(
    ("op", "attributes", "window"),
    [
        ("ROIPooling", {"pooled_size": "(7, 7)"}, 3 * 3),
        ("_contrib_ROIAlign", {"pooled_size": "(7, 14)", "sample_ratio": "-1"}, 2 * 1),
        ("_contrib_ROIAlign", {"pooled_size": "(7, 7)", "sample_ratio": "2"}, 2 * 2),
    ],
)
def test_a_region_is_a_third_as_wide_as_its_image(op: str, attributes: dict[str, str], window: int) -> None:
    image, output = (1, 64, 42, 42), (10, 64, 7, 7)
    work = Work(0, 0, attributes=attributes, inputs=(image, (10, 5)), output=output)
    assert family_of(op, work) == op
    assert amounts_and_traits(op, work, low=False)[0]["window"] == window * math.prod(output)
