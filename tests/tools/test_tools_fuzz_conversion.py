from __future__ import annotations

import dataclasses
import sys
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="random models are run in MXNet")

import mxamp
from mxamp.dtypes import DType
from mxamp.graph import Entry, Graph, Node
from mxamp.graph.symbol_reader import parse_symbol
from mxamp.measuring.machine import has_avx512
from tests.orphans import assert_ends_with_parent
from tools.fuzz_conversion import options as fuzz_options
from tools.fuzz_conversion.__main__ import main
from tools.fuzz_conversion.campaign import Campaign
from tools.fuzz_conversion.case import Case
from tools.fuzz_conversion.checks import Checked, check
from tools.fuzz_conversion.coverage import operators_of
from tools.fuzz_conversion.execution import to_symbol
from tools.fuzz_conversion.generate import random_model
from tools.fuzz_conversion.model import RandomModel
from tools.fuzz_conversion.perturbation import Perturbed, Reference
from tools.fuzz_conversion.shrink import shrunk

EXECUTED = {"target_dtype": "bfloat16", "shapes": False, "emulate": None}

FIRST, CASES = 508, 50
"""The seeds of the short form."""


def checked(case: Case) -> Checked:
    return check(case.model, case.options, seed=case.seed, stage=lambda name: None)


def dense(*, head: str = "tanh") -> Case:
    """Return a dense layer with two functions and a head."""
    random = np.random.default_rng(5)
    nodes = (
        Node("null", "data"),
        Node("null", "weight"),
        Node("FullyConnected", "fc", {"num_hidden": "4", "no_bias": "True"}, (Entry(0), Entry(1))),
        Node("sin", "sin0", {}, (Entry(2),)),
        Node("cos", "cos0", {}, (Entry(3),)),
        Node(head, "last", {"axis": "1"} if head == "argmax" else {}, (Entry(4),)),
    )
    graph = Graph(nodes, (Entry(5), Entry(3)), {"mxnet_version": ["int", 10901]})
    graph = parse_symbol(to_symbol(graph).tojson(), is_from_mxnet=True)  # in MXNet's order
    args = {"weight": random.standard_normal((4, 6)).astype(np.float32)}
    data = tuple({"data": random.standard_normal((3, 6)).astype(np.float32)} for _ in range(2))
    return Case(RandomModel(graph, args, {}, data), dict(EXECUTED), 1)


def test_a_seed_gives_the_same_case_in_any_order():
    one = Case.from_seed(7)
    Case.from_seed(8)
    same = Case.from_seed(7)
    assert one.model.to_mapping() == same.model.to_mapping()
    assert one.options == same.options
    assert Case.from_seed(9).model.to_mapping() != one.model.to_mapping()


def test_a_case_survives_its_file(tmp_path):
    case = Case.from_seed(11)
    case.save(tmp_path / "case.json")
    again = Case.load(tmp_path / "case.json")
    assert again.model.to_mapping() == case.model.to_mapping()
    assert (again.options, again.seed) == (case.options, case.seed)


def test_random_models_hold_operators_of_every_family():
    found = set()
    for seed in range(600):
        found.update(operators_of(random_model(seed).graph))
    assert len(found) > 150
    assert {"Convolution", "FullyConnected", "RNN", "_foreach", "softmax", "topk", "BatchNorm"} <= found
    assert {"Embedding", "Concat", "SliceChannel", "sum", "SequenceMask", "LayerNorm"} <= found


def test_random_conversions_hold_what_is_promised(tmp_path):
    said: list[str] = []
    campaign = Campaign(FIRST, cases=CASES, seconds=None, jobs=1, folder=tmp_path, say=said.append)
    campaign.run()
    assert not campaign.found, "\n".join(said)
    assert campaign.summary.cases == CASES
    assert campaign.summary.statuses["ok", ""] > 0.9 * CASES
    # Where MXNet has no bfloat16, what would be run in it is prepared alone.
    assert campaign.summary.low > (0.15 if has_avx512() is False else 0.25) * CASES


@pytest.mark.parametrize("has_it", [True, False])
def test_what_is_run_stays_float32_where_mxnet_has_no_bfloat16(monkeypatch: pytest.MonkeyPatch, has_it):
    monkeypatch.setattr(fuzz_options, "has_avx512", lambda: has_it)
    drawn = [Case.from_seed(seed).options for seed in range(40)]
    run = [options for options in drawn if options["emulate"] is None]
    assert 0 < len(run) < len(drawn)
    prepared_alone = [options.get("target") == "cpu-bf16-avx2" for options in run]
    assert not any(prepared_alone) if has_it else all(prepared_alone)


def test_a_sound_conversion_is_no_finding():
    assert checked(dense()).status == "ok"


def test_a_weight_that_is_off_by_a_tenth_is_a_finding(monkeypatch: pytest.MonkeyPatch):
    real = mxamp.convert_model

    def broken(sym: Any, args: Any, auxs: Any, *given: Any, **options: Any) -> Any:
        changed = {name: value * 1.1 for name, value in args.items()}
        return real(sym, changed, auxs, *given, **options)

    monkeypatch.setattr(mxamp, "convert_model", broken)
    found = checked(dense())
    assert (found.status, found.kind) == ("finding", "values differ")


def test_a_caller_whose_arrays_change_is_a_finding(monkeypatch: pytest.MonkeyPatch):
    real = mxamp.convert_model

    def broken(sym: Any, args: Any, auxs: Any, *given: Any, **options: Any) -> Any:
        model = real(sym, args, auxs, *given, **options)
        args["weight"][:] = 0
        return model

    monkeypatch.setattr(mxamp, "convert_model", broken)
    assert checked(dense()).kind == "the caller's array changed"


@pytest.mark.parametrize("status", ["ok", "finding"])
def test_positions_that_leave_low_by_name_are_rounded_once(monkeypatch, status):
    """257 is 256 in bfloat16, and that was asked for; anything else was not."""
    symbol = mx.sym.arange(0, 300, dtype="float32", name="far")
    graph = parse_symbol(symbol.tojson(), is_from_mxnet=True)
    model = RandomModel(graph, {}, {}, ({}, {}))
    options = {**EXECUTED, "io_dtype": {"far_output": "low"}}
    if status == "finding":
        real = mxamp.convert_model

        def broken(sym: Any, *given: Any, **options: Any) -> Any:
            return real(mx.sym.arange(0, 600, step=2, dtype="float32", name="far"), *given, **options)

        monkeypatch.setattr(mxamp, "convert_model", broken)
    assert checked(Case(model, options, 1)).status == status


def test_an_exception_is_a_finding(monkeypatch: pytest.MonkeyPatch):
    def broken(*given: Any, **options: Any) -> Any:
        raise KeyError("conv0")

    monkeypatch.setattr(mxamp, "convert_model", broken)
    assert "KeyError" in checked(dense()).kind


def test_a_wrong_mapping_to_onnx_is_a_finding():
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install '.[onnx]'")
    assert checked(dense()).status == "ok"
    wrong = mxamp.register_onnx_mapping("sin", lambda call: call.emit("Cos", call.data), replace=True)
    try:
        found = checked(dense())
    finally:
        wrong.undo()
    assert (found.status, found.kind) == ("finding", "ONNX Runtime computes something else")


def test_what_jumps_is_compared_where_it_is_stable_alone():
    reference = Reference(dense(head="argmax").model)
    perturbed = Perturbed(reference, DType.BFLOAT16)
    perturbed.run(50, 1)
    # sin(x) moves by rounding, and not by more.
    moved = perturbed.deviations[0][1]
    assert 0 < moved.max() < 0.2
    # A position that no perturbation moves must be met exactly.
    assert set(np.unique(perturbed.deviations[0][0] > 0.5)) <= {False, True}
    assert perturbed.deviations[0][0].min() == 0


def test_positions_are_not_perturbed():
    case = dense(head="argmax")
    nodes = (*case.model.graph.nodes, Node("_plus_scalar", "far", {"scalar": "1000"}, (Entry(5),)))
    model = case.model.with_graph(dataclasses.replace(case.model.graph, nodes=nodes, heads=(Entry(6),)))
    reference = Reference(model)
    assert Entry(len(model.graph.nodes) - 1) in reference.exact_integers(256)


def test_every_rounding_in_a_branch_is_perturbed():
    """A sum in a branch rounds as one behind it does; only what chooses the branch is left alone."""
    x, width = mx.sym.var("x"), 4

    def otherwise() -> Any:
        return mx.sym.identity(x) + 1000

    chosen = mx.sym.contrib.cond(mx.sym.sum(x) > 1e6, lambda: x * 1, otherwise)
    graph = parse_symbol(chosen.tojson(), is_from_mxnet=True)
    data = tuple({"x": np.full((2, width), value, np.float32)} for value in (1e-3, 2e-3))
    perturbed = Perturbed(Reference(RandomModel(graph, {}, {}, data)), DType.FLOAT16)
    perturbed.run(20, 1)
    assert 0.2 < perturbed.deviations[0][0].max() < 1  # float16 steps by 0.5 there


def test_what_leaves_behind_a_condition_is_rounded_once():
    """A difference of equals is 0 however its terms move, and log 2 is what a softrelu makes of it."""
    x = mx.sym.var("x")
    chosen = mx.sym.contrib.cond(mx.sym.sum(x) > 1e6, lambda: x * 1, lambda: x * 2)
    difference = mx.sym.broadcast_sub(chosen, chosen)
    graph = parse_symbol(mx.sym.Activation(difference, act_type="softrelu").tojson())
    data = ({"x": np.ones((2, 3), np.float32)},)
    perturbed = Perturbed(Reference(RandomModel(graph, {}, {}, data)), DType.FLOAT16)
    perturbed.run(4, seed=0)
    assert perturbed.deviations[0][0].min() >= np.log(2) * 2.0**-11


def test_a_scalar_may_move():
    graph = Graph(
        (Node("null", "x", {}, ()), Node("_np_sum", "y", {"axis": "None", "keepdims": "False"}, (Entry(0),))),
        (Entry(1),),
        {"mxnet_version": ["int", 10901]},
    )
    data = ({"x": np.full((3, 4), 0.1, np.float32)},)
    perturbed = Perturbed(Reference(RandomModel(graph, {}, {}, data)), DType.FLOAT16)
    perturbed.run(4, seed=0)
    assert perturbed.deviations[0][0].shape == ()
    assert perturbed.deviations[0][0] > 0


def test_what_is_compared_with_is_rounded_as_what_is_compared():
    """0.77 is no number of float16's; what rounds to its neighbour equals it there."""
    graph = parse_symbol((mx.sym.identity(mx.sym.var("x")) == 0.77).tojson(), is_from_mxnet=True)
    data = tuple({"x": np.full((8, 8), value, np.float32)} for value in (0.7701, 0.3))
    perturbed = Perturbed(Reference(RandomModel(graph, {}, {}, data)), DType.FLOAT16)
    perturbed.run(20, 1)
    assert perturbed.deviations[0][0].max() == 0
    perturbed.run(20, 1, rounding=True)
    assert perturbed.deviations[0][0].max() == 1
    assert perturbed.deviations[1][0].max() == 0


def test_shrinking_keeps_what_shows_the_finding():
    def still(candidate: Case) -> bool:
        return any(node.op == "cos" for node in candidate.model.graph.nodes)

    small = shrunk(dense(), still)
    assert [node.op for node in small.model.graph.nodes] == ["null", "cos"]


def test_a_process_that_dies_is_a_finding_and_the_rest_goes_on(tmp_path):
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import json, os, signal, sys\n"
        "first, count = map(int, sys.argv[2:4])\n"
        "for seed in range(first, first + count):\n"
        "    print(json.dumps({'seed': seed, 'stage': 'run'}), flush=True)\n"
        "    if seed == 3:\n"
        "        os.kill(os.getpid(), signal.SIGSEGV)\n"
        "    result = {'status': 'ok', 'kind': '', 'text': '', 'error': 0.0, 'low': 1}\n"
        "    found = {'seed': seed, 'result': result, 'operators': {}, 'options': []}\n"
        "    print(json.dumps(found), flush=True)\n"
    )
    campaign = Campaign(
        0,
        cases=6,
        seconds=None,
        jobs=1,
        folder=tmp_path,
        say=lambda text: None,
        worker=(sys.executable, str(worker)),
    )
    campaign.run()
    (found,) = campaign.found
    assert (found.seed, found.kind) == (3, "the process dies of signal 11")
    assert "alone too" in found.text
    assert campaign.summary.cases == 5


@pytest.mark.parametrize("once", [True, False], ids=["once", "always"])
def test_what_hangs_is_a_finding_where_it_hangs_again(tmp_path, monkeypatch, once):
    monkeypatch.setattr("tools.fuzz_conversion.campaign.PATIENCE", 2.0)
    hung = tmp_path / "hung"
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import json, pathlib, sys, time\n"
        f"hung = pathlib.Path({str(hung)!r})\n"
        "first, count = map(int, sys.argv[2:4])\n"
        "for seed in range(first, first + count):\n"
        "    print(json.dumps({'seed': seed, 'stage': 'run'}), flush=True)\n"
        f"    if seed == 3 and not (hung.exists() and {once}):\n"
        "        hung.touch()\n"
        "        time.sleep(60)\n"
        "    result = {'status': 'ok', 'kind': '', 'text': '', 'error': 0.0, 'low': 1}\n"
        "    found = {'seed': seed, 'result': result, 'operators': {}, 'options': []}\n"
        "    print(json.dumps(found), flush=True)\n"
    )
    campaign = Campaign(
        0,
        cases=6,
        seconds=None,
        jobs=1,
        folder=tmp_path,
        say=lambda text: None,
        worker=(sys.executable, str(worker)),
    )
    campaign.run()
    assert [found.kind for found in campaign.found] == ([] if once else ["the process hangs"])
    assert campaign.summary.cases == 5


def test_a_replayed_case_says_how_it_went(tmp_path, capsys):
    dense().save(tmp_path / "case.json")
    assert main(["--replay", str(tmp_path / "case.json")]) == 0
    assert "fc = FullyConnected(data, weight)" in capsys.readouterr().out


def test_a_worker_ends_with_the_process_that_started_it(tmp_path):
    started = tmp_path / "started"
    program = (
        "import pathlib, sys, time\n"
        "from tools.fuzz_conversion import worker\n"
        f"worker._seeds = lambda *_: (pathlib.Path({str(started)!r}).touch(), time.sleep(600))\n"
        "worker.main(['seeds', '0', '1'])\n"
    )
    assert_ends_with_parent(program, until=started.exists)
