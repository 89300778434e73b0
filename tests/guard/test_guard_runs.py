"""The guard on this machine. No test says which model is faster: that is for the machine to say."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="measures models")

import mxamp
from mxamp.errors import MxampWarning
from mxamp.guard import Guard
from mxamp.measuring.machine import has_bfloat16_instructions
from mxamp.report.guard import guard_lines
from mxamp.targets import Target

pytestmark = pytest.mark.skipif(
    has_bfloat16_instructions() is False, reason="MXNet computes in bfloat16 only where the CPU does"
)

LOW = "generic-bf16"
"""A target without costs, for which all that may be low is."""

SHAPES = {"data": (1, 3, 16, 16)}


@pytest.fixture(autouse=True)
def quiet():
    """Let the warning pass that a guard gives where it found something."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MxampWarning)
        yield


def network():
    """Return two convolutions with BatchNorm around an operator that bfloat16 does not suit."""
    data = mx.sym.var("data")
    for number, filters in enumerate((8, 16)):
        data = mx.sym.Convolution(data, num_filter=filters, kernel=(3, 3), no_bias=True, name=f"conv{number}")
        data = mx.sym.BatchNorm(data, fix_gamma=False, name=f"bn{number}")
        data = mx.sym.Activation(data, act_type="relu", name=f"relu{number}")
        data = mx.sym.exp(-data, name=f"exp{number}")
    data = mx.sym.FullyConnected(data, num_hidden=5, name="fc")
    shapes, _, states = data.infer_shape(**SHAPES)
    args = {
        name: mx.nd.random.normal(scale=0.1, shape=shape)
        for name, shape in zip(data.list_arguments(), shapes)
        if name != "data"
    }
    auxs = {name: mx.nd.ones(shape) for name, shape in zip(data.list_auxiliary_states(), states)}
    return data, args, auxs


def outputs(sym, args, auxs):
    values = {**args, "data": mx.nd.array(np.random.default_rng(0).normal(size=SHAPES["data"]))}
    bound = sym.bind(mx.cpu(), values, aux_states=auxs, grad_req="null")
    return bound.forward()[0].asnumpy()


def test_a_model_is_measured_and_what_comes_back_runs_and_is_right():
    sym, args, auxs = network()
    model = mxamp.convert_model(
        sym, args, auxs, "bfloat16", input_shapes=SHAPES, target=LOW, guard=Guard(seconds=2)
    )
    found = model.report.guard
    assert found.outcome in ("converted", "shrunk", "prepared", "original")
    assert found.converted.rounds >= 6
    assert found.converted.float32_ms > 0
    assert set(found.machine) - {"advice"} == {"cpu", "threads", "device", "mxnet"}
    assert found.data == "random"
    assert guard_lines(found)[0].startswith(f"Measured on {found.machine['cpu']}, ")
    expected = outputs(sym, args, auxs)
    np.testing.assert_allclose(outputs(*model), expected, rtol=0.05, atol=0.02 * np.abs(expected).max())


def test_what_the_guard_may_give_back_runs_and_is_float32s_result():
    """Whatever this machine finds: each of the two is had by a measurement that finds it."""
    from tests.guard.fake_machine import FakeMachine

    sym, args, auxs = network()
    expected = outputs(sym, args, auxs)
    for prepared, outcome in ((0.0, "prepared"), (0.01, "original")):
        machine = FakeMachine({"conv0": 0.1, "conv1": 0.1, "fc": 0.1}, prepared)
        model = mxamp.convert_model(
            sym, args, auxs, "bfloat16", target=LOW, guard=Guard(seconds=1e6, measure=machine)
        )
        assert model.report.guard.outcome == outcome
        np.testing.assert_allclose(outputs(*model), expected, rtol=1e-4, atol=1e-5)


def test_given_data_are_what_is_measured():
    sym, args, auxs = network()
    guard = Guard(seconds=1, data=np.zeros((3, 3, 16, 16), np.float32))
    assert (
        mxamp.convert_model(sym, args, auxs, "bfloat16", target=LOW, guard=guard).report.guard.data == "given"
    )


def test_a_block_is_guarded_too():
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Conv2D(4, 3), mx.gluon.nn.Dense(3))
    net.initialize()
    converted = mxamp.convert_block(
        net, "bfloat16", input_shapes=(1, 3, 8, 8), target=LOW, guard=Guard(seconds=1)
    )
    assert converted.report.guard.converted is not None
    assert converted(mx.nd.ones((1, 3, 8, 8))).shape == (1, 3)


def test_words_go_into_an_embedding_within_its_rows():
    words = mx.sym.var("words")
    out = mx.sym.FullyConnected(
        mx.sym.Embedding(words, input_dim=11, output_dim=8, name="table"), num_hidden=4, name="fc"
    )
    args = {
        "table_weight": mx.nd.ones((11, 8)),
        "fc_weight": mx.nd.ones((4, 56)),
        "fc_bias": mx.nd.zeros((4,)),
    }
    model = mxamp.convert_model(
        out, args, {}, "bfloat16", input_shapes={"words": (2, 7)}, target=LOW, guard=Guard(seconds=1)
    )
    assert model.report.guard.result is not None


def test_an_emulated_model_is_not_measured():
    sym, args, auxs = network()
    model = mxamp.convert_model(sym, args, auxs, "bfloat16", input_shapes=SHAPES, guard=True, emulate=True)
    assert model.report.guard.outcome == "not run"
    assert "emulated" in model.report.guard.reason


def test_float16_is_not_measured_on_a_cpu():
    from mxamp.runtime.device import gpu_count

    if gpu_count():
        pytest.skip("there is a GPU to measure on")
    sym, args, auxs = network()
    target = Target.builtin("cuda-fp16")
    model = mxamp.convert_model(sym, args, auxs, "float16", target=target, input_shapes=SHAPES, guard=True)
    assert model.report.guard.reason == "float16 models run on GPUs alone, and MXNet sees none here"


def test_models_may_run_in_a_process_of_their_own():
    sym, args, auxs = network()
    guard = Guard(seconds=0.2, own_process=True)
    options = {"input_shapes": SHAPES, "target": LOW, "low_precision": "required"}  # one race, and no more
    found = mxamp.convert_model(sym, args, auxs, "bfloat16", guard=guard, **options).report.guard
    assert found.outcome == "converted"
    assert found.converted.rounds >= 6
