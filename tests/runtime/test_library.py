"""mxamp's operators inside MXNet, against their NumPy twins."""

# ruff: noqa: N803 - Gluon passes the operators as F.

from __future__ import annotations

import concurrent.futures
from typing import Any, Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

import mxamp
from mxamp.dtypes import FLOAT8_E4M3FN, DType
from mxamp.errors import DeviceError, OperatorError
from mxamp.ops import FACTS, reference
from mxamp.ops.formats import FORMATS, Overflow
from mxamp.ops.observation import OBSERVATION_LENGTH, Observation

mx = pytest.importorskip("mxnet", reason="the operators are MXNet's")

from mxamp.runtime.library import OBSERVE, ROUND, load_operators, observe_values, round_values

ALL_FORMATS = pytest.mark.parametrize("format_", FORMATS, ids=str)

VALUES = st_numpy.arrays(np.uint32, st.integers(1, 300), elements=st.integers(0, 2**32 - 1)).map(
    lambda bits: bits.view(np.float32)
)


@pytest.fixture(scope="module", autouse=True)
def _operators() -> None:
    load_operators()


def edges() -> np.ndarray:
    """Return float32 values with every exponent, and significands that are ties in some format, and NaN."""
    exponents = np.arange(256, dtype=np.uint32) << 23
    lengths = (2, 3, 7, 10)
    ends = {1 << (22 - length) | odd << (23 - length) for length in lengths for odd in (0, 1)}
    significands = {0, 1, 0x7F_FFFF, *(end + step for end in ends for step in (-1, 0, 1))}
    magnitudes = np.concatenate([exponents | significand for significand in sorted(significands)])
    return np.concatenate([magnitudes, magnitudes | np.uint32(1 << 31)]).view(np.float32)


def assert_same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == expected.dtype == np.float32
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(actual.view(np.uint32), expected.view(np.uint32))


# Values


@ALL_FORMATS
@given(values=VALUES)
def test_rounding_has_the_bits_of_its_twin(values: np.ndarray, format_: DType) -> None:
    for overflow in Overflow:
        rounded = round_values(mx.nd.array(values), format_, overflow)
        assert_same_bits(rounded.asnumpy(), reference.round_to(values, format_, overflow))


@ALL_FORMATS
@pytest.mark.parametrize("overflow", Overflow, ids=str)
def test_rounding_has_the_bits_of_its_twin_at_the_edges(format_: DType, overflow: Overflow) -> None:
    values = edges()
    rounded = round_values(mx.nd.array(values), format_, overflow)
    assert_same_bits(rounded.asnumpy(), reference.round_to(values, format_, overflow))


@given(values=VALUES)
def test_observing_sees_what_its_twin_sees(values: np.ndarray) -> None:
    data, numbers = observe_values(mx.nd.array(values))
    assert_same_bits(data.asnumpy(), values)
    assert Observation.from_numbers(numbers.asnumpy()) == reference.observe(values)


def test_many_values_are_handled_by_many_threads_alike() -> None:
    values = np.random.default_rng(3).integers(0, 2**32, 3_000_001, dtype=np.uint32).view(np.float32)
    array = mx.nd.array(values)
    for format_ in (DType.FLOAT16, FLOAT8_E4M3FN):
        assert_same_bits(round_values(array, format_).asnumpy(), reference.round_to(values, format_))
    data, numbers = observe_values(array)
    assert_same_bits(data.asnumpy(), values)
    assert Observation.from_numbers(numbers.asnumpy()) == reference.observe(values)


def test_counts_are_exact_beyond_what_float32_counts() -> None:
    _, numbers = observe_values(mx.nd.ones(2**24 + 1))
    seen = Observation.from_numbers(numbers.asnumpy())
    assert seen.count == seen.exponents[127] == 2**24 + 1


def test_operators_may_run_in_several_threads_at_once() -> None:
    values = np.random.default_rng(4).standard_normal((8, 200_000)).astype(np.float32) * 1000

    def work(row: np.ndarray) -> bool:
        found = round_values(mx.nd.array(row), "float8_e5m2").asnumpy()
        _, numbers = observe_values(mx.nd.array(row))
        seen = Observation.from_numbers(numbers.asnumpy())
        right = np.array_equal(found, reference.round_to(row, "float8_e5m2"))
        try:
            mx.nd._internal._mxamp_round(mx.nd.ones(2), format=f"no format {row[0]}")
        except mx.MXNetError as error:
            # A message belongs to the thread whose call failed.
            return right and seen == reference.observe(row) and f"no format {row[0]}" in str(error)
        return False

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, values))


@pytest.mark.parametrize("shape", [(1,), (1, 1, 1, 1, 1, 1, 1, 1), (2, 3, 4, 5)], ids=str)
def test_shapes_are_kept(shape: tuple[int, ...]) -> None:
    values = np.full(shape, 1.0009, np.float32)
    assert_same_bits(
        round_values(mx.nd.array(values), "float16").asnumpy(), np.full(shape, 1.0009765625, "f4")
    )
    data, numbers = observe_values(mx.nd.array(values))
    assert data.shape == shape
    assert numbers.shape == (OBSERVATION_LENGTH,)
    assert numbers.dtype == np.float64


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)], ids=str)
def test_arrays_of_no_dimensions_and_of_no_elements(shape: tuple[int, ...]) -> None:
    with mx.util.np_shape(True):
        array = mx.nd.ones(shape) * 1.0009
        assert_same_bits(
            round_values(array, "float16").asnumpy(), reference.round_to(array.asnumpy(), "float16")
        )
        _, numbers = observe_values(array)
        assert Observation.from_numbers(numbers.asnumpy()) == reference.observe(array.asnumpy())


def test_views_of_arrays_are_rounded() -> None:
    array = mx.nd.array(np.arange(24, dtype=np.float32).reshape(6, 4) + 0.0009)
    for view in (array[2:4], array[5], array.T, array.reshape((3, 8))[1]):
        assert_same_bits(
            round_values(view, "bfloat16").asnumpy(), reference.round_to(view.asnumpy(), "bfloat16")
        )


# Three ways to run

WEIGHT = np.random.default_rng(5).standard_normal((4, 3, 3, 3)).astype(np.float32)
IMAGE = np.random.default_rng(6).standard_normal((2, 3, 8, 8)).astype(np.float32)


def network(F: Any, data: Any, weight: Any) -> tuple[Any, Any]:
    """Round what a convolution returns, which oneDNN keeps in a layout of its own, and observe it."""
    rounded = round_values(F.Convolution(data, weight, kernel=(3, 3), num_filter=4, no_bias=True), "bfloat16")
    return observe_values(F.relu(rounded))


def run_symbol() -> tuple[Any, Any]:
    outputs = mx.sym.Group(network(mx.sym, mx.sym.var("data"), mx.sym.var("weight")))
    args = {"data": mx.nd.array(IMAGE), "weight": mx.nd.array(WEIGHT)}
    return tuple(outputs.bind(mx.cpu(), args, grad_req="null").forward())


def run_module() -> tuple[Any, Any]:
    outputs = mx.sym.Group(network(mx.sym, mx.sym.var("data"), mx.sym.var("weight")))
    executor = outputs.simple_bind(mx.cpu(), data=IMAGE.shape, weight=WEIGHT.shape)
    return tuple(executor.forward(data=mx.nd.array(IMAGE), weight=mx.nd.array(WEIGHT)))


class Block(mx.gluon.HybridBlock):
    def hybrid_forward(self, F: Any, data: Any, weight: Any) -> Any:
        return network(F, data, weight)


def run_block(**options: Any) -> tuple[Any, Any]:
    block = Block()
    if options:
        block.hybridize(**options)
    block(mx.nd.array(IMAGE), mx.nd.array(WEIGHT))
    return tuple(block(mx.nd.array(IMAGE), mx.nd.array(WEIGHT)))


@pytest.mark.parametrize(
    "run",
    [
        run_symbol,
        run_module,
        run_block,
        lambda: run_block(active=True),
        lambda: run_block(active=True, static_alloc=True, static_shape=True),
    ],
    ids=["bind", "simple_bind", "imperative", "hybridized", "static"],
)
def test_every_way_to_run_gives_the_same(run: Callable[[], tuple[Any, Any]]) -> None:
    convolved = mx.nd.Convolution(
        mx.nd.array(IMAGE), mx.nd.array(WEIGHT), kernel=(3, 3), num_filter=4, no_bias=True
    )
    expected = np.maximum(reference.round_to(convolved.asnumpy(), "bfloat16"), 0)
    data, numbers = run()
    assert_same_bits(data.asnumpy(), expected)
    assert Observation.from_numbers(numbers.asnumpy()) == reference.observe(expected)


def test_symbol_survives_saving(tmp_path: Any) -> None:
    rounded = round_values(mx.sym.var("data"), "float8_e4m3fn", "saturate", name="rounded")
    rounded.save(str(tmp_path / "symbol.json"))
    loaded = mx.sym.load(str(tmp_path / "symbol.json"))
    assert loaded.attr_dict()["rounded"] == {"format": "float8_e4m3fn", "overflow": "saturate"}
    assert loaded.list_outputs() == ["rounded_output"]
    result = loaded.bind(mx.cpu(), {"data": mx.nd.array([1000.0])}).forward()[0]
    assert result.asnumpy() == [448]


def test_attributes_of_the_users_own_are_let_by() -> None:
    with mx.AttrScope(__note__="kept", ctx_group="one"):
        rounded = round_values(mx.sym.var("data"), "float16", name="rounded")
    assert rounded.bind(mx.cpu(), {"data": mx.nd.ones(2)}).forward()[0].asnumpy().tolist() == [1, 1]


@pytest.mark.parametrize("operator", [ROUND, OBSERVE])
def test_facts_are_what_mxnet_infers(operator: str) -> None:
    facts = FACTS.get(operator)
    assert facts is not None
    attributes = {"format": "float16"} if operator == ROUND else {}
    symbol = getattr(mx.sym._internal, operator)(mx.sym.var("data"), **attributes)
    arguments, outputs, _ = symbol.infer_type(data=np.float32)
    assert arguments == [np.float32]
    expected = facts.output_dtypes(attributes, None, len(outputs))
    assert [dtype.numpy for dtype in expected if dtype is not None] == [np.dtype(dtype) for dtype in outputs]
    names = [f"n_{facts.output_name(index, len(outputs))}" for index in range(len(outputs))]
    assert (
        getattr(mx.sym._internal, operator)(mx.sym.var("data"), name="n", **attributes).list_outputs()
        == names
    )


# Gradients


@ALL_FORMATS
def test_gradient_is_straight_through(format_: DType) -> None:
    values = np.array([0.1, 3.3, -1e30, np.inf, np.nan, 1e-40], np.float32)
    gradient = np.array([1, -2, 3, 4, 5, 6], np.float32)
    data = mx.nd.array(values)
    data.attach_grad()
    with mx.autograd.record():
        rounded = round_values(data, format_)
    rounded.backward(mx.nd.array(gradient))
    assert_same_bits(data.grad.asnumpy(), gradient)


def test_gradient_passes_observation() -> None:
    data = mx.nd.array([[1, 2], [3, 4]])
    data.attach_grad()
    with mx.autograd.record():
        seen, _ = observe_values(data)
        loss = (seen * seen).sum()
    loss.backward()
    assert_same_bits(data.grad.asnumpy(), np.array([[2, 4], [6, 8]], np.float32))


@pytest.mark.parametrize("kind", ["array", "symbol"])
def test_gradient_is_added_where_that_is_asked_for(kind: str) -> None:
    data, gradient = mx.nd.array([1.1, 2.2]), mx.nd.array([100.0, 100.0])
    if kind == "array":
        data.attach_grad(grad_req="add")
        data.grad[:] = gradient
        with mx.autograd.record():
            seen, _ = observe_values(round_values(data, "float16"))
        seen.backward(mx.nd.array([1.0, 2.0]))
        gradient = data.grad
    else:
        seen, _ = observe_values(round_values(mx.sym.var("data"), "float16"))
        executor = seen.bind(mx.cpu(), {"data": data}, {"data": gradient}, grad_req="add")
        executor.forward(is_train=True)
        executor.backward(mx.nd.array([1.0, 2.0]))
    assert_same_bits(gradient.asnumpy(), np.array([101, 102], np.float32))


def sum_of_many(data: Any, consumers: int) -> Any:
    doubled = data * 2
    total = doubled * 0
    for number in range(1, consumers + 1):
        total = total + round_values(doubled, "float16") * number
    return total


@pytest.mark.parametrize("consumers", [1, 7, 8, 30])
@pytest.mark.parametrize("kind", ["symbol", "imperative", "hybridized", "static"])
def test_gradients_of_many_consumers_add_up(kind: str, consumers: int) -> None:
    data, gradient = mx.nd.ones(2), mx.nd.zeros(2)
    if kind == "symbol":
        executor = sum_of_many(mx.sym.var("data"), consumers).bind(
            mx.cpu(), {"data": data}, {"data": gradient}
        )
        executor.forward(is_train=True)
        executor.backward(mx.nd.ones(2))
    else:
        block = mx.gluon.nn.HybridLambda(lambda F, data: sum_of_many(data, consumers))
        block.hybridize(kind != "imperative", static_alloc=kind == "static", static_shape=kind == "static")
        data.attach_grad()
        with mx.autograd.record():
            total = block(data)
        total.backward()
        gradient = data.grad
    expected = consumers * (consumers + 1)
    assert_same_bits(gradient.asnumpy(), np.array([expected, expected], np.float32))


def test_library_operators_alone_do_not_add_gradients() -> None:
    """MXNet 1.9.1 hides from a library operator that its gradient is to be added; hence the identity."""
    alone = mx.sym._internal._mxamp_round(mx.sym.var("data"), format="float16")
    gradient = mx.nd.array([100.0])
    executor = alone.bind(mx.cpu(), {"data": mx.nd.ones(1)}, {"data": gradient}, grad_req="add")
    executor.forward(is_train=True)
    executor.backward(mx.nd.ones(1))
    assert gradient.asnumpy() == [1]


def test_a_block_that_rounds_can_be_trained() -> None:
    mx.random.seed(1)

    class Rounding(mx.gluon.nn.HybridSequential):
        def hybrid_forward(self, F: Any, data: Any) -> Any:
            for block in self._children.values():
                data = round_values(block(data), "float16")
            return data

    block = Rounding()
    block.add(mx.gluon.nn.Dense(8, activation="tanh"), mx.gluon.nn.Dense(1))
    block.initialize(mx.init.Xavier())
    block.hybridize(static_alloc=True)
    trainer = mx.gluon.Trainer(block.collect_params(), "adam", {"learning_rate": 0.05})
    data = mx.nd.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    label = mx.nd.array([[0], [1], [1], [0]])
    losses = []
    for _ in range(150):
        with mx.autograd.record():
            loss = mx.nd.square(block(data) - label).mean()
        loss.backward()
        trainer.step(1)
        losses.append(float(loss.asscalar()))
    assert losses[-1] < 0.02 < losses[0]


# Bad input


def test_unknown_format_is_refused() -> None:
    with pytest.raises(OperatorError, match=r"'float17' is not a format .*float8_e5m2"):
        round_values(mx.nd.ones(2), "float17")
    with pytest.raises(
        mx.MXNetError, match=r"_mxamp_round has no format 'float17'\. The formats are: float16, "
    ):
        mx.nd._internal._mxamp_round(mx.nd.ones(2), format="float17")


def test_unknown_overflow_is_refused() -> None:
    with pytest.raises(OperatorError, match="'wrap' says nothing about overflow"):
        round_values(mx.nd.ones(2), "float16", "wrap")
    with pytest.raises(mx.MXNetError, match=r"has no overflow 'wrap'\. Use one of: inf, saturate\."):
        mx.nd._internal._mxamp_round(mx.nd.ones(2), format="float16", overflow="wrap")


def test_missing_and_unknown_parameters_are_refused() -> None:
    with pytest.raises(mx.MXNetError, match="_mxamp_round needs the parameter 'format', one of: float16"):
        mx.nd._internal._mxamp_round(mx.nd.ones(2))
    with pytest.raises(
        mx.MXNetError, match=r"has no parameter 'overflw'\. Its parameters are: format, overflow"
    ):
        mx.nd._internal._mxamp_round(mx.nd.ones(2), format="float16", overflw="inf")
    with pytest.raises(mx.MXNetError, match="_mxamp_observe has no parameters, and was given 'format'"):
        mx.nd._internal._mxamp_observe(mx.nd.ones(2), format="float16")


def test_a_message_is_of_its_own_error_alone() -> None:
    for wrong in ("one", "two"):
        with pytest.raises(mx.MXNetError) as raised:
            mx.nd._internal._mxamp_round(mx.nd.ones(2), format=wrong)
        assert ("'one'" in str(raised.value)) == (wrong == "one")


DTYPES = pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "uint8", "bfloat16", "bool"])


@DTYPES
def test_other_dtypes_are_refused(dtype: str) -> None:
    data = mx.nd.Cast(mx.nd.ones(2), dtype=dtype)
    with pytest.raises(OperatorError, match=rf"_mxamp_round takes float32 only, and got an array of {dtype}"):
        round_values(data, "float16")
    with pytest.raises(OperatorError, match="_mxamp_observe takes float32 only"):
        observe_values(data)
    with pytest.raises(
        mx.MXNetError, match=r"_mxamp_observe takes float32 only, .* Cast it to float32 first"
    ):
        mx.nd._internal._mxamp_observe(data)


@DTYPES
def test_other_dtypes_are_refused_in_a_graph(dtype: str) -> None:
    rounded = round_values(mx.sym.Cast(mx.sym.var("data"), dtype=dtype), "float16")
    with pytest.raises((mx.MXNetError, RuntimeError), match="_mxamp_round takes float32 only"):
        rounded.simple_bind(mx.cpu(), data=(2, 3))


@pytest.mark.parametrize("stype", ["csr", "row_sparse"])
def test_sparse_storage_is_refused(stype: str) -> None:
    data = mx.nd.ones((2, 2)).tostype(stype)
    message = rf"takes dense arrays only, and got one with {stype} storage\. Make it dense first"
    with pytest.raises(OperatorError, match=message):
        round_values(data, "float16")
    with pytest.raises(OperatorError, match=message):
        observe_values(data)
    with pytest.raises(mx.MXNetError, match=message):
        mx.nd._internal._mxamp_round(data, format="float16")
    graph = mx.sym._internal._mxamp_observe(mx.sym.var("data", stype=stype))
    with pytest.raises((mx.MXNetError, RuntimeError), match=message):
        graph.simple_bind(mx.cpu(), data=(2, 2))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (np.ones(2, np.float32), "numpy.ndarray"),
        ([1.0], "builtins.list"),
        (None, "builtins.NoneType"),
        (1.5, "builtins.float"),
    ],
    ids=["numpy", "list", "none", "float"],
)
def test_what_is_no_array_is_refused(data: object, kind: str) -> None:
    with pytest.raises(OperatorError, match=rf"takes an mx\.nd\.NDArray or an mx\.sym\.Symbol, not {kind}"):
        round_values(data, "float16")


def test_arrays_of_numpy_mode_are_refused() -> None:
    with pytest.raises(OperatorError, match="as_nd_ndarray"):
        observe_values(mx.np.ones(2))


def test_shape_that_is_known_in_part_is_refused() -> None:
    rounded = round_values(mx.sym.var("data"), "float16")
    with pytest.raises(mx.MXNetError, match="_mxamp_round needs a data shape that is fully known"):
        rounded.infer_shape_partial(data=(0, 3))


@pytest.mark.gpu
def test_gpu_is_refused() -> None:
    data = mx.nd.ones(2, ctx=mx.gpu())
    with pytest.raises(DeviceError, match=r"runs on the CPU only, and got an array on gpu\(0\)"):
        round_values(data, "float16")
    with pytest.raises(mx.MXNetError, match="_mxamp_round runs on the CPU only"):
        mx.nd._internal._mxamp_round(data, format="float16").asnumpy()


# Converting


def test_a_model_with_the_operators_converts_around_them() -> None:
    data = mx.sym.Convolution(mx.sym.var("data"), kernel=(3, 3), num_filter=4, no_bias=True, name="first")
    data, numbers = observe_values(round_values(data, "float8_e5m2", name="rounded"), name="observed")
    data = mx.sym.Convolution(data, kernel=(3, 3), num_filter=3, no_bias=True, name="second")
    sym = mx.sym.Group([data, numbers])
    args = {"first_weight": mx.nd.array(WEIGHT), "second_weight": mx.nd.array(WEIGHT.swapaxes(0, 1))}
    model = mxamp.convert_model(sym, args, {}, target_dtype="bfloat16")
    assert [model.report.node(name).compute for name in ("first", "rounded", "observed", "second")] == [
        "bfloat16",
        "float32",
        "float32",
        "bfloat16",
    ]
    assert "MXNet implements _mxamp_round in float32 alone" in str(model.report)
    assert model.sym.list_outputs() == sym.list_outputs()
    types = model.sym.infer_type(data=np.float32)[1]
    assert types == [np.float32, np.float64]
