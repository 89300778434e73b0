"""Blocks of MXNet's NumPy mode: they convert, MXNet accepts the result, it runs, and it works as they did."""

# ruff: noqa: N803 - Gluon passes the operators as F.

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="the blocks are Gluon's")

import mxamp
from mxamp.dtypes import DType
from mxamp.errors import TracingError
from tests.building import LOW, capable

SHAPE = (2, 3, 8, 8)
CLOSE = 2e-2
"""Relative L2 error of a small network in bfloat16: a few roundings of 2e-3 each."""


@pytest.fixture(autouse=True)
def numpy_mode() -> Iterator[None]:
    mx.npx.set_np()
    yield
    mx.npx.reset_np()


class Network(mx.gluon.HybridBlock):
    """Layers, and between them what users of mx.np write."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.first = mx.gluon.nn.Conv2D(8, 3, padding=1)
            self.norm = mx.gluon.nn.BatchNorm()
            self.second = mx.gluon.nn.Conv2D(8, 3, padding=1)
            self.rows = mx.gluon.nn.Dense(16, flatten=False)
            self.last = mx.gluon.nn.Dense(5)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        x = F.npx.activation(self.norm(self.first(x)), act_type="relu")
        x = F.np.concatenate([x, F.npx.relu(self.second(x))], axis=1)
        mean = F.np.mean(x, axis=(2, 3))
        x = F.np.where(x > 0, x, x * 0.1)
        x = self.rows(F.np.reshape(F.npx.reshape(x, (-2, -2, -1)), (-1, 16, 64)))
        scores = F.np.einsum("bij,bkj->bik", x, x)
        return self.last(x) + F.np.sum(mean, axis=-1, keepdims=True), scores, F.np.argmax(x, axis=-1)


def images() -> Any:
    return mx.np.array(np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32))


@pytest.fixture
def net() -> Any:
    mx.random.seed(5)
    block = Network()
    block.initialize(mx.init.Xavier())
    block(images())
    return block


def distance(found: Any, expected: Any) -> float:
    """Return the relative L2 error."""
    found, expected = (array.asnumpy().astype(np.float64) for array in (found, expected))
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def assert_agrees(found: Any, expected: Any, kind: Any) -> None:
    """Check the three outputs of Network."""
    assert [output.asnumpy().dtype for output in found] == [np.float32, np.float32, np.int64]
    assert all(type(output) is kind for output in found)
    assert distance(found[0], expected[0]) < CLOSE
    assert distance(found[1], expected[1]) < CLOSE
    # Positions are integers: they agree but where two values nearly tie.
    assert (found[2].asnumpy() == expected[2].asnumpy()).mean() > 0.9


@pytest.mark.filterwarnings("ignore::mxamp.errors.MxampWarning")  # float16 cannot run on a CPU
@pytest.mark.parametrize("everything", [False, True], ids=["built-in target", "target that runs everything"])
@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_mxnet_infers_the_dtypes_that_were_decided(net: Any, dtype: DType, everything: bool) -> None:
    target = capable(dtype) if everything else None
    block = mxamp.convert_block(net, dtype, input_shapes=SHAPE, target=target, low_precision="required")
    assert block.report.low_nodes >= 4
    assert "knows nothing" not in str(block.report)
    sym = block.model.sym
    args, outputs, _ = sym.infer_type(data=np.float32)
    given = {name: value.dtype for name, value in block.model.arg_params.items()}
    found = dict(zip(sym.list_arguments(), map(DType.from_numpy, args)))
    assert {name: found[name] for name in given} == given
    assert [DType.from_numpy(output) for output in outputs] == [DType.FLOAT32, DType.FLOAT32, DType.INT64]


@pytest.mark.parametrize("hybridized", [False, True], ids=["imperative", "hybridized"])
def test_a_converted_block_takes_and_gives_numpy_arrays_and_agrees(net: Any, hybridized: bool) -> None:
    block = mxamp.convert_block(net, "bfloat16", inputs=images())
    if hybridized:
        block.hybridize(static_alloc=True, static_shape=True)
        block(images())
    assert_agrees(block(images()), net(images()), mx.np.ndarray)


def test_parameters_that_wait_for_shapes_get_them() -> None:
    fresh = Network()
    fresh.initialize()
    block = mxamp.convert_block(fresh, "bfloat16", input_shapes=SHAPE)
    assert_agrees(block(images()), fresh(images()), mx.np.ndarray)


def test_a_converted_block_survives_pickling(net: Any) -> None:
    block = pickle.loads(pickle.dumps(mxamp.convert_block(net, "bfloat16", inputs=images())))
    assert_agrees(block(images()), net(images()), mx.np.ndarray)


@pytest.mark.filterwarnings("ignore:Cannot decide type")  # MXNet's, of the input
def test_what_is_exported_runs_in_stock_mxnet(net: Any, tmp_path: Path) -> None:
    """With NumPy's shapes; MXNet 1.9.1 has no bfloat16 arrays of its NumPy kind to load parameters into."""
    mxamp.convert_block(net, "bfloat16", inputs=images()).export(str(tmp_path / "net"))
    assert json.loads((tmp_path / "net-symbol.json").read_text())["attrs"]["is_np_shape"] == ["int", 1]
    expected = net(images())
    with mx.util.np_array(False):
        block = mx.gluon.SymbolBlock.imports(
            str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params")
        )
        assert_agrees(block(images().as_nd_ndarray()), expected, mx.nd.NDArray)


def test_a_block_that_has_run_converts_with_numpy_mode_off_and_the_result_works_with_it_on(net: Any) -> None:
    net.hybridize()
    expected = net(images())
    mx.npx.reset_np()
    block = mxamp.convert_block(net, "bfloat16", input_shapes=SHAPE)
    mx.npx.set_np()
    assert_agrees(block(images()), expected, mx.np.ndarray)


class Halves(mx.gluon.HybridBlock):
    """No layers, only operators."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.npx.relu(x) * 0.5


@pytest.mark.parametrize("kind", [Network, Halves], ids=["layers", "operators"])
def test_a_block_that_has_not_run_asks_for_numpy_mode(kind: Any) -> None:
    fresh = kind()
    fresh.initialize()
    mx.npx.reset_np()
    with pytest.raises(TracingError, match=r"NumPy mode is off. Call mx\.npx\.set_np\(\)"):
        mxamp.convert_block(fresh, "bfloat16", input_shapes=SHAPE)


class Weighted(mx.gluon.HybridBlock):
    """Features times integers, which MXNet promotes to float32, but bfloat16 not."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.dense = mx.gluon.nn.Dense(6, flatten=False)
            self.last = mx.gluon.nn.Dense(6, flatten=False)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        x = self.dense(x)
        return self.last(x * F.np.expand_dims(F.np.argmax(x, axis=-1), axis=-1))


def test_features_times_integers_keep_their_fractions() -> None:
    net = Weighted()
    net.initialize(mx.init.Xavier())
    x = mx.np.array(np.random.default_rng(1).standard_normal((4, 7)).astype(np.float32))
    expected = net(x)
    block = mxamp.convert_block(net, "bfloat16", inputs=x, target=capable(DType.BFLOAT16))
    product = next(node for node in block.report.nodes if node.op == "_npi_multiply")
    assert product.compute == "float32"
    assert "drops the fractions" in product.reason
    assert distance(block(x), expected) < CLOSE
