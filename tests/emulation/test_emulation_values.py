"""Emulated bfloat16 computes what bfloat16 computes on this CPU; float16, what NumPy says it must."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="runs models")

import mxamp
from mxamp.compare.metrics import distance
from mxamp.errors import DataError, LibraryError, OperatorError, PolicyError, TargetError
from mxamp.model import Model
from mxamp.ops.reference import round_to
from mxamp.runtime.executor import run_outputs
from mxamp.runtime.library import load_operators
from mxamp.targets import Support
from tools.emulation_by_layer import layer_agreements

S = mx.sym
SHAPE = (2, 4, 8, 8)
DATA = {"data": np.random.default_rng(1).normal(0, 1, SHAPE).astype(np.float32)}


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    try:
        load_operators()
    except LibraryError as error:
        pytest.skip(f"the operator library cannot be built: {error}")


def conv(data: Any, name: str) -> Any:
    return S.Convolution(data, num_filter=4, kernel=(3, 3), pad=(1, 1), name=name)


def model_of(sym: Any, scale: float = 0.4) -> Model:
    """Return a model with random parameters."""
    random = np.random.default_rng(0)
    shapes, _, aux_shapes = sym.infer_shape(data=SHAPE)
    args = {
        name: random.normal(0, scale, shape).astype(np.float32)
        for name, shape in zip(sym.list_arguments(), shapes)
        if name != "data"
    }
    auxs = {
        name: random.uniform(0.5, 1.5, shape).astype(np.float32)
        for name, shape in zip(sym.list_auxiliary_states(), aux_shapes)
    }
    return Model.of(sym, args, auxs)


def block(activation: Any) -> Any:
    """Return a residual block: what oneDNN fuses, and what it does not."""
    data = activation(S.BatchNorm(conv(S.var("data"), "conv0"), name="bn0", fix_gamma=False), "act0")
    added = activation(conv(data, "conv1") + data, "act1")
    pooled = S.Pooling(added, kernel=(2, 2), stride=(2, 2), pool_type="avg", name="pool")
    return S.FullyConnected(S.Flatten(S.Concat(pooled, pooled, name="concat")), num_hidden=6, name="fc")


ACTIVATIONS = {
    "relu": lambda data, name: S.Activation(data, act_type="relu", name=name),
    "sigmoid": lambda data, name: S.Activation(data, act_type="sigmoid", name=name),
    "leaky": lambda data, name: S.LeakyReLU(data, act_type="leaky", slope=0.1, name=name),
    "gelu": lambda data, name: S.LeakyReLU(data, act_type="gelu", name=name),
    "relu6": lambda data, name: S.clip(data, a_min=0, a_max=6, name=name),
}


@pytest.mark.parametrize("fusion", [True, False], ids=["as deployed", "fusion off"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_emulated_bfloat16_agrees_with_the_real_one_layer_by_layer(activation: str, fusion: bool) -> None:
    model = model_of(block(ACTIVATIONS[activation]))
    real = mxamp.convert_model(
        model.graph, model.arg_params, model.aux_params, "bfloat16", low_precision="required"
    )
    layers = layer_agreements(real, DATA, mxamp.Target.builtin("cpu-bf16"), fusion=fusion)
    chains = [layer.operators for layer in layers if len(layer.operators) > 1]
    assert bool(chains) == fusion
    rounding = [layer for layer in layers if layer.unrounded > 1e-4]
    assert len(rounding) >= 3
    for layer in rounding:
        # float32 sums in another order may round one value in thousands the other way.
        assert layer.emulated < 0.1 * layer.unrounded, layer


NETWORKS = {"resnet18_v1": 64, "mobilenet1.0": 64}


@pytest.mark.slow
@pytest.mark.zoo
@pytest.mark.parametrize("name", NETWORKS)
def test_emulated_bfloat16_agrees_with_the_real_one_in_networks(name: str) -> None:
    pytest.importorskip("gluoncv", reason="builds models of the zoo")
    from tools.verify_emulation import measure_bfloat16

    found = measure_bfloat16(name, size=NETWORKS[name])
    for layers in (found.unfused_layers, found.fused_layers):
        assert layers.count >= 19
        assert layers.median < 0.01 * layers.unrounded
        assert layers.largest < 0.5 * layers.unrounded


def test_emulated_float16_is_numpys_float16() -> None:
    sym = S.FullyConnected(S.Flatten(S.var("data")), num_hidden=6, name="fc")
    model = model_of(sym)
    emulated = mxamp.emulate(model.graph, model.arg_params, model.aux_params, "float16")
    (found,) = run_outputs(emulated, DATA)
    half = {name: value.numpy().astype(np.float16) for name, value in model.arg_params.items()}
    flat = DATA["data"].astype(np.float16).reshape(2, -1)
    exact = flat.astype(np.float64) @ half["fc_weight"].astype(np.float64).T + half["fc_bias"]
    np.testing.assert_allclose(found, exact.astype(np.float16), rtol=2.0**-10)
    np.testing.assert_array_equal(found, round_to(found, "float16"))


def test_bodies_of_loops_are_emulated() -> None:
    weight = S.var("w")

    def step(data: Any, state: Any) -> Any:
        out = S.FullyConnected(data, weight, num_hidden=4, no_bias=True, name="inner") + state
        return out, S.tanh(out)

    out, _ = S.contrib.foreach(step, S.var("data"), S.var("s"), name="loop")
    random = np.random.default_rng(3)
    weights = {"w": random.normal(size=(4, 4)).astype(np.float32)}
    data = {"data": random.normal(size=(3, 2, 4)).astype(np.float32), "s": np.zeros((2, 4), np.float32)}
    model = Model.of(out, weights, {})
    emulated = mxamp.emulate(out, weights, {}, "float16")
    assert "_mxamp_round" in emulated.symbol_json()
    (found,), (exact,) = run_outputs(emulated, data), run_outputs(model, data)
    assert 1e-5 < distance(exact, found).relative_l2 < 2e-3


class TestFiles:
    def saved(self, folder: Any) -> Model:
        model = model_of(block(ACTIVATIONS["relu"]))
        emulated = mxamp.emulate(model.graph, model.arg_params, model.aux_params, "float16")
        emulated.save(folder / "net")
        return emulated

    def test_a_saved_emulation_computes_the_same(self, tmp_path: Any) -> None:
        emulated = self.saved(tmp_path)
        loaded = mxamp.load(tmp_path / "net")
        np.testing.assert_array_equal(run_outputs(emulated, DATA)[0], run_outputs(loaded, DATA)[0])

    def test_a_new_process_loads_the_library_by_itself(self, tmp_path: Any) -> None:
        self.saved(tmp_path)
        code = (
            "import mxamp, sys; sym, args, auxs = mxamp.load(sys.argv[1]); "
            "print(sym.infer_shape(data=(2, 4, 8, 8))[1])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "net")], capture_output=True, text=True, check=False
        )
        assert done.stdout.strip() == "[(2, 6)]", done.stderr

    def test_stock_mxnet_refuses_it_and_says_why(self, tmp_path: Any) -> None:
        self.saved(tmp_path)
        code = "import mxnet, sys; mxnet.model.load_checkpoint(sys.argv[1], 0)"
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "net")], capture_output=True, text=True, check=False
        )
        assert done.returncode != 0
        assert "_mxamp_round" in done.stderr


class TestRangeLosses:
    def overflowing(self, **options: Any) -> tuple[Model, Model]:
        sym = S.FullyConnected(S.Flatten(conv(S.var("data"), "conv0")), num_hidden=6, name="fc")
        model = model_of(sym)
        large = {**model.arg_params, "conv0_weight": model.arg_params["conv0_weight"].numpy() * 2e4}
        model = Model.of(model.graph, large, {})
        return model, mxamp.emulate(model.graph, large, {}, "float16", **options)

    def test_overflow_is_counted_at_the_node_where_it_happens(self) -> None:
        model, emulated = self.overflowing()
        losses = {loss.node: loss for loss in mxamp.rounding_losses(emulated, DATA)}
        assert set(losses) == {"data", "conv0", "fc"}
        (before,) = run_outputs(with_head(model, "conv0"), DATA, fusion=False)
        found = losses["conv0"]
        assert found.op == "Convolution"
        assert found.elements == before.size
        assert found.overflowed == pytest.approx(np.count_nonzero(np.abs(before) >= 65520), abs=3)
        assert found.overflow_share == found.overflowed / found.elements > 0
        assert found.largest == pytest.approx(np.abs(before).max(), rel=1e-2)
        assert losses["data"].overflowed == 0

    def test_what_was_infinite_before_is_not_counted_again(self) -> None:
        losses = {loss.node: loss for loss in mxamp.rounding_losses(self.overflowing()[1], DATA)}
        assert losses["fc"].overflowed == 0

    def test_saturating_keeps_outputs_finite(self) -> None:
        _, emulated = self.overflowing(overflow="saturate")
        losses = {loss.node: loss for loss in mxamp.rounding_losses(emulated, DATA)}
        assert losses["conv0"].overflowed > 0

    def test_underflow_is_counted(self) -> None:
        model = model_of(S.FullyConnected(S.var("data"), num_hidden=2, name="fc"))
        emulated = mxamp.emulate(model.graph, model.arg_params, {}, "float16")
        values = np.zeros(SHAPE, np.float32)
        values[0, 0, 0, :4] = [2.0**-25, np.nextafter(np.float32(2.0**-25), np.float32(1)), -1e-9, 1.0]
        losses = {loss.node: loss for loss in mxamp.rounding_losses(emulated, values)}
        assert (
            losses["data"].underflowed == 2
        )  # the tie at 2**-25 becomes zero, what is just above it does not
        assert losses["data"].smallest == pytest.approx(1e-9)

    def test_batches_add_up(self) -> None:
        _, emulated = self.overflowing()
        whole = mxamp.rounding_losses(emulated, DATA, batch_size=None)
        assert mxamp.rounding_losses(emulated, DATA, batch_size=1) == whole

    def test_a_model_that_emulates_nothing_is_refused(self) -> None:
        model, _ = self.overflowing()
        with pytest.raises(DataError, match=r"holds no _mxamp_round node.*mxamp\.emulate"):
            mxamp.rounding_losses(model, DATA)


def with_head(model: Model, name: str) -> Model:
    from mxamp.graph import Entry

    (position,) = [p for p, node in enumerate(model.graph.nodes) if node.name == name]
    return dataclasses.replace(
        model, graph=dataclasses.replace(model.graph, heads=(Entry(position),)), _mxnet={}
    )


class TestPure:
    def test_pure_low_precision_rounds_what_mixed_keeps_exact(self) -> None:
        sym = S.softmax(S.exp(conv(S.var("data"), "conv0"), name="exp"), axis=1, name="softmax")
        model = model_of(sym, scale=1.0)
        mixed = mxamp.emulate(model.graph, model.arg_params, {}, "float16")
        pure = mxamp.emulate(model.graph, model.arg_params, {}, "float16", policy="pure")
        assert mixed.report.node("exp").compute == "float32"
        assert pure.report.node("exp").compute == "float16"
        found = mxamp.compare_candidates(model, {"mixed": mixed, "pure": pure}, DATA)
        errors = {name: found[name].outputs[0].distance.relative_l2 for name in ("FP32", "mixed", "pure")}
        assert errors["FP32"] < errors["mixed"] < errors["pure"]

    def test_sums_that_stay_float32_are_named(self) -> None:
        model = model_of(S.mean(conv(S.var("data"), "conv0"), axis=(2, 3), name="mean"))
        pure = mxamp.emulate(model.graph, model.arg_params, {}, "float16", policy="pure")
        (sentence,) = pure.report.approximations
        assert sentence == "mean may carry its sum in float16 (in 'mean'); emulation carries it in float32."


class TestWhatIsRefused:
    MODEL = model_of(S.FullyConnected(S.var("data"), num_hidden=2, name="fc"))

    @pytest.mark.parametrize("dtype", ["tfloat32", "float8_e4m3fn", "float8_e5m2"])
    def test_converting_to_what_is_only_emulated(self, dtype: str) -> None:
        with pytest.raises(
            PolicyError, match=rf"{dtype} is not a dtype of MXNet: it exists in emulation only"
        ):
            mxamp.convert_model(self.MODEL.graph, self.MODEL.arg_params, {}, dtype)

    def test_reading_a_dtype_that_is_only_emulated(self) -> None:
        with pytest.raises(TargetError, match=r"exists in emulation only.*mxamp\.emulate"):
            mxamp.DType.parse("tfloat32")

    def test_an_unknown_format(self) -> None:
        with pytest.raises(PolicyError, match="float8_e4m3fn"):
            mxamp.emulate(self.MODEL.graph, self.MODEL.arg_params, {}, "float8")

    def test_an_unknown_overflow(self) -> None:
        with pytest.raises(OperatorError, match="says nothing about overflow"):
            mxamp.emulate(self.MODEL.graph, self.MODEL.arg_params, {}, "float16", overflow="wrap")

    def test_an_emulate_that_is_no_flag(self) -> None:
        with pytest.raises(PolicyError, match=r"emulate must be True, False or an mxamp\.passes\.Emulation"):
            mxamp.convert_model(self.MODEL.graph, self.MODEL.arg_params, {}, "float16", emulate="yes")


@pytest.mark.slow
@pytest.mark.zoo
@pytest.mark.parametrize("form", ["", "+primitive"], ids=["one operator", "primitive operators"])
def test_emulated_float16_finds_the_boxes_that_float32_finds(form: str) -> None:
    pytest.importorskip("gluoncv", reason="builds models of the zoo")
    from tools.verify_emulation import measure_float16

    found = measure_float16(f"ssd_512_resnet50_v1_voc{form}", size=128)
    assert found.boxes_mixed is not None
    assert found.boxes_mixed.matched > 0.95
    assert found.boxes_mixed.mean_overlap > 0.99
    assert found.mixed < 1e-3
    assert found.mixed < found.pure  # decoding boxes in float16 moves them
    assert found.overflowing_mixed == 0


def test_a_gpu_is_refused_with_the_way_out() -> None:
    from types import SimpleNamespace

    from mxamp.dtypes import DType
    from mxamp.errors import DeviceError
    from mxamp.runtime import executor

    model = model_of(S.FullyConnected(S.var("data"), num_hidden=2, name="fc"))
    emulated = mxamp.emulate(model.graph, model.arg_params, {}, "float16")
    variables = dict.fromkeys(emulated.graph.variables, DType.FLOAT32)
    gpu = SimpleNamespace(device_type="gpu")
    with pytest.raises(
        DeviceError, match=r"operator of mxamp's library, which runs on CPUs alone.*--ctx cpu"
    ):
        executor.check_device(emulated.graph, variables, gpu, "the emulated model")


class TestWhereMxnetIsKnownToTruncate:
    """There alone the real bfloat16 and the emulated one differ, and the report names the node."""

    def test_the_fused_batch_norm(self) -> None:
        model = model_of(block(ACTIVATIONS["relu"]))
        # What is low must not depend on costs.
        target = dataclasses.replace(mxamp.Target.builtin("cpu-bf16"), cost=None)
        options = {"target_dtype": "bfloat16", "target": target, "fold_batch_norm": False}
        real = mxamp.convert_model(model.graph, model.arg_params, model.aux_params, **options)
        emulated = mxamp.emulate(model.graph, model.arg_params, model.aux_params, **options)
        (sentence,) = emulated.report.approximations
        assert sentence.startswith(
            "MXNet's fused Convolution+BatchNorm truncates the weights it scales (in 'conv0')"
        )
        layers = layer_agreements(real, DATA, mxamp.Target.builtin("cpu-bf16"), fusion=True)
        errors = {layer.operators[:2]: layer.emulated for layer in layers if layer.unrounded > 1e-4}
        assert errors.pop(("Convolution", "BatchNorm")) > 1e-3
        assert max(errors.values()) < 2e-4

    def test_casts(self) -> None:
        sym = S.Cast(S.Cast(S.var("data"), dtype="bfloat16", name="low"), dtype="float32", name="back")
        emulated = mxamp.emulate(sym, {}, {}, "bfloat16")
        (sentence,) = emulated.report.approximations
        assert sentence == "MXNet's Cast truncates to bfloat16 (in 'low'); emulation rounds to nearest."

    def test_a_user_s_wish_for_a_biased_operator(self) -> None:
        model = model_of(S.exp(conv(S.var("data"), "conv0"), name="exp"))
        target = dataclasses.replace(mxamp.Target.builtin("cpu-bf16"), default=Support.WORKS)
        emulated = mxamp.emulate(model.graph, model.arg_params, {}, "bfloat16", policy="pure", target=target)
        assert emulated.report.node("exp").compute == "float32"  # the target refuses what is biased
        assert emulated.report.approximations == ()


def test_a_recurrent_layer_says_that_its_states_are_not_rounded() -> None:
    data, weight, state = S.var("data"), S.var("w"), S.var("s")
    sym = S.RNN(data, weight, state, state_size=3, num_layers=1, mode="gru", name="gru")
    values = {"w": np.zeros(3 * 3 * (4 + 3 + 2), np.float32), "s": np.zeros((1, 2, 3), np.float32)}
    emulated = mxamp.emulate(sym, values, {}, "float16")
    (sentence,) = emulated.report.approximations
    assert sentence.startswith("RNN rounds its states to float16 after every step (in 'gru')")


class TestKindsOfInput:
    """Whatever the model is given as, what is emulated is the same."""

    SYM = S.FullyConnected(S.var("data"), num_hidden=3, name="fc")
    WEIGHT = np.random.default_rng(5).normal(size=(3, 4)).astype(np.float32)

    def given(self, kind: str, folder: Any) -> tuple[Any, Any]:
        args = {"fc_weight": self.WEIGHT, "fc_bias": np.zeros(3, np.float32)}
        if kind == "symbol and MXNet arrays":
            return self.SYM, {name: mx.nd.array(values) for name, values in args.items()}
        if kind == "symbol and NumPy arrays":
            return self.SYM, args
        model = Model.of(self.SYM, args, {})
        if kind == "file":
            model.save(folder / "net")
            model = mxamp.load(folder / "net")
        return model.graph, model.arg_params

    @pytest.mark.parametrize("saturate", [False, True])
    @pytest.mark.parametrize(
        "kind", ["symbol and MXNet arrays", "symbol and NumPy arrays", "graph and parameters", "file"]
    )
    @pytest.mark.parametrize("label", ["float16", "bfloat16", "tfloat32", "float8_e4m3fn", "float8_e5m2"])
    def test_parameters_are_rounded_to_every_format(
        self, label: str, kind: str, saturate: bool, tmp_path: Any
    ) -> None:
        sym, args = self.given(kind, tmp_path)
        emulated = mxamp.emulate(sym, args, {}, label, saturate=saturate)
        np.testing.assert_array_equal(emulated.arg_params["fc_weight"].numpy(), round_to(self.WEIGHT, label))
        data = np.random.default_rng(6).normal(size=(2, 4)).astype(np.float32)
        (found,) = run_outputs(emulated, {"data": data})
        np.testing.assert_array_equal(found, round_to(found, label))


class TestUndeclaredInputs:
    """The dtype of an input that does not say it is an assumption."""

    def scaled(self, data: Any, dtype: str = "float32") -> Any:
        return S.FullyConnected(S.Cast(data, dtype=dtype) / 255, num_hidden=2, no_bias=True, name="fc")

    def outputs(self, sym: Any, dtype: str) -> Any:
        emulated = mxamp.emulate(sym, {"fc_weight": np.eye(2, dtype=np.float32)}, {}, dtype)
        return run_outputs(emulated, {"data": np.array([[100, 200]], np.uint8)})[0]

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    def test_a_cast_of_images_is_kept(self, dtype: str) -> None:
        found = self.outputs(self.scaled(S.var("data")), dtype)
        np.testing.assert_allclose(found, [[100 / 255, 200 / 255]], rtol=1e-2)

    def test_so_is_one_to_low_precision(self) -> None:
        low = S.Cast(S.Cast(S.var("data"), dtype="float16"), dtype="float32")
        found = self.outputs(self.scaled(low), "float16")
        np.testing.assert_allclose(found, [[100 / 255, 200 / 255]], rtol=1e-2)

    def test_so_is_one_in_a_loop(self) -> None:
        weight = S.var("fc_weight")

        def step(data: Any, state: Any) -> Any:
            out = S.FullyConnected(S.Cast(data, dtype="float32") / 255, weight, num_hidden=2, no_bias=True)
            return out, out + state

        out, _ = S.contrib.foreach(step, S.expand_dims(S.var("data"), 1), S.zeros((1, 2)), name="loop")
        found = self.outputs(out, "float16")
        np.testing.assert_allclose(found, [[[100 / 255, 200 / 255]]], rtol=1e-2)

    def test_a_cast_to_what_an_input_says_it_is_goes(self) -> None:
        emulated = mxamp.emulate(
            self.scaled(S.var("data", dtype="float32")),
            {"fc_weight": np.eye(2, dtype=np.float32)},
            {},
            "float16",
            prepare=(),
        )
        assert "Cast" not in {node.op for node in emulated.graph.nodes}


def test_integers_that_an_undeclared_input_is_fed_with_pass_a_rounding_as_they_pass_a_cast() -> None:
    table = np.random.default_rng(0).normal(0, 1, (301, 2)).astype(np.float32)
    sym = S.Embedding(S.var("words") + 1, S.var("table"), input_dim=301, output_dim=2, name="embedding")
    emulated = mxamp.emulate(sym, {"table": table}, {}, "bfloat16", policy="pure")
    assert any(node.op == "_mxamp_round_both_ways" for node in emulated.graph.nodes)
    words = np.array([[1, 257, 299]], np.int64)  # 258 and 300 are no bfloat16
    given = {"words": mx.nd.array(words, dtype="int64"), **emulated.args}
    found = emulated.sym.bind(mx.cpu(), given).forward()[0].asnumpy()
    np.testing.assert_array_equal(found, round_to(table, "bfloat16")[words + 1])
