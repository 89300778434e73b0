from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from mxamp.convert import convert_model
from mxamp.errors import DeviceError, MxampWarning, PolicyError
from mxamp.guard import Guard
from mxamp.model import load
from mxamp.report.guard import guard_lines
from mxamp.report.model import Report
from mxamp.targets import Support
from tests.building import BF16, Net, capable
from tests.guard.fake_machine import FakeMachine, chains, guarded, low_nodes

GAIN = -0.001
LOSS = 0.030


def convolutions(*letters_and_lengths: str) -> list[str]:
    return [f"{text[0]}{layer}" for text in letters_and_lengths for layer in range(int(text[1:]))]


@pytest.fixture
def quiet():
    """Let warnings pass, which a guard that does something gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MxampWarning)
        yield


# ---------------------------------------------------------------------- faster: nothing is done


def test_a_conversion_that_is_faster_stays_as_it_is():
    machine = FakeMachine(dict.fromkeys(convolutions("a2", "b2"), GAIN))
    model = guarded(*chains(2, 2), machine)
    found = model.report.guard
    assert (found.outcome, found.dropped, machine.races) == ("converted", (), [2])
    assert found.result.ratio == pytest.approx(10 / 6, abs=1e-4)
    assert (found.result.low, found.result.high) == pytest.approx((10 / 6, 10 / 6), abs=1e-4)
    assert found.warning is None
    assert low_nodes(model) == {*convolutions("a2", "b2"), *(f"{n}_relu" for n in convolutions("a2", "b2"))}


def test_a_guarded_conversion_is_otherwise_the_same():
    graph, params = chains(3)
    machine = FakeMachine({"a0": GAIN})
    plain = convert_model(graph, params, {}, "bfloat16", target=capable(BF16))
    model = guarded(graph, params, machine)
    assert model.symbol_json() == plain.symbol_json()
    assert plain.report.guard is None
    for name, value in plain.arg_params.items():
        assert np.array_equal(model.arg_params[name].values(), value.values())


# ---------------------------------------------------------------------- slower: regions are dropped


@pytest.mark.parametrize("slow", ["a", "b", "c", "f", "ac", "bc", "af", "bde", "abcde"])
def test_exactly_the_regions_that_cost_time_are_dropped(slow, quiet):
    names = convolutions("a2", "b2", "c2", "d2", "e2", "f2")
    machine = FakeMachine({name: LOSS if name[0] in slow else GAIN / 4 for name in names})
    model = guarded(*chains(2, 2, 2, 2, 2, 2), machine)
    assert model.report.guard.outcome == "shrunk"
    assert {name[0] for name in low_nodes(model)} == set("abcdef") - set(slow)
    dropped = {frozenset(region.nodes) for region in model.report.guard.dropped}
    assert dropped == {frozenset(f"{c}{n}{r}" for n in "01" for r in ("", "_relu")) for c in slow}


@pytest.mark.parametrize("slow", range(8))
def test_of_a_region_only_the_piece_that_costs_time_is_dropped(slow, quiet):
    names = convolutions("a8")
    machine = FakeMachine({name: LOSS if name == f"a{slow}" else GAIN for name in names})
    model = guarded(*chains(8), machine)
    assert set(names) - low_nodes(model) == {f"a{slow}"}
    (region,) = model.report.guard.dropped
    assert region.nodes == (f"a{slow}", f"a{slow}_relu")
    assert region.loss_ms > 0
    assert region.ratio > 1


def test_pieces_are_tried_where_no_whole_region_costs_time(quiet):
    # All of the region gains a little, and one layer of it loses more than that of the model.
    costs = {"a0": -0.002, "a1": -0.002, "a2": -0.002, "a3": 0.006}
    model = guarded(*chains(4), FakeMachine(costs))
    assert model.report.guard.converted.ratio == 1.0
    assert model.report.guard.outcome == "shrunk"
    assert low_nodes(model) & set(costs) == {"a0", "a1", "a2"}


def test_nodes_that_were_dropped_say_so_with_the_measurement(quiet):
    machine = FakeMachine({"a0": GAIN, "b0": LOSS})
    report = guarded(*chains(1, 1), machine).report
    assert report.node("b0").reason.startswith(
        "measured: with its region in float32 the model is 4.33 times as fast (4.33 to 4.33)"
    )
    assert report.node("b0").compute == "float32"
    assert not report.node("a0").reason.startswith("measured")


def test_what_the_guard_did_is_a_warning_of_the_callers_line():
    with pytest.warns(MxampWarning, match=r"guard: the converted model was not faster") as caught:
        guarded(*chains(1, 1), FakeMachine({"a0": GAIN, "b0": LOSS}))
    assert caught[0].filename.endswith("fake_machine.py")
    assert len(caught) == 1  # however often it converted


# ---------------------------------------------------------------------- nothing helps: float32


def test_where_low_precision_never_pays_the_prepared_float32_model_comes_back(quiet):
    net = Net()
    data = net.op("identity", net.var("data"), name="nothing")
    graph = net.graph(net.bn(net.conv(net.conv(data, "c0"), "c1"), "bn0"), net.var("spare"))
    auxs = {name: value for name, value in net.params.items() if "moving" in name}
    args = {name: value for name, value in net.params.items() if name not in auxs}
    model = convert_model(
        graph,
        args,
        auxs,
        "bfloat16",
        target=capable(BF16),
        guard=Guard(seconds=1e6, measure=FakeMachine({"c0": LOSS, "c1": LOSS})),
    )
    found = model.report.guard
    assert (found.outcome, found.dropped) == ("prepared", ())
    assert not low_nodes(model)
    assert not model.report.casts
    names = {node.name for node in model.graph.nodes}
    assert "nothing" not in names  # prepared
    assert "bn0" in names  # an output: its name may not go
    assert model.report.node("c0").reason.startswith("measured: the converted model was 0.14 times as fast")


def test_the_prepared_model_has_its_batch_norms_folded(quiet):
    net = Net()
    graph = net.graph(net.op("exp", net.bn(net.conv(net.var("data"), "c0"), "bn0"), name="last"))
    auxs = {name: value for name, value in net.params.items() if "moving" in name}
    args = {name: value for name, value in net.params.items() if name not in auxs}
    guard = Guard(seconds=1e6, measure=FakeMachine({"c0": LOSS}))
    model = convert_model(graph, args, auxs, "bfloat16", target=capable(BF16), guard=guard)
    assert "bn0" not in {node.name for node in model.graph.nodes}
    weight = model.arg_params["c0_weight"].values()
    expected = net.params["c0_weight"] / np.sqrt(1 + 1e-3)
    assert weight.dtype == np.float32
    np.testing.assert_allclose(weight, expected, rtol=1e-6)
    assert model.report.node("bn0").reason.startswith("folded into the weights of 'c0'")


def test_where_preparing_costs_time_the_original_graph_comes_back(quiet):
    net = Net()
    graph = net.graph(net.conv(net.op("identity", net.var("data"), name="nothing"), "c0"))
    model = guarded(graph, net.params, FakeMachine({"c0": LOSS}, prepared=0.002))
    assert model.report.guard.outcome == "original"
    assert [node.name for node in model.graph.nodes] == [node.name for node in graph.nodes]
    for name, values in net.params.items():
        assert np.array_equal(model.arg_params[name].values(), values)
    assert model.report.guard.prepared.ratio == pytest.approx(10 / 12, abs=1e-4)


def test_where_nothing_becomes_low_the_reasons_are_those_of_the_conversion(quiet):
    net = Net()
    term = net.op("elemwise_mul", net.param("p", 1, 4, 1, 1), net.param("q", 1, 4, 1, 1), name="folded")
    graph = net.graph(net.op("broadcast_add", net.conv(net.var("data"), "c0"), term, name="sum"))
    target = replace(capable(BF16), default=Support.UNSUPPORTED)
    model = guarded(graph, net.params, FakeMachine({}, prepared=0.002), target=target)
    assert model.report.guard.outcome == "original"
    assert model.report.guard.reason.startswith("nothing in the model became bfloat16")
    reasons = {node.name: node.reason for node in model.report.nodes}
    assert reasons["c0"] == f"no operator runs in bfloat16 on {target.name}"


@pytest.mark.parametrize(("prepared", "outcome"), [(0.0, "prepared"), (0.002, "original")])
def test_what_preparation_put_in_goes_back_too(prepared, outcome, quiet):
    mx = pytest.importorskip("mxnet", reason="the graph is built with MXNet")
    layer = mx.sym.Convolution(mx.sym.var("data"), num_filter=32, kernel=(3, 3), no_bias=True, name="c0")
    norm = mx.sym.BatchNorm(layer, output_mean_var=True, name="bn0")
    sym = mx.sym.Group([mx.sym.Activation(norm[0], act_type="relu", name="relu0"), norm[1], norm[2]])
    args = {"c0_weight": np.full((32, 32, 3, 3), 0.5, np.float32)}
    args.update(dict.fromkeys(("bn0_gamma", "bn0_beta"), np.ones(32, np.float32)))
    auxs = dict.fromkeys(("bn0_moving_mean", "bn0_moving_var"), np.ones(32, np.float32))
    given = {"input_shapes": {"data": (2, 32, 56, 56)}, "target": "cpu-bf16"}
    assert low_nodes(convert_model(sym, args, auxs, "bfloat16", **given)) == {"c0", "c0_kept"}

    machine = FakeMachine({"c0": LOSS, "c0_kept": LOSS}, prepared)
    model = convert_model(sym, args, auxs, "bfloat16", guard=Guard(seconds=1e6, measure=machine), **given)
    assert (model.report.guard.outcome, low_nodes(model), model.report.casts) == (outcome, set(), ())
    assert "c0_kept" in {node.name for node in model.graph.nodes}


def test_nodes_inside_loops_go_back_too(quiet):
    mx = pytest.importorskip("mxnet", reason="the loop is built with MXNet")
    weight = mx.sym.var("w")

    def body(data, state):
        layer = mx.sym.FullyConnected(data, weight, num_hidden=4, no_bias=True, name="inside")
        return layer + state, layer

    out, _ = mx.sym.contrib.foreach(body, mx.sym.var("x"), mx.sym.var("s"), name="loop")
    arguments = {"w": np.full((4, 4), 0.5, np.float32)}
    names = low_nodes(convert_model(out, arguments, {}, "bfloat16", target=capable(BF16)))
    inner = next(name for name in names if name.endswith("/inside"))
    model = guarded(out, arguments, FakeMachine({inner: LOSS}))
    assert model.report.guard.outcome == "original"
    assert not low_nodes(model)


def test_where_preparing_changes_nothing_it_is_not_raced(quiet):
    graph, params = chains(2)
    machine = FakeMachine({"a0": LOSS, "a1": LOSS}, prepared=-0.005)
    found = guarded(graph, params, machine, prepare=()).report.guard
    assert (found.outcome, found.prepared, found.result.ratio) == ("original", None, 1.0)
    assert machine.races[-1] == 1


def test_a_conversion_that_changes_nothing_is_not_measured():
    net = Net()
    machine = FakeMachine({})
    found = guarded(net.graph(net.op("exp", net.var("data"), name="e")), {}, machine).report.guard
    assert (found.outcome, found.reason) == ("converted", "the conversion changes nothing in the graph")
    assert machine.races == []


# ---------------------------------------------------------------------- where it must not decide


@pytest.mark.parametrize("options", [{"low_precision": "required"}, {"policy": "pure"}], ids=str)
def test_orders_are_followed_and_only_reported(options):
    with pytest.warns(MxampWarning, match="the converted model is slower than float32, and low precision"):
        model = guarded(*chains(2), FakeMachine({"a0": LOSS}), **options)
    found = model.report.guard
    assert (found.outcome, found.dropped) == ("converted", ())
    assert found.result.ratio == pytest.approx(0.25)
    assert {"a0", "a1"} <= low_nodes(model)


def test_a_model_that_cannot_be_run_is_converted_all_the_same_with_a_warning():
    def broken(models, labels, seconds):
        raise DeviceError("MXNet cannot run the converted model.")

    with pytest.warns(MxampWarning, match="was not measured: MXNet cannot run the converted model"):
        model = guarded(*chains(2), broken)
    assert model.report.guard.outcome == "failed"
    assert {"a0", "a1"} <= low_nodes(model)


def test_a_trial_that_cannot_be_run_is_passed_over(quiet):
    machine = FakeMachine({"a0": GAIN, "b0": LOSS, "c0": LOSS})

    def sometimes(models, labels, seconds):
        if any("a0" not in low_nodes(model) and low_nodes(model) for model in models if model.report):
            raise DeviceError("no")
        return machine(models, labels, seconds)

    model = guarded(*chains(1, 1, 1), sometimes)
    assert low_nodes(model) == {"a0", "a0_relu"}


@pytest.mark.parametrize("given", [1, "yes", None], ids=repr)
def test_guard_must_be_a_bool_or_a_guard(given):
    graph, params = chains(1)
    with pytest.raises(PolicyError, match=r"guard must be True, False or an mxamp\.guard\.Guard"):
        convert_model(graph, params, {}, "bfloat16", guard=given)


@pytest.mark.parametrize("seconds", [0, -1, "ten", True, float("nan")], ids=repr)
def test_the_time_must_be_some(seconds):
    with pytest.raises(PolicyError, match="The guard's seconds must be a number above 0"):
        Guard(seconds=seconds)


# ---------------------------------------------------------------------- what is left of it


def test_files_and_memory_are_guarded_to_the_same_bytes(tmp_path, quiet):
    graph, params = chains(2, 2)
    plain = convert_model(graph, params, {}, "bfloat16", target=capable(BF16))
    costs = {"a0": GAIN, "a1": GAIN, "b0": LOSS, "b1": LOSS}
    held = guarded(graph, params, FakeMachine(costs))
    plain_float32 = type(plain).of(graph, params, {})
    plain_float32.save(tmp_path / "net")
    stored = load(tmp_path / "net")
    streamed = guarded(stored.graph, stored.arg_params, FakeMachine(costs))
    held.save(tmp_path / "held")
    streamed.save(tmp_path / "streamed")
    for part in ("-symbol.json", "-0000.params"):
        assert (tmp_path / f"held{part}").read_bytes() == (tmp_path / f"streamed{part}").read_bytes()
    assert low_nodes(held) == low_nodes(streamed) == {"a0", "a0_relu", "a1", "a1_relu"}


def test_the_report_survives_json(quiet):
    report = guarded(*chains(1, 1), FakeMachine({"a0": GAIN, "b0": LOSS})).report
    assert Report.from_json(report.to_json()) == report


def test_the_report_in_words(quiet):
    report = guarded(*chains(1, 1), FakeMachine({"a0": GAIN, "b0": LOSS})).report
    measured, explained, dropped = guard_lines(report.guard)
    assert "float32 19.00 ms, this one 17.10: 1.11 times as fast (1.11 to 1.11, 20 rounds)" in measured
    assert explained.startswith("Guard: the converted model was not faster than float32 (0.26 times as fast")
    assert dropped == (
        "Back in float32, because low precision cost time there: 2 nodes in 1 region (3 sets of nodes tried)."
    )
    text = str(report)
    assert "this one 17.10" in text
    assert text.count("was not faster than float32") == 1
