"""Stock's signatures, Modules, and the sym_gen of a BucketingModule."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

from mxnet.contrib import amp as stock

import mxamp
from mxamp.errors import GraphError, ParamsError

LISTS = [["FullyConnected"], ["exp"], [("Activation", "act_type", ["softrelu"])], ["second"]]


def symbol(width: int = 4) -> Any:
    first = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=width, name="first")
    second = mx.sym.FullyConnected(
        mx.sym.Activation(first, act_type="relu", name="relu"), num_hidden=3, name="second"
    )
    return mx.sym.SoftmaxOutput(second, mx.sym.var("softmax_label"), name="softmax")


def module(**options: Any) -> Any:
    made = mx.mod.Module(symbol(), context=mx.cpu(), **options)
    made.bind([("data", (2, 5))], [("softmax_label", (2,))], for_training=False)
    mx.random.seed(0)
    made.init_params(mx.init.Normal(0.5))
    return made


def low_nodes(model: mxamp.Model) -> set[str]:
    assert model.report is not None
    return {node.name for node in model.report.nodes if node.compute == "bfloat16"}


# ---------------------------------------------------------------------- signatures


@pytest.mark.parametrize("name", ["convert_model", "convert_symbol", "convert_hybrid_block"])
def test_the_arguments_of_stock_come_first_and_in_its_order(name: str) -> None:
    theirs = list(inspect.signature(getattr(stock, name)).parameters)
    ours = inspect.signature(getattr(mxamp, name)).parameters
    positional = [
        parameter.name for parameter in ours.values() if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    assert positional == theirs


def test_a_call_to_stock_runs_as_it_stands() -> None:
    arg_params, aux_params = module().get_params()
    lists = dict(zip(("target_dtype_ops", "fp32_ops", "conditional_fp32_ops", "excluded_sym_names"), LISTS))
    for package in (stock, mxamp):
        by_name = package.convert_model(
            sym=symbol(), arg_params=arg_params, aux_params=aux_params, target_dtype="bfloat16", **lists
        )
        by_place = package.convert_model(symbol(), arg_params, aux_params, "bfloat16", *LISTS, False)
        for sym, args, auxs in (by_name, by_place):
            assert isinstance(sym, mx.sym.Symbol)
            assert set(args) == set(arg_params)
            assert auxs == {}
        package.convert_symbol(symbol(), "bfloat16", *LISTS, ["data"], False)
        package.convert_symbol(sym=symbol(), target_dtype="bfloat16", data_names=["data"])


def test_a_block_by_the_name_of_stock() -> None:
    net = mx.gluon.nn.Dense(3, in_units=5)
    net.initialize()
    net.hybridize()
    data = mx.nd.ones((2, 5))
    expected = net(data).asnumpy()
    for converted in (
        mxamp.convert_hybrid_block(block=net, target_dtype="bfloat16", ctx=mx.cpu()),
        mxamp.convert_hybrid_block(net, "bfloat16", None, None, None, [], mx.cpu(), True),
        mxamp.convert_block(net=net, target_dtype="bfloat16"),
    ):
        assert np.abs(converted(data).asnumpy() - expected).max() < 0.02


def test_both_names_of_one_argument_are_refused() -> None:
    args, auxs = module().get_params()
    with pytest.raises(TypeError, match="'arg_params' and 'args', two names of one argument"):
        mxamp.convert_model(symbol(), args, auxs, args=args)
    with pytest.raises(TypeError, match="two names"):
        mxamp.emulate(symbol(), args, aux_params=auxs, auxs=auxs)
    net = mx.gluon.nn.Dense(3, in_units=5)
    with pytest.raises(TypeError, match="two names"):
        mxamp.convert_block(net, net=net)


def test_the_short_names_are_taken_too() -> None:
    args, auxs = module().get_params()
    short = mxamp.convert_model(symbol(), args=args, auxs=auxs, target_dtype="bfloat16")
    long = mxamp.convert_model(symbol(), arg_params=args, aux_params=auxs, target_dtype="bfloat16")
    assert short.symbol_json() == long.symbol_json()
    emulated = mxamp.emulate(symbol(), args=args, auxs=auxs)
    assert emulated.report is not None
    assert emulated.report.emulated == "float16"


def test_without_parameters_a_symbol_is_not_converted() -> None:
    with pytest.raises(ParamsError, match="must be a dict"):
        mxamp.convert_model(symbol())


# ---------------------------------------------------------------------- Modules


def test_a_module_is_converted_and_its_result_goes_into_a_module() -> None:
    original = module()
    batch = mx.io.DataBatch([mx.nd.random.normal(shape=(2, 5))])
    original.forward(batch, is_train=False)
    expected = original.get_outputs()[0].asnumpy()
    model = mxamp.convert_model(original, target_dtype="bfloat16", low_precision="required")
    assert {"first", "second"} <= low_nodes(model)
    sym, args, auxs = model
    converted = mx.mod.Module(sym, context=mx.cpu())
    converted.bind([("data", (2, 5))], for_training=False)
    converted.set_params(args, auxs)
    converted.forward(batch, is_train=False)
    assert np.abs(converted.get_outputs()[0].asnumpy() - expected).max() < 0.02


def test_parameters_that_are_given_take_the_place_of_the_modules() -> None:
    args, auxs = module().get_params()
    doubled = {name: value * 2 for name, value in args.items()}
    model = mxamp.convert_model(module(), doubled, auxs, "bfloat16", excluded_sym_names=["first", "second"])
    assert np.array_equal(model.args["first_weight"].asnumpy(), doubled["first_weight"].asnumpy())


def test_what_a_module_calls_data_is_an_input() -> None:
    """Whatever it looks like: here a state with an initialiser."""
    state = mx.sym.var("state", init=mx.init.Zero())
    sym = mx.sym.FullyConnected(mx.sym.var("data") + state, num_hidden=3, name="fc")
    made = mx.mod.Module(sym, ("data", "state"), None, context=mx.cpu())
    made.bind([("data", (2, 5)), ("state", (2, 5))], for_training=False)
    made.init_params()
    model = mxamp.convert_model(made, target_dtype="bfloat16")
    assert model.report is not None
    assert set(model.report.inputs) == {"data", "state"}


def test_a_module_without_parameters_is_an_error() -> None:
    with pytest.raises(ParamsError, match=r"no parameters yet\. Call module\.init_params"):
        mxamp.convert_model(mx.mod.Module(symbol()))


def test_modules_without_one_symbol_are_errors() -> None:
    with pytest.raises(GraphError, match="SequentialModule is not made of one Symbol"):
        mxamp.convert_model(mx.mod.SequentialModule())


# ---------------------------------------------------------------------- buckets


def sym_gen(length: int) -> Any:
    data = mx.sym.var("data")
    steps = mx.sym.SliceChannel(data, num_outputs=length, axis=1, squeeze_axis=True)
    weight, bias = mx.sym.var("weight"), mx.sym.var("bias")
    outputs = [
        mx.sym.FullyConnected(steps[n], weight, bias, num_hidden=3, name=f"t{n}") for n in range(length)
    ]
    return mx.sym.add_n(*outputs, name="total"), ("data",), None


def bucketing(generator: Any) -> Any:
    made = mx.mod.BucketingModule(generator, default_bucket_key=4, context=mx.cpu())
    made.bind([("data", (2, 4, 5))], for_training=False)
    return made


def test_the_buckets_of_a_module_are_converted_and_share_its_parameters() -> None:
    original = bucketing(sym_gen)
    original.init_params(mx.init.Normal(0.5))
    converted = bucketing(mxamp.convert_symbol(sym_gen, "bfloat16"))
    converted.set_params(*original.get_params())
    for length in (4, 2, 3, 4):
        data = mx.nd.random.normal(shape=(2, length, 5))
        batch = mx.io.DataBatch(
            [data], bucket_key=length, provide_data=[mx.io.DataDesc("data", data.shape)], provide_label=None
        )
        got = []
        for made in (original, converted):
            made.forward(batch, is_train=False)
            got.append(made.get_outputs()[0].asnumpy())
        assert 0 < np.abs(got[1] - got[0]).max() < 0.05 * np.abs(got[0]).max()


def test_a_bucketing_module_says_how_it_is_converted() -> None:
    for convert in (mxamp.convert_model, mxamp.convert_symbol):
        with pytest.raises(GraphError, match=r"convert_symbol\(sym_gen"):
            convert(bucketing(sym_gen))


def test_a_function_that_makes_no_symbols_is_an_error() -> None:
    generator = mxamp.convert_symbol(lambda key: None, "bfloat16")
    with pytest.raises(GraphError, match=r"sym_gen must return \(symbol, data_names, label_names\)"):
        generator(3)


def of_dtypes_that_no_layer_tells(kind: str) -> Any:
    """Return a network with parameters that something reads which takes any dtype."""
    weight, bias = mx.sym.var("weight"), mx.sym.var("bias")
    layer = mx.sym.Convolution(mx.sym.var("data"), weight, bias, kernel=(3, 3), num_filter=24, name="layer")
    decay = mx.sym.MakeLoss(1e-4 * mx.sym.sum(mx.sym.square(weight)))  # left over from training
    return mx.sym.Group([layer, decay if kind == "a constant" else bias * 2])


@pytest.mark.parametrize("target", ["cpu-bf16", "cpu-bf16-avx2"])
@pytest.mark.parametrize("kind", ["a constant", "a second reader"])
def test_parameters_say_their_dtypes_where_no_layer_tells_them(kind: str, target: str) -> None:
    sym, shape = of_dtypes_that_no_layer_tells(kind), (2, 3, 8, 8)
    shapes, _, _ = sym.infer_shape(data=shape)
    random = np.random.RandomState(0)
    args = {
        name: mx.nd.array(random.uniform(-1, 1, size))
        for name, size in zip(sym.list_arguments(), shapes)
        if name != "data"
    }
    data = mx.nd.array(random.uniform(-1, 1, shape))
    low = "required" if target == "cpu-bf16" else None
    converted = mxamp.convert_model(sym, args, {}, "bfloat16", target=target, low_precision=low)
    found, expected = (in_module(*model, data) for model in (converted, (sym, args, {})))
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=2e-2, atol=2e-2)


def in_module(sym: Any, args: Any, auxs: Any, data: Any) -> list[Any]:
    module = mx.mod.Module(sym, label_names=None)
    module.bind([("data", data.shape)], for_training=False)
    module.set_params(args, auxs)
    module.forward(mx.io.DataBatch([data]), is_train=False)
    return [output.asnumpy() for output in module.get_outputs()]
