"""A saved model runs in stock MXNet: in a process where mxamp cannot be imported, with the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

import mxamp

SHAPE = (2, 4, 10, 10)

STOCK = """
import importlib.abc, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("mxamp", "ml_dtypes"):
            raise ImportError(name + " is blocked here")

sys.meta_path.insert(0, Blocked())
import mxnet as mx, numpy as np

prefix, data_file, result_file, low = sys.argv[1:5]
images = mx.nd.array(np.load(data_file))
if low == "low":
    images = mx.nd.amp_cast(images, dtype=np.dtype([("bfloat16", np.uint16)]))
found = {}

def keep(route, outputs):
    for number, output in enumerate(outputs):
        if output.dtype not in (np.float32, np.float16):
            output = mx.nd.amp_cast(output, dtype="float32")
        found["%s-%d" % (route, number)] = output.asnumpy()

def run_module(route, module):
    # no dtype is given: Module binds FP32 inputs
    module.forward(mx.io.DataBatch([images]), is_train=False)
    keep(route, module.get_outputs())

if low != "low":
    sym, args, auxs = mx.model.load_checkpoint(prefix, 0)
    module = mx.mod.Module(sym, data_names=["data"], label_names=None)
    module.bind([("data", images.shape)], for_training=False)
    module.set_params(args, auxs)
    run_module("load_checkpoint", module)

    module = mx.mod.Module.load(prefix, 0, data_names=["data"], label_names=None)
    module.bind([("data", images.shape)], for_training=False)
    run_module("Module.load", module)

block = mx.gluon.SymbolBlock.imports(prefix + "-symbol.json", ["data"], prefix + "-0000.params")
outputs = block(images)
keep("SymbolBlock.imports", outputs if isinstance(outputs, (list, tuple)) else [outputs])
np.savez(result_file, **found)
assert not [name for name in sys.modules if name.split(".")[0] in ("mxamp", "ml_dtypes")]
"""


def network():
    """Return a small image network with everything that has broken a saved model before.

    ``kept`` and ``tied`` read one weight, and the tests keep ``kept`` in FP32.
    """
    data = mx.sym.var("data")
    tied = mx.sym.var("tied_weight")
    conv = {"kernel": (3, 3), "pad": (1, 1), "num_filter": 8, "no_bias": True}
    x = mx.sym.Convolution(data, name="conv0", **conv)
    x = mx.sym.Activation(mx.sym.BatchNorm(x, fix_gamma=False, name="bn0"), act_type="relu", name="relu0")
    y = mx.sym.Convolution(x, weight=tied, name="tied", **conv)
    y = mx.sym.BatchNorm(y, fix_gamma=False, name="bn1")
    x = mx.sym.Activation(mx.sym.elemwise_add(y, x, name="residual"), act_type="relu", name="relu1")
    kept = mx.sym.Convolution(x, weight=tied, name="kept", **conv)
    pooled = mx.sym.Pooling(x, global_pool=True, pool_type="avg", kernel=(1, 1), name="pool")
    scores = mx.sym.FullyConnected(mx.sym.Flatten(pooled, name="flat"), num_hidden=5, name="scores")
    return mx.sym.Group([mx.sym.softmax(scores, name="probabilities"), pooled, kept])


def parameters(sym, shape=SHAPE):
    generator = np.random.default_rng(7)
    arg_shapes, _, aux_shapes = sym.infer_shape(data=shape)
    args = {
        name: mx.nd.array(generator.normal(0, 0.2, size))
        for name, size in zip(sym.list_arguments(), arg_shapes)
        if name != "data"
    }
    auxs = {
        name: mx.nd.array(generator.uniform(0.5, 1.5, size))
        for name, size in zip(sym.list_auxiliary_states(), aux_shapes)
    }
    return args, auxs


def images():
    return np.random.default_rng(3).normal(size=SHAPE).astype(np.float32)


def run_block(model, data):
    """Run through a SymbolBlock, which is executed without the fusion that Module uses."""
    block = mx.gluon.SymbolBlock(model.sym, mx.sym.var("data"))
    for name, parameter in block.collect_params().items():
        array = model.args.get(name, model.auxs.get(name))
        parameter._load_init(array, mx.cpu(), cast_dtype=True, dtype_source="saved")
    return [output.asnumpy() for output in block(mx.nd.array(data))]


def run_here(sym, args, auxs, data):
    """Run through Module, bound without a dtype."""
    module = mx.mod.Module(sym, data_names=["data"], label_names=None)
    module.bind([("data", data.shape)], for_training=False)
    module.set_params(args, auxs)
    module.forward(mx.io.DataBatch([mx.nd.array(data)]), is_train=False)
    return [output.asnumpy() for output in module.get_outputs()]


def run_stock(folder, prefix, data, *, io="fp32"):
    """Run a saved model in a process without mxamp; return route -> outputs."""
    script, data_file, result = folder / "stock.py", folder / "data.npy", folder / "result.npz"
    script.write_text(STOCK, encoding="utf-8")
    np.save(data_file, data)
    # -I leaves out the current folder and PYTHONPATH; the script blocks an installed mxamp.
    subprocess.run(
        [sys.executable, "-I", "-W", "ignore", str(script), str(prefix), str(data_file), str(result), io],
        check=True,
        capture_output=True,  # what failed says why
        text=True,
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        timeout=300,
    )
    routes: dict[str, list[np.ndarray]] = {}
    with np.load(result) as stored:
        for name in stored.files:
            routes.setdefault(name.rsplit("-", 1)[0], []).append(stored[name])
    return routes


def operators(path):
    nodes = json.loads(path.read_text(encoding="utf-8"))["nodes"]
    return [node["op"] for node in nodes]


def convert(sym, args, auxs, **options):
    """Convert all but ``kept``; ``tied`` too, though a second copy of its weight makes the model grow."""
    return mxamp.convert_model(
        sym, args, auxs, target_dtype="bfloat16", exclude=["kept"], low_precision="required", **options
    )


@pytest.fixture(scope="module", params=[True, False], ids=["folded", "unfolded"])
def converted(request):
    sym = network()
    args, auxs = parameters(sym)
    return sym, args, auxs, convert(sym, args, auxs, fold_batch_norm=request.param)


@pytest.mark.parametrize("route", ["load_checkpoint", "Module.load", "SymbolBlock.imports"])
def test_stock_mxnet_gives_identical_bits(stock_outputs, converted, route):
    _, _, _, model = converted
    expected = run_block(model, images()) if "Block" in route else run_here(*model, images())
    found = stock_outputs[route]
    assert len(found) == len(expected) == 3
    for number, (ours, theirs) in enumerate(zip(expected, found)):
        assert theirs.dtype == np.float32
        assert theirs.tobytes() == ours.tobytes(), f"output {number}: {np.abs(theirs - ours).max()}"


@pytest.fixture(scope="module")
def stock_outputs(converted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stock")
    converted[-1].save(folder / "net")
    return run_stock(folder, folder / "net", images())


def test_the_model_that_travels_is_a_mixed_one(converted):
    _, _, _, model = converted
    assert model.report.node("tied").compute == "bfloat16"
    assert model.report.node("kept").compute == "float32"
    stored = next(
        parameter for parameter in model.report.parameters if parameter.name == "tied_weight"
    ).stored
    assert sorted(stored.values()) == ["bfloat16", "float32"]


def test_converted_outputs_agree_with_fp32(converted):
    sym, args, auxs, model = converted
    for low, full in zip(run_here(*model, images()), run_here(sym, args, auxs, images())):
        assert np.linalg.norm(low - full) <= 2e-2 * np.linalg.norm(full)


def test_load_gives_identical_bits_too(converted, tmp_path):
    _, _, _, model = converted
    model.save(tmp_path / "net")
    again = mxamp.load(tmp_path / "net")
    for ours, theirs in zip(run_here(*model, images()), run_here(*again, images())):
        assert ours.tobytes() == theirs.tobytes()


def test_model_save_keeps_the_casts_that_mxnet_drops(converted, tmp_path):
    _, _, _, model = converted
    model.save(tmp_path / "ours")
    model.sym.save(str(tmp_path / "theirs-symbol.json"))
    casts = [number for number, node in enumerate(model.graph.nodes) if node.op == "amp_cast"]
    outputs = {head.node for head in model.graph.heads}
    assert not outputs.issuperset(casts)
    assert operators(tmp_path / "ours-symbol.json").count("amp_cast") == len(casts)
    # What MXNet keeps are the casts that no operator reads.
    assert operators(tmp_path / "theirs-symbol.json").count("amp_cast") == len(outputs.intersection(casts))


def test_low_io_model_runs_in_stock_mxnet(converted, tmp_path):
    sym, args, auxs, model = converted
    low = convert(sym, args, auxs, io_dtype="low")
    assert set(low.report.inputs.values()) == {"bfloat16"}
    low.save(tmp_path / "low")
    outputs = run_stock(tmp_path, tmp_path / "low", images(), io="low")["SymbolBlock.imports"]
    assert low.sym.list_outputs() == sym.list_outputs()
    for mixed, full in zip(outputs, run_here(*model, images())):
        assert np.linalg.norm(mixed - full) <= 2e-2 * np.linalg.norm(full)


def test_block_export_runs_in_stock_mxnet(tmp_path):
    net = mx.gluon.nn.HybridSequential(prefix="exported_")
    with net.name_scope():
        net.add(
            mx.gluon.nn.Conv2D(8, 3, in_channels=4),
            mx.gluon.nn.BatchNorm(in_channels=8),
            mx.gluon.nn.Activation("relu"),
            mx.gluon.nn.GlobalAvgPool2D(),
            mx.gluon.nn.Dense(5, in_units=8),
        )
    net.initialize(mx.init.Normal(0.3))
    block = mxamp.convert_block(net, target_dtype="bfloat16", low_precision="required")
    block.export(str(tmp_path / "block"))
    assert "amp_cast" in operators(tmp_path / "block-symbol.json")
    routes = run_stock(tmp_path, tmp_path / "block", images())
    (ours,) = run_here(*block.model, images())
    assert routes["load_checkpoint"][0].tobytes() == ours.tobytes()
    assert routes["Module.load"][0].tobytes() == ours.tobytes()
    assert routes["SymbolBlock.imports"][0].tobytes() == block(mx.nd.array(images())).asnumpy().tobytes()


def test_conversion_leaves_the_caller_untouched():
    sym = network()
    args, auxs = parameters(sym)
    text = sym.tojson(remove_amp_cast=False)
    names = list(args), list(auxs)
    arrays = {name: id(array) for name, array in {**args, **auxs}.items()}
    values = {name: array.asnumpy().tobytes() for name, array in {**args, **auxs}.items()}
    for low_precision in ("required", "profitable"):  # the latter leaves all in float32 here
        model = mxamp.convert_model(
            sym, args, auxs, "bfloat16", input_shapes={"data": SHAPE}, low_precision=low_precision
        )
        for array in [*model.args.values(), *model.auxs.values()]:
            array[:] = 0
    assert sym.tojson(remove_amp_cast=False) == text
    assert (list(args), list(auxs)) == names
    assert {name: id(array) for name, array in {**args, **auxs}.items()} == arrays
    assert {name: array.asnumpy().tobytes() for name, array in {**args, **auxs}.items()} == values
    assert all(array.dtype == np.float32 for array in {**args, **auxs}.values())


def test_parameters_that_stay_fp32_are_the_same_in_both_models():
    sym = network()
    args, auxs = parameters(sym)
    model = convert(sym, args, auxs, fold_batch_norm=False)
    for name in ("bn0_gamma", "bn0_beta"):
        assert model.args[name].asnumpy().tobytes() == args[name].asnumpy().tobytes()
    for name, array in auxs.items():
        assert model.auxs[name].asnumpy().tobytes() == array.asnumpy().tobytes()
