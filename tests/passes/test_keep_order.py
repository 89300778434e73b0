"""What MXNet would misread since it lies in oneDNN's order is copied into plain order first."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="the defect is MXNet's, and is looked for by execution")

import mxamp
from mxamp.errors import MxampWarning
from mxamp.runtime.symbol import graph_from_symbol
from mxamp.targets.order_defect import misread_orders

S = mx.sym
VOLUME, IMAGE, SEQUENCE = (2, 4, 6, 10, 12), (2, 4, 24, 20), (2, 4, 300)

Form = Callable[[Any], Any]


def numpy_reshape(x: Any) -> Any:
    return S.npx.reshape(x.as_np_ndarray(), (-2, -2, -1)).as_nd_ndarray()


SAY: dict[str, Form] = {
    "Reshape": lambda x: S.Reshape(x, shape=(0, 0, -1)),
    "Flatten": lambda x: S.Flatten(x),
    "numpy": numpy_reshape,
    "through expand_dims": lambda x: S.Reshape(S.expand_dims(x, axis=1), shape=(0, -3, -1)),
    "the same": lambda x: S.Reshape(x, shape=(-2,)),
}
MISREAD: dict[str, Form] = {
    "transpose": lambda x: S.transpose(x),
    "softmax": lambda x: S.softmax(x, axis=-1),
    "log_softmax": lambda x: S.log_softmax(x, axis=-1),
    "Reshape": lambda x: S.Reshape(x, shape=(-1,)),
    "sum": lambda x: x + x * 2,
    "over": lambda x: S.transpose(x * 2),
}
READ: dict[str, Form] = {
    "mean": lambda x: S.mean(x, axis=-1),
    "batch_dot": lambda x: S.batch_dot(x, x, transpose_b=True),
    "slice": lambda x: S.slice_axis(x, axis=1, begin=0, end=3),
}


def layer(shape: tuple[int, ...], data: Any = None, filters: int = 16) -> Any:
    data = S.var("data") if data is None else data
    return S.Convolution(data, num_filter=filters, kernel=(1,) * (len(shape) - 2), name="layer")


def arrays(symbol: Any, shape: tuple[int, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    shapes, _, states = symbol.infer_shape(data=shape)
    random = np.random.default_rng(0)
    args = {n: mx.nd.array(random.uniform(-1, 1, s)) for n, s in zip(symbol.list_arguments(), shapes)}
    auxs = {n: mx.nd.array(random.uniform(0.5, 1, s)) for n, s in zip(symbol.list_auxiliary_states(), states)}
    return args, auxs


def without_layer(head: Callable[[Any], Any], args: dict[str, Any]) -> np.ndarray:
    """Return what a head computes of the layer's result, which lies in plain order."""
    weight, bias = (args[f"layer_{what}"].asnumpy() for what in ("weight", "bias"))
    mixed = np.einsum("ncp,oc->nop", args["data"].asnumpy().reshape(2, 4, -1), weight.reshape(16, 4))
    values = (mixed + bias[None, :, None]).reshape(2, 16, *args["data"].shape[2:])
    return head(S.var("x")).bind(mx.cpu(), {"x": mx.nd.array(values)}).forward()[0].asnumpy()


def runs_right(symbol: Any, args: dict[str, Any], auxs: dict[str, Any], expected: np.ndarray) -> bool:
    try:
        found = symbol.bind(mx.cpu(), args, aux_states=auxs).forward()[0].asnumpy()
    except mx.base.MXNetError:
        return False
    return np.allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [VOLUME, IMAGE, SEQUENCE], ids=["volume", "image", "sequence"])
@pytest.mark.parametrize("say", SAY)
@pytest.mark.parametrize("read", [*MISREAD, *READ])
def test_what_is_misread_is_known_and_mended(shape: tuple[int, ...], say: str, read: str) -> None:
    if say == "through expand_dims" and read in ("batch_dot",):
        pytest.skip("a Reshape of four axes has no matrices")

    def head(x: Any) -> Any:
        return {**MISREAD, **READ}[read](SAY[say](x))

    try:
        symbol = head(S.Activation(layer(shape), act_type="relu"))
        args, auxs = arrays(symbol, shape)
    except mx.base.MXNetError:
        pytest.skip("MXNet has no such form for these axes")
    expected = without_layer(lambda x: head(S.relu(x)), args)
    is_right = runs_right(symbol, args, auxs, expected)
    # More may be named than what is misread; what is not named is right.
    assert is_right or misread_orders(graph_from_symbol(symbol), lambda _: False)

    params = {name: value for name, value in args.items() if name != "data"}
    with warnings.catch_warnings():
        warnings.simplefilter("error" if is_right and read in READ else "ignore", MxampWarning)
        model = mxamp.convert_model(symbol, params, auxs, "bfloat16", low_precision="none")
    assert runs_right(model.sym, {**model.args, "data": args["data"]}, model.auxs, expected)


def segmentation(shape: tuple[int, ...] = VOLUME) -> Any:
    norm = S.BatchNorm(layer(shape), fix_gamma=False, name="norm")
    return S.softmax(S.Activation(norm, act_type="relu"), axis=1, name="classes")


def params_of(symbol: Any) -> tuple[dict[str, Any], dict[str, Any], Any]:
    args, auxs = arrays(symbol, VOLUME)
    data = args.pop("data")
    return args, auxs, data


def test_a_softmax_over_the_channels_of_volumes_runs_by_every_front_door(tmp_path: Path) -> None:
    symbol = segmentation()
    args, auxs, data = params_of(symbol)
    expected = symbol.bind(mx.cpu(), {**args, "data": data}, aux_states=auxs).forward()[0].asnumpy()
    options = {"target_dtype": "bfloat16", "low_precision": "none", "target": "cpu-bf16"}
    model = mxamp.convert_model(symbol, args, auxs, input_shapes={"data": VOLUME}, **options)
    assert "layer_plain" not in {node.name for node in graph_from_symbol(symbol).nodes}
    copies = [node for node in model.graph.nodes if node.op == "slice_axis"]
    assert len(copies) == 1
    assert not model.report.warnings
    assert runs_right(model.sym, {**model.args, "data": data}, model.auxs, expected)

    model.save(tmp_path / "net")
    read = mx.model.load_checkpoint(str(tmp_path / "net"), 0)
    assert runs_right(read[0], {**read[1], "data": data}, read[2], expected)
    symbol.save(str(tmp_path / "own-symbol.json"))
    mx.nd.save(
        str(tmp_path / "own-0000.params"),
        {**{f"arg:{n}": v for n, v in args.items()}, **{f"aux:{n}": v for n, v in auxs.items()}},
    )
    block = mx.gluon.SymbolBlock.imports(
        str(tmp_path / "own-symbol.json"), ["data"], str(tmp_path / "own-0000.params")
    )
    converted = mxamp.convert_block(block, inputs=data, **options)
    for _ in range(2):
        np.testing.assert_allclose(converted(data).asnumpy(), expected, rtol=1e-4, atol=1e-6)


def test_converting_again_changes_nothing() -> None:
    symbol = segmentation()
    args, auxs, _ = params_of(symbol)
    given = {"target_dtype": "bfloat16", "low_precision": "none", "input_shapes": {"data": VOLUME}}
    once = mxamp.convert_model(symbol, args, auxs, **given)
    again = mxamp.convert_model(once.graph, once.arg_params, once.aux_params, **given)
    assert again.graph == once.graph


def test_the_warning_names_what_the_float32_model_misreads() -> None:
    symbol = S.softmax(S.Reshape(layer(VOLUME), shape=(0, 0, -1), name="rows"))
    args, auxs, _ = params_of(symbol)
    with pytest.warns(MxampWarning, match="be wrong in the float32 model: .* which rows cannot"):
        mxamp.convert_model(symbol, args, auxs, "bfloat16", low_precision="none")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_where_a_cast_writes_plain_order_or_onednn_is_not_nothing_is_copied(dtype: str) -> None:
    symbol = S.softmax(S.Reshape(layer(VOLUME), shape=(0, 0, -1), name="rows"))
    args, auxs, _ = params_of(symbol)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MxampWarning)
        model = mxamp.convert_model(symbol, args, auxs, dtype, low_precision="required")
    layer_dtype = model.report.node("layer").compute
    assert layer_dtype == dtype
    assert "slice_axis" not in {node.op for node in model.graph.nodes}


def test_a_recurrent_layer_reads_no_blocks_where_a_norm_was_folded() -> None:
    """Conv1D, BatchNorm and RNN without a transpose: the norm writes plain order, and the layer does not."""
    norm = S.BatchNorm(layer(SEQUENCE), fix_gamma=False, name="norm")
    states = [S.zeros((1, 16, 3)), S.zeros((1, 16, 3))]
    symbol = S.RNN(norm, S.var("weights"), *states, mode="lstm", num_layers=1, state_size=3, name="rnn")
    args, auxs = arrays(symbol, SEQUENCE)
    data = args.pop("data")
    expected = symbol.bind(mx.cpu(), {**args, "data": data}, aux_states=auxs).forward()[0].asnumpy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = mxamp.convert_model(symbol, args, auxs, "bfloat16", low_precision="none")
    assert "norm" not in {node.name for node in model.graph.nodes}
    assert runs_right(model.sym, {**model.args, "data": data}, model.auxs, expected)
