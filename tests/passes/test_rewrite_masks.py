"""Masks beyond the dtype's range get a value it holds, where no result can change; elsewhere they stay."""

from __future__ import annotations

from typing import Callable

import numpy as np
import pytest

from mxamp.dtypes import DType
from mxamp.graph import Entry, Graph
from mxamp.graph.printer import print_graph
from mxamp.passes import RewriteMasks, RewrittenMask, State
from mxamp.policy import Policy
from tests.building import BF16, F16, Net, named, reads, state_for
from tests.passes.harness import run_pass

LEAST = float(np.finfo(np.float32).min)
LEAST_BF16 = -3.3895313892515355e38


def rewrite(
    graph: Graph, net: Net | None = None, dtype: DType = F16, policy: Policy | None = None
) -> tuple[Graph, State]:
    """Rewrite under the harness; the second run sees the parameters of the first."""
    start = state_for(graph, {} if net is None else net.params, dtype, policy=policy)
    done = run_pass(start, RewriteMasks())
    return done.graph, done


def lines(graph: Graph) -> list[str]:
    """Return the printed operators, from the first that has attributes to tell."""
    return [line for line in print_graph(graph, attrs=True).splitlines() if " = " in line]


def softmax(net: Net, data: Entry) -> Graph:
    return net.graph(net.op("softmax", data, name="weights", axis=-1))


def chosen(net: Net, value: float = -1e18) -> Entry:
    """Return ``where(m, x, value)``, as attention cells write it."""
    scores = net.var("x")
    least = net.op("_mul_scalar", net.op("ones_like", scores, name="ones"), name="least", scalar=value)
    return net.op("where", net.var("m"), scores, least, name="masked")


def added(net: Net, value: float = -1e18, *, known: bool = True) -> Entry:
    """Return ``x + (1 - m) * value``; with ``known`` the factor is a comparison's result."""
    scores, mask = net.var("x"), net.var("m")
    off = (
        net.op("_equal_scalar", mask, name="off", scalar=0)
        if known
        else net.op("_rminus_scalar", mask, name="off", scalar=1)
    )
    least = net.op("_mul_scalar", off, name="least", scalar=value)
    wide = net.op("expand_dims", least, name="wide", axis=1)
    return net.op("broadcast_add", scores, wide, name="masked")


# ---------------------------------------------------------------------- before and after


def test_a_chosen_constant_is_replaced() -> None:
    net = Net()
    graph = softmax(net, chosen(net))
    assert lines(graph) == [
        "ones = ones_like(x)",
        "least = _mul_scalar(ones) {scalar: -1e+18}",
        "masked = where(m, x, least)",
        "weights = softmax(masked) {axis: -1}",
    ]
    after, done = rewrite(graph)
    assert lines(after) == [
        "ones = ones_like(x)",
        "least = _mul_scalar(ones) {scalar: -65504.0}",
        "masked = where(m, x, least)",
        "weights = softmax(masked) {axis: -1}",
    ]
    (mask,) = done.record(RewrittenMask)
    assert (mask.node, mask.op, mask.before, mask.after) == ("least", "_mul_scalar", -1e18, -65504.0)
    assert (mask.reason, mask.inserted) == ("", ())


def test_an_added_constant_is_replaced_and_the_sum_is_bounded() -> None:
    net = Net()
    after, done = rewrite(softmax(net, added(net)))
    assert lines(after) == [
        "off = _equal_scalar(m) {scalar: 0}",
        "least = _mul_scalar(off) {scalar: -65504.0}",
        "wide = expand_dims(least) {axis: 1}",
        "masked = broadcast_add(x, wide)",
        "masked_bounded = clip(masked) {a_max: 65504.0, a_min: -32768.0}",
        "weights = softmax(masked_bounded) {axis: -1}",
    ]
    assert done.record(RewrittenMask)[0].inserted == ("masked_bounded",)


def test_a_constant_that_scales_what_nobody_knows_stays_and_its_product_is_bounded() -> None:
    net = Net()
    graph = softmax(net, added(net, known=False))
    after, done = rewrite(graph)
    assert lines(after) == [
        "off = _rminus_scalar(m) {scalar: 1}",
        "least = _mul_scalar(off) {scalar: -1e+18}",
        "least_bounded = clip(least) {a_max: 65504.0, a_min: -65504.0}",
        "wide = expand_dims(least_bounded) {axis: 1}",
        "masked = broadcast_add(x, wide)",
        "masked_bounded = clip(masked) {a_max: 65504.0, a_min: -32768.0}",
        "weights = softmax(masked_bounded) {axis: -1}",
    ]
    assert done.record(RewrittenMask)[0].inserted == ("least_bounded", "masked_bounded")
    origins = [graph.nodes[origin].name for origin in done.nodes.origins[-4:]]
    assert origins == ["wide", "masked", "masked", "weights"]


def test_bfloat16_absorbs_scores_and_needs_no_bound() -> None:
    net = Net()
    after, _ = rewrite(softmax(net, added(net, LEAST)), dtype=BF16)
    assert named(after, "least").attrs["scalar"] == repr(LEAST_BF16)
    assert reads(after, "weights") == ["masked"]


def test_what_bfloat16_holds_is_left_alone() -> None:
    net = Net()
    graph = softmax(net, chosen(net, -1e18))
    after, done = rewrite(graph, dtype=BF16)
    assert after is graph
    assert done.record(RewrittenMask) == ()


def test_a_parameter_that_holds_the_mask_is_replaced() -> None:
    net = Net()
    scores, mask = net.var("x"), net.param("mask", 2, 4, value=0.0)
    net.params["mask"][1, 2:] = -1e18
    original = net.params["mask"].copy()
    after, done = rewrite(softmax(net, net.op("broadcast_add", scores, mask, name="masked")), net)
    np.testing.assert_array_equal(
        done.arg_params["mask"].numpy(), [[0, 0, 0, 0], [0, 0, np.float32(-65504), np.float32(-65504)]]
    )
    np.testing.assert_array_equal(net.params["mask"], original)
    assert reads(after, "weights") == ["masked_bounded"]
    assert (done.record(RewrittenMask)[0].node, done.record(RewrittenMask)[0].op) == ("mask", "null")


def full(net: Net, value: float = -1e18) -> Entry:
    return net.op("_full", name="least", shape="(2, 3, 4)", value=value)


def subtracted(net: Net) -> Entry:
    off = net.op("_mul_scalar", net.op("_equal_scalar", net.var("m"), name="off", scalar=0), scalar=1e18)
    return net.op("broadcast_sub", net.var("x"), off, name="masked")


def shifted(net: Net) -> Entry:
    """Return x + (on * 1e18 - 1e18)."""
    on = net.op("_mul_scalar", net.op("_not_equal_scalar", net.var("m"), scalar=0), name="big", scalar=1e18)
    return net.op("elemwise_add", net.var("x"), net.op("_minus_scalar", on, name="least", scalar=1e18))


def minus_one_times_big(net: Net) -> Entry:
    on = net.op("_minus_scalar", net.op("_not_equal_scalar", net.var("m"), scalar=0), scalar=1)
    return net.op("broadcast_add", net.var("x"), net.op("_mul_scalar", on, name="least", scalar=1e18))


ACCEPTED: dict[str, Callable[[Net], Entry]] = {
    "where with a constant": lambda net: net.op("where", net.var("m"), net.var("x"), full(net)),
    "where the other way": lambda net: net.op("where", net.var("m"), full(net), net.var("x")),
    "SequenceMask": lambda net: net.op(
        "SequenceMask", net.var("x"), net.var("n"), use_sequence_length=True, value=-1e18
    ),
    "Pad": lambda net: net.op(
        "Pad", net.var("x"), mode="constant", constant_value=-1e18, pad_width="(0, 0, 0, 0, 0, 1)"
    ),
    "assigned to a slice": lambda net: net.op(
        "_slice_assign_scalar", net.var("x"), scalar=-1e18, begin="(0, 0)", end="(1, 1)"
    ),
    "Concat with a constant": lambda net: net.op("Concat", net.var("x"), full(net), num_args=2, dim=2),
    "times ones": lambda net: net.op(
        "where",
        net.var("m"),
        net.var("x"),
        net.op("broadcast_mul", net.op("ones_like", net.var("y")), full(net)),
    ),
    "the sign comes later": lambda net: net.op(
        "where", net.var("m"), net.var("x"), net.op("negative", full(net, 1e18))
    ),
    "subtracted": subtracted,
    "shifted": shifted,
    "m - 1": minus_one_times_big,
    "moved about": lambda net: net.op("Reshape", net.op("transpose", chosen(net)), shape="(0, -1)"),
    "cast": lambda net: net.op("amp_cast", chosen(net), dtype="float32"),
    "a maximum of it": lambda net: net.op("max", chosen(net), axis=1),
    "scaled a little": lambda net: net.op("_div_scalar", chosen(net), scalar=2),
    "chosen, and then a bias": lambda net: net.op("broadcast_add", chosen(net), net.var("bias")),
}


@pytest.mark.parametrize("form", ACCEPTED)
def test_every_usual_form_is_recognised(form: str) -> None:
    net = Net()
    after, done = rewrite(softmax(net, ACCEPTED[form](net)))
    assert done.record(RewrittenMask)
    assert all(mask.after is not None for mask in done.record(RewrittenMask))
    values = [
        float(value)
        for node in after.nodes
        for key, value in node.attrs.items()
        if key in ("scalar", "value", "constant_value", "a_min", "a_max")
    ]
    assert max(map(abs, values)) <= 65504


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("softmax", {"temperature": "2"}),
        ("SoftmaxActivation", {}),
        ("exp", {}),
        ("sigmoid", {}),
        ("Activation", {"act_type": "tanh"}),
        ("argmax", {"axis": "-1"}),
        ("argsort", {"axis": "-1"}),
        ("topk", {"k": "2"}),
        ("topk", {"k": "2", "ret_typ": "mask"}),
    ],
)
def test_a_mask_may_end_in_what_makes_nothing_of_it(op: str, attrs: dict[str, str]) -> None:
    net = Net()
    _, done = rewrite(net.graph(net.op(op, chosen(net), name="end", **attrs)))
    assert done.record(RewrittenMask)[0].after == -65504


def test_a_clip_above_the_mask_ends_it_too() -> None:
    net = Net()
    masked = chosen(net)
    clipped = net.op("clip", masked, name="clipped", a_min=-100, a_max=100)
    _, done = rewrite(net.graph(net.op("softmax", masked, name="weights"), net.op("square", clipped)))
    assert done.record(RewrittenMask)[0].after == -65504


def test_one_mask_of_many_softmaxes_is_replaced_once() -> None:
    net = Net()
    least = full(net)
    heads = [net.op("softmax", net.op("where", net.var(f"m{n}"), net.var(f"x{n}"), least)) for n in range(3)]
    after, done = rewrite(net.graph(*heads))
    assert len(done.record(RewrittenMask)) == 1
    assert named(after, "least").attrs["value"] == "-65504.0"


# ---------------------------------------------------------------------- refusals


def log_softmax(net: Net) -> Entry:
    return net.op("log_softmax", chosen(net), name="logs")


def added_twice(net: Net) -> Entry:
    off = [net.op("_equal_scalar", net.var(name), scalar=0) for name in ("m1", "m2")]
    one, two = (net.op("_mul_scalar", each, scalar=-1e18) for each in off)
    return net.op("broadcast_add", net.op("broadcast_add", net.var("x"), one), two)


REFUSED: dict[str, tuple[Callable[[Net], Entry], str]] = {
    "an output": (chosen, "it reaches an output of the model"),
    "log_softmax hands it on": (log_softmax, "'logs' (log_softmax) reads it"),
    "another operator reads it": (lambda net: net.op("mean", chosen(net), name="m0"), "'m0' (mean) reads it"),
    "softmin": (lambda net: net.op("softmin", chosen(net), name="s0"), "'s0' (softmin) reads it"),
    "topk hands on the values": (
        lambda net: net.op("topk", chosen(net), k=1, ret_typ="value", outputs=2),
        "hands on the values themselves",
    ),
    "two masks are added": (
        lambda net: net.op("softmax", added_twice(net)),
        "adds another value beyond float16's range",
    ),
    "two values in one softmax": (
        lambda net: net.op(
            "softmax",
            net.op("where", net.var("k"), chosen(net), net.op("_full", shape="(1,)", value=-1e17)),
            name="both",
        ),
        "reads masks of different values",
    ),
    "FP32 tells scores apart beside it": (
        lambda net: net.op("softmax", added(net, -1e9)),
        "beside -1e+09 float32 still tells apart what differs by 64",
    ),
    "scaled down to the scores": (
        lambda net: net.op("softmax", net.op("_div_scalar", chosen(net), scalar=64), name="soft"),
        "'soft' (softmax) would read -1023.5, not far below all scores",
    ),
    "scaled out of the range again": (
        lambda net: net.op("softmax", net.op("_mul_scalar", chosen(net), name="twice", scalar=2)),
        "'twice' (_mul_scalar) would make its replacement leave float16's range again",
    ),
    "a hot softmax": (
        lambda net: net.op("softmax", chosen(net), temperature=100),
        "divides it by a temperature of 100",
    ),
    "large and positive": (
        lambda net: net.op("softmax", chosen(net, 1e18)),
        "would read 65504, not far below all scores",
    ),
    "beside the user's infinity": (
        lambda net: net.op(
            "softmax", net.op("where", net.var("k"), chosen(net), net.op("_full", shape="(1,)", value="-inf"))
        ),
        "reads other values beyond float16's range, too",
    ),
    "a hard softmax": (
        lambda net: net.op("softmax", net.op("_mul_scalar", net.var("x"), scalar=-1e18), name="nearest"),
        "'nearest' (softmax) may tell apart what it scales",
    ),
    "a hard softmax, chosen": (
        lambda net: net.op(
            "softmax",
            net.op("where", net.var("m"), net.op("_mul_scalar", net.var("x"), scalar=-1e18), net.var("y")),
        ),
        "may tell apart what it scales",
    ),
    "masked scores times a mask": (
        lambda net: net.op("softmax", net.op("broadcast_mul", chosen(net), net.var("k"), name="product")),
        "'product' (broadcast_mul) reads it",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mask_whose_result_might_change_stays(case: str) -> None:
    build, reason = REFUSED[case]
    net = Net()
    graph = net.graph(build(net))
    after, done = rewrite(graph)
    assert after is graph
    assert done.record(RewrittenMask)
    for mask in done.record(RewrittenMask):
        assert mask.after is None
        assert reason in mask.reason


def test_masks_that_meet_stay_together() -> None:
    """One of two equal constants is an output; were only the other rewritten, their rows would differ."""
    net = Net()
    one = net.op("_full", name="one", shape="(1, 4)", value=-1e18)
    masked = net.op("where", net.var("a"), net.op("where", net.var("b"), net.var("x"), one), full(net))
    graph = net.graph(net.op("softmax", masked), one)
    after, done = rewrite(graph)
    assert after is graph
    assert {mask.node for mask in done.record(RewrittenMask)} == {"one", "least"}


def test_an_infinity_of_the_users_stays() -> None:
    """A fully masked row is NaN in FP32 already; -65504 would make it uniform."""
    net = Net()
    graph = softmax(net, chosen(net, -np.inf))
    assert rewrite(graph)[0] is graph


def test_a_constant_that_is_no_mask_is_not_mentioned() -> None:
    net = Net()
    graph = net.graph(net.op("relu", net.op("square", net.op("_plus_scalar", net.var("x"), scalar=1e6))))
    after, done = rewrite(graph)
    assert after is graph
    assert done.record(RewrittenMask) == ()


@pytest.mark.parametrize("values", [[-1e18, np.inf], [-1e18, -1e17], [np.nan, 0]], ids=["inf", "two", "nan"])
def test_a_parameter_of_several_such_values_stays(values: list[float]) -> None:
    net = Net()
    scores, mask = net.var("x"), net.param("mask", 1, 2, value=0.0)
    net.params["mask"][0] = values
    graph = softmax(net, net.op("broadcast_add", scores, mask))
    assert rewrite(graph, net)[0] is graph


def test_a_graph_of_another_dtype_is_left_alone() -> None:
    net = Net()
    scores = net.var("x", __dtype__="2")
    least = net.op("_full", shape="(1, 4)", value=-1e18, dtype="float16")
    graph = softmax(net, net.op("where", net.var("m"), scores, least))
    assert rewrite(graph)[0] is graph


def test_a_bound_takes_no_name_that_exists() -> None:
    net = Net()
    data = net.var("masked_bounded")
    graph = net.graph(net.op("softmax", added(net), name="weights"), net.op("exp", data))
    after, done = rewrite(graph)
    assert done.record(RewrittenMask)[0].inserted == ("masked_bounded_1",)
    assert reads(after, "weights") == ["masked_bounded_1"]


@pytest.mark.parametrize(("kept", "stays"), [("masked", True), ("weights", False), ("least", False)])
def test_scores_that_the_user_keeps_in_float32_keep_their_mask(kept: str, stays: bool) -> None:
    """They may be kept because they do not fit; then -65504 might not lie below them."""
    net = Net()
    policy = Policy.default(F16).excluding(names=[kept])
    _, done = rewrite(softmax(net, chosen(net)), policy=policy)
    assert (done.record(RewrittenMask)[0].after is None) == stays
    if stays:
        assert "'masked' (where), which you keep in float32, joins it to scores" in (
            done.record(RewrittenMask)[0].reason
        )


def test_what_a_layer_computes_is_no_mask() -> None:
    net = Net()
    gate = net.op("_rminus_scalar", net.fc(net.var("x"), "layer"), scalar=1)
    least = net.op("_mul_scalar", gate, name="least", scalar=-1e18)
    graph = softmax(net, net.op("broadcast_add", net.var("y"), least))
    assert rewrite(graph, net)[0] is graph


def test_an_input_stays_a_mask_when_it_is_multiplied_and_moved() -> None:
    net = Net()
    both = net.op("broadcast_mul", net.var("m"), net.op("expand_dims", net.var("k"), axis=1))
    off = net.op("broadcast_sub", net.op("ones_like", both), net.op("amp_cast", both, dtype="float32"))
    least = net.op("_mul_scalar", off, name="least", scalar=-1e18)
    _, done = rewrite(softmax(net, net.op("broadcast_add", net.var("x"), least)))
    assert done.record(RewrittenMask)[0].after == -65504


def test_a_stored_mask_of_zeros_and_ones_is_known_to_be_one() -> None:
    net = Net()
    scores, mask = net.var("x"), net.param("mask", 1, 4, value=1.0)
    net.params["mask"][0, 2:] = 0
    off = net.op("_rminus_scalar", mask, scalar=1)
    least = net.op("_mul_scalar", off, name="least", scalar=-1e18)
    after, _ = rewrite(softmax(net, net.op("broadcast_add", scores, least)), net)
    assert named(after, "least").attrs["scalar"] == "-65504.0"


def test_every_addition_halves_the_bound() -> None:
    """A score added later could lift a masked element back above the bound of the first sum."""
    net = Net()
    once = added(net)
    twice = net.op("broadcast_add", once, net.var("bias"), name="twice")
    after, done = rewrite(softmax(net, twice))
    assert named(after, "masked_bounded").attrs["a_min"] == "-32768.0"
    assert named(after, "twice_bounded").attrs["a_min"] == "-16384.0"
    assert done.record(RewrittenMask)[0].inserted == ("masked_bounded", "twice_bounded")
    net = Net()
    thrice = added(net)
    for name in ("one", "two"):
        thrice = net.op("broadcast_add", thrice, net.var(name))
    _, done = rewrite(softmax(net, thrice))
    assert done.record(RewrittenMask)[0].after is None
    assert "would read -8192, not far below all scores" in (done.record(RewrittenMask)[0].reason)
