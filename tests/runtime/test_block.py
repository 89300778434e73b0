"""Blocks convert, whatever state they are in, and stay in it."""

# ruff: noqa: N803 - Gluon passes the operators as F.

from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

from mxnet.gluon import Block, HybridBlock, SymbolBlock, nn, rnn

import mxamp
from mxamp.errors import (
    DataError,
    DeviceError,
    ExportError,
    MxampWarning,
    ParamsError,
    TargetError,
    TracingError,
    UnknownNameError,
)
from mxamp.graph.symbol_reader import read_symbol
from mxamp.graph.symbol_writer import write_symbol
from mxamp.runtime.trace import trace_block

TOLERANCE = 2e-2


def image(seed=0, shape=(2, 3, 8, 8)):
    return mx.nd.array(np.random.default_rng(seed).normal(size=shape))


def features(rows=2, columns=4, seed=1):
    return image(seed, (rows, columns))


def small_net(in_channels=3, **options):
    """Return a convolutional net whose parameters have all their shapes."""
    net = nn.HybridSequential(**options)
    with net.name_scope():
        net.add(
            nn.Conv2D(8, 3, in_channels=in_channels),
            nn.BatchNorm(in_channels=8 if in_channels else 0),
            nn.Activation("relu"),
            nn.GlobalAvgPool2D(),
            nn.Dense(5, in_units=8 if in_channels else 0),
        )
    net.initialize(mx.init.Normal(0.3))
    return net


class Nested(HybridBlock):
    """Takes ``x, [a, b]`` and returns ``y, [z, a]``: one output is an input."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.first = nn.Dense(3, in_units=4)
            self.second = nn.Dense(4, in_units=3)

    def hybrid_forward(self, F, x, states):
        hidden = self.first(x)
        return self.second(hidden) * states[1], [F.softmax(hidden), states[0]]


class Optional(HybridBlock):
    """Takes an input that may be missing."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.dense = nn.Dense(3, in_units=4)

    def hybrid_forward(self, F, x, mask=None):
        y = self.dense(x)
        return y if mask is None else y * mask


def initialized(block, hybridize=False):
    block.initialize(mx.init.Normal(0.3))
    if hybridize:
        block.hybridize()
    return block


def flat(outputs):
    if isinstance(outputs, (list, tuple)):
        return [array for output in outputs for array in flat(output)]
    return [outputs]


def assert_close(low, full):
    low, full = flat(low), flat(full)
    assert len(low) == len(full)
    for ours, theirs in zip(low, full):
        ours, theirs = ours.asnumpy(), theirs.asnumpy()
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        assert np.linalg.norm(ours - theirs) <= TOLERANCE * np.linalg.norm(theirs)


def state_of(net):
    """Return everything about a block and its children that a conversion could change."""
    found = []
    pending = [net]
    while pending:
        block = pending.pop()
        found.append({name: _frozen(value) for name, value in block.__dict__.items()})
        pending.extend(block._children.values())
    values = {
        name: [array.asnumpy().tobytes() for array in parameter.list_data()]
        for name, parameter in net.collect_params().items()
        if parameter._data is not None
    }
    return found, values


def _frozen(value):
    if isinstance(value, (list, tuple)):
        return [_frozen(one) for one in value]
    if isinstance(value, dict):
        return {key: _frozen(one) for key, one in value.items()}
    return value if isinstance(value, (int, str, type(None))) else id(value)


# ---------------------------------------------------------------------- the states a block can be in


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("run_before", [False, True])
def test_converts_hybridized_or_not_and_run_before_or_not(hybridize, run_before):
    net = small_net()
    if hybridize:
        net.hybridize()
    if run_before:
        net(image()).wait_to_read()
    before = state_of(net)
    low = mxamp.convert_block(net, target_dtype="bfloat16", low_precision="required")
    assert state_of(net) == before
    assert isinstance(low, SymbolBlock)
    assert low.report.low_nodes > 0
    assert_close(low(image()), net(image()))


@pytest.mark.parametrize("prefix", [None, "mine_", ""])
def test_traced_graph_is_the_exported_one(tmp_path, prefix):
    net = small_net(prefix=prefix)
    traced = trace_block(net)
    net.hybridize()
    net(image())
    net.export(str(tmp_path / "net"))
    cached = trace_block(net)
    assert traced.graph == cached.graph == read_symbol(tmp_path / "net-symbol.json")
    assert traced.inputs == cached.inputs == ("data",)


def test_tracing_uses_up_no_names():
    net = small_net(prefix="")
    with mx.name.NameManager():
        trace_block(net)
        assert mx.sym.relu(mx.sym.var("x")).name == "relu0"


def test_tracing_leaves_step_counters_and_hooks_alone():
    cell = initialized(rnn.LSTMCell(4, input_size=3))
    calls = []
    cell.register_forward_hook(lambda *_: calls.append("after"))
    cell.register_forward_pre_hook(lambda *_: calls.append("before"))
    before = state_of(cell)
    mxamp.convert_block(cell, target_dtype="bfloat16", input_shapes=[(2, 3), [(2, 4), (2, 4)]])
    assert state_of(cell) == before
    assert calls == []
    cell(mx.nd.ones((2, 3)), cell.begin_state(2))
    assert calls == ["before", "after"]


def test_failed_tracing_leaves_the_block_alone():
    net = initialized(Nested())
    before = state_of(net)
    with pytest.raises(TracingError):
        mxamp.convert_block(net, target_dtype="bfloat16")
    assert state_of(net) == before


def test_parameters_are_not_shared_with_the_original():
    net = small_net()
    low = mxamp.convert_block(net, target_dtype="bfloat16")
    expected = net(image()).asnumpy()
    for parameter in low.collect_params().values():
        for array in parameter.list_data():
            array[:] = 0
    assert net(image()).asnumpy().tobytes() == expected.tobytes()


def test_deferred_initialisation_is_finished_when_shapes_are_known():
    by_shape, by_sample, by_running = (small_net(in_channels=0, prefix="net_") for _ in range(3))
    mx.random.seed(5)
    low = mxamp.convert_block(by_shape, target_dtype="bfloat16", input_shapes=(2, 3, 8, 8))
    mx.random.seed(5)
    mxamp.convert_block(by_sample, target_dtype="bfloat16", inputs=image())
    mx.random.seed(5)
    by_running(image())
    values = [
        {name: parameter.data().asnumpy().tobytes() for name, parameter in net.collect_params().items()}
        for net in (by_shape, by_sample, by_running)
    ]
    assert values[0] == values[1] == values[2]
    assert_close(low(image()), by_shape(image()))


def test_deferred_initialisation_without_shapes_says_what_to_pass():
    net = small_net(in_channels=0, prefix="net_")
    with pytest.raises(
        TracingError, match=r"'net_conv0_weight' that waits .* Pass input_shapes=\(1, 3, 224, 224\)"
    ):
        mxamp.convert_block(net, target_dtype="bfloat16")
    assert net[0].weight._deferred_init


def test_deferred_initialisation_with_impossible_shapes_names_the_reason():
    net = small_net(in_channels=0)
    with pytest.raises(DataError, match=r"cannot infer it from .*Input data should be"):
        mxamp.convert_block(net, target_dtype="bfloat16", input_shapes=(2, 3))
    assert net[0].weight._deferred_init


def test_symbol_block_converts():
    net = small_net()
    net.hybridize()
    net(image())
    _, sym = net._cached_graph
    internals = sym.get_internals()
    relu = next(name for name in internals.list_outputs() if "relu" in name)
    block = SymbolBlock([sym, internals[relu]], mx.sym.var("data"), params=net.collect_params())
    low = mxamp.convert_block(block, target_dtype="bfloat16", low_precision="required")
    assert_close(low(image()), block(image()))
    assert low._cached_graph[1].list_outputs() == block._cached_graph[1].list_outputs()


def test_imported_symbol_block_with_its_own_input_names_converts(tmp_path):
    x, y = mx.sym.var("left"), mx.sym.var("right")
    sym = mx.sym.FullyConnected(x, num_hidden=3, name="fc") + y
    sym.save(str(tmp_path / "m-symbol.json"))
    mx.nd.save(str(tmp_path / "m.params"), {"arg:fc_weight": features(3), "arg:fc_bias": mx.nd.ones((3,))})
    block = SymbolBlock.imports(
        str(tmp_path / "m-symbol.json"), ["right", "left"], str(tmp_path / "m.params")
    )
    shapes = {"left": (2, 4), "right": (2, 3)}
    low = mxamp.convert_block(block, target_dtype="bfloat16", input_shapes=shapes)
    arguments = features(2, 3), features(2, 4)
    assert_close(low(*arguments), block(*arguments))
    with pytest.raises(UnknownNameError, match=r"'lefty', which is no input .* Did you mean 'left'"):
        mxamp.convert_block(block, target_dtype="bfloat16", input_shapes={"lefty": (2, 4)})


def test_a_block_partitioned_for_a_backend_is_traced_anew():
    net = small_net()
    net.optimize_for(image(), backend="MKLDNN")
    low = mxamp.convert_block(net, target_dtype="bfloat16", low_precision="required")
    assert not [node for node in low.model.graph.nodes if node.op.startswith("_sg_mkldnn")]
    assert low.report.low_nodes > 0


def test_a_converted_block_that_has_run_is_converted_as_one_that_has_not():
    """It runs fused, and what is fused holds its layers inside."""
    low = mxamp.convert_block(small_net(), target_dtype="bfloat16", input_shapes=image().shape)
    before = mxamp.convert_block(low, target_dtype="bfloat16", input_shapes=image().shape)
    low(image())
    assert fused_kernels(low._cached_graph[1])
    after = mxamp.convert_block(low, target_dtype="bfloat16", input_shapes=image().shape)
    assert write_symbol(after.model.graph) == write_symbol(before.model.graph)


def test_a_block_of_files_that_has_run_fused_is_taken_apart(tmp_path):
    net = small_net()
    net.hybridize()
    expected = net(image())
    net.export(str(tmp_path / "net"))
    files = str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params")
    block = mx.gluon.SymbolBlock.imports(*files)
    block.hybridize(backend="MKLDNN", static_alloc=True, static_shape=True)
    block(image())
    assert fused_kernels(block._cached_graph[1])
    with pytest.warns(mxamp.MxampWarning, match=r"Nodes that had been fused for oneDNN \(sg_mkldnn_"):
        low = mxamp.convert_block(block, target_dtype="bfloat16", low_precision="required")
    assert not [node for node in low.model.graph.nodes if node.op.startswith("_sg_mkldnn")]
    assert low.report.low_nodes > 0
    assert_close(low(image()), expected)


# ---------------------------------------------------------------------- inputs and outputs


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize(
    "described",
    [
        {"inputs": [features(), [features(2, 2), features(seed=6)]]},
        {"input_shapes": [(2, 4), [(2, 2), (2, 4)]]},
    ],
    ids=["inputs", "input_shapes"],
)
def test_nesting_of_inputs_and_outputs_is_kept(described, hybridize):
    net = initialized(Nested(), hybridize)
    low = mxamp.convert_block(net, target_dtype="bfloat16", **described)
    arguments = features(), [features(2, 2), features(seed=6)]
    y, (z, state) = low(*arguments)
    assert_close([y, z, state], net(*arguments))


def test_nesting_of_a_previous_forward_pass_is_kept():
    net = initialized(Nested(), hybridize=True)
    arguments = features(), [features(2, 2), features(seed=6)]
    expected = net(*arguments)
    low = mxamp.convert_block(net, target_dtype="bfloat16")
    _, (_, _) = low(*arguments)
    assert_close(low(*arguments), expected)


def test_a_single_output_in_a_list_stays_in_a_list():
    class Single(HybridBlock):
        def hybrid_forward(self, F, x):
            return [F.relu(x)]

    outputs = mxamp.convert_block(Single(), target_dtype="bfloat16")(features())
    assert isinstance(outputs, list)
    assert len(outputs) == 1


def test_one_operator_with_several_outputs_is_one_list():
    class Split(HybridBlock):
        def hybrid_forward(self, F, x):
            return F.split(x, num_outputs=2, axis=1), F.relu(x)

    net = initialized(Split())
    (left, right), whole = mxamp.convert_block(net, target_dtype="bfloat16")(features())
    assert_close([left, right, whole], net(features()))


def test_optional_inputs_may_be_left_out_or_given():
    net = initialized(Optional())
    without = mxamp.convert_block(net, target_dtype="bfloat16")
    assert_close(without(features()), net(features()))
    mask = features(2, 3)
    masked = mxamp.convert_block(net, target_dtype="bfloat16", inputs=[features(), mask])
    assert_close(masked(features(), mask), net(features(), mask))


def test_a_previous_forward_pass_with_other_inputs_is_no_obstacle():
    net = initialized(Optional(), hybridize=True)
    net(features())
    mask = features(2, 3)
    before = state_of(net)
    masked = mxamp.convert_block(net, target_dtype="bfloat16", inputs=[features(), mask])
    assert state_of(net) == before
    assert masked(features(), mask).shape == (2, 3)


def test_none_among_the_inputs_keeps_its_place():
    class Middle(HybridBlock):
        def hybrid_forward(self, F, x, nothing, y):
            return F.FullyConnected(x, y, num_hidden=3, no_bias=True)

    low = mxamp.convert_block(Middle(), target_dtype="bfloat16", inputs=[features(), None, features(3)])
    assert low(features(), None, features(3)).shape == (2, 3)


def test_unrolled_lstm_cell_converts():
    class Unrolled(HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.cell = rnn.LSTMCell(4, input_size=3)

        def hybrid_forward(self, F, x, states):
            return self.cell.unroll(3, x, states, layout="NTC", merge_outputs=True)

    net = initialized(Unrolled())
    arguments = image(2, (2, 3, 3)), [features(), features(seed=5)]
    low = mxamp.convert_block(net, target_dtype="bfloat16", inputs=arguments)
    outputs, states = low(*arguments)
    assert outputs.shape == (2, 3, 4)
    assert len(states) == 2
    assert_close([outputs, states], net(*arguments))


@pytest.mark.parametrize("run_before", [False, True])
def test_recurrent_layer_takes_what_it_took_before(run_before):
    layer = initialized(rnn.LSTM(4, input_size=3), hybridize=True)
    sequence = image(4, (5, 2, 3))
    if run_before:
        layer(sequence)
    low = mxamp.convert_block(layer, target_dtype="bfloat16")
    assert_close(low(sequence), layer(sequence))


def test_unused_inputs_stay_inputs():
    class Ignores(HybridBlock):
        def hybrid_forward(self, F, x, unused):
            return F.relu(x)

    low = mxamp.convert_block(Ignores(), target_dtype="bfloat16", input_shapes=[(2, 4), (1,)])
    with pytest.warns(UserWarning, match="not used by any computation"):
        assert low(features(), mx.nd.ones((1,))).shape == (2, 4)


def test_shapes_reach_the_report():
    net = small_net()
    assert mxamp.convert_block(net, target_dtype="bfloat16").report.low_multiply_add_share is None
    for shapes in ((2, 3, 8, 8), [2, 3, 8, 8], [(2, 3, 8, 8)], {"data": (2, 3, 8, 8)}):
        report = mxamp.convert_block(
            net, target_dtype="bfloat16", input_shapes=shapes, low_precision="required"
        ).report
        assert report.low_multiply_add_share == 1.0


def test_policy_keywords_reach_the_policy():
    net = small_net(prefix="net_")
    given = {"target_dtype": "bfloat16", "low_precision": "required"}
    low = mxamp.convert_block(net, **given, exclude=["net_conv0_*"], fp32_ops=["FullyConnected"])
    assert low.report.low_nodes < mxamp.convert_block(net, **given).report.low_nodes
    assert low.report.node("net_conv0_fwd").compute == "float32"
    assert low.report.node("net_dense0_fwd").compute == "float32"


def test_the_name_of_mx_contrib_amp_works_too():
    assert mxamp.convert_hybrid_block is mxamp.convert_block


# ---------------------------------------------------------------------- the block that comes out


@pytest.mark.parametrize(
    "flags", [{}, {"static_alloc": True}, {"static_alloc": True, "static_shape": True}], ids=str
)
def test_hybridizing_changes_no_bits(flags):
    low = mxamp.convert_block(small_net(), target_dtype="bfloat16", low_precision="required")
    plain = low(image()).asnumpy()
    low.hybridize(**flags)
    for _ in range(2):
        assert low(image()).asnumpy().tobytes() == plain.tobytes()


def test_hybridizing_for_onednn_keeps_the_model_portable(tmp_path):
    low = mxamp.convert_block(small_net(), target_dtype="bfloat16")
    plain = low(image())
    low.hybridize(backend="MKLDNN")
    assert_close(low(image()), plain)
    low.export(tmp_path / "net")
    operators = {node.op for node in mxamp.load(tmp_path / "net").graph.nodes}
    assert "Convolution" in operators
    assert not [operator for operator in operators if operator.startswith("_sg_mkldnn")]


class Branches(HybridBlock):
    """Sums of layers whose weights have other shapes, as MXNet's fusion puts them in another order."""

    def __init__(self, form):
        super().__init__()
        self._form = form
        with self.name_scope():
            self.wide = nn.Conv2D(12, 3, padding=1, in_channels=3)
            self.narrow = nn.Conv2D(12, 1, in_channels=3)
            self.small = nn.Conv2D(12, 3, strides=2, padding=1, in_channels=3)
            self.large = nn.Conv2D(12, 5, padding=2, in_channels=3)

    def hybrid_forward(self, F, x):
        if self._form == "activated":
            return F.relu(self.wide(x)) + self.narrow(x)
        if self._form == "pyramid":
            return F.UpSampling(self.small(x), scale=2, sample_type="nearest") + self.narrow(x)
        return self.wide(x) + self.large(x) + self.narrow(x)


@pytest.mark.parametrize("form", ["activated", "pyramid", "three"])
def test_sums_of_unlike_layers_run_fused(form):
    net = Branches(form)
    net.initialize(mx.init.Normal(0.3))
    low = mxamp.convert_block(net, target_dtype="bfloat16", inputs=image())
    for data in (image(), image(3, (1, 3, 10, 6))):
        assert_close(low(data), net(data))
    assert "_sg_mkldnn_conv" in low._cached_graph[1].tojson()
    low.hybridize()
    assert_close(low(image()), net(image()))
    assert "_sg_mkldnn_conv" not in low._cached_graph[1].tojson()
    low.hybridize(backend="MKLDNN", static_alloc=True)
    assert_close(low(image()), net(image()))


class TwoLoops(HybridBlock):
    """Goes over a sequence, and back over what that made."""

    def hybrid_forward(self, F, x, state):
        def step(data, before):
            return before, F.tanh(before + data)

        made, last = F.contrib.foreach(step, x * 1, state * 1)
        back, first = F.contrib.foreach(step, F.reverse(made, axis=0), last * 1)
        return F.max(first, axis=1), F.max(back, axis=2)


def test_a_loop_over_what_another_made_is_the_same_in_every_call():
    net = TwoLoops()
    data = image(1, (9, 2, 8)), image(2, (2, 8))
    expected = net(*data)
    low = mxamp.convert_block(net, target_dtype="bfloat16", inputs=list(data))
    for _ in range(32):
        for found, wanted in zip(low(*data), expected):
            np.testing.assert_allclose(found.asnumpy(), wanted.asnumpy(), atol=1e-5)


class LayerInsideAndOutside(HybridBlock):
    """Uses a layer in a loop, whose graph has variables of its own for it, and behind the loop."""

    def __init__(self, **options):
        super().__init__(**options)
        with self.name_scope():
            self.layer = nn.Dense(4, in_units=4)

    def hybrid_forward(self, F, x, count):
        def step(number, value):
            return self.layer(value), [number + 1, F.tanh(self.layer(value))]

        _, (_, last) = F.contrib.while_loop(lambda i, y: i < 3, step, [count, x], max_iterations=4)
        return last + self.layer(x)


def test_a_layer_may_be_used_in_a_loop_and_outside_of_it():
    net = LayerInsideAndOutside()
    net.initialize()
    data = image(1, (2, 4)), mx.nd.zeros(1)
    low = mxamp.convert_block(net, target_dtype="bfloat16", inputs=list(data), target="cpu-bf16-avx2")
    assert_close(low(*data), net(*data))


def test_a_block_of_float64_runs():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, in_channels=3, activation="relu"), nn.Dense(2))
    net.initialize()
    net.cast("float64")
    data = image().astype("float64")
    low = mxamp.convert_block(net, target_dtype="bfloat16", inputs=data)
    assert low(data).dtype == np.float64
    assert_close(low(data), net(data))


def test_numpy_blocks_stay_numpy_blocks():
    with mx.util.np_shape(True), mx.util.np_array(True):
        net = nn.HybridSequential()
        net.add(nn.Dense(4, in_units=3, activation="relu"), nn.Dense(2, in_units=4))
        net.initialize()
        low = mxamp.convert_block(net, target_dtype="bfloat16", input_shapes=(2, 3))
        data = mx.np.ones((2, 3))
        assert isinstance(low(data), mx.np.ndarray)
        assert_close(low(data), net(data))


@pytest.mark.parametrize("how", ["hstack", "dstack", "vstack"])
def test_blocks_that_stack_what_layers_make_run(how):
    class Stacked(HybridBlock):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Dense(16, in_units=4), nn.Dense(4)

        def hybrid_forward(self, api, x):
            made = self.first(x)
            return self.last(getattr(api.np, how)([made, made]))

    with mx.util.np_shape(True), mx.util.np_array(True):
        net = initialized(Stacked())
        data = mx.np.array(features().asnumpy())
        expected = net(data).asnumpy()
        low = mxamp.convert_block(net, target_dtype="bfloat16")
        np.testing.assert_allclose(low(data).asnumpy(), expected, rtol=0.05, atol=0.05)


def test_several_contexts_get_a_copy_each():
    contexts = [mx.cpu(0), mx.cpu(1)]
    low = mxamp.convert_block(small_net(), target_dtype="bfloat16", ctx=contexts)
    assert low.collect_params().list_ctx() == contexts
    first, second = (low(image().as_in_context(ctx)) for ctx in contexts)
    assert second.context == mx.cpu(1)
    assert first.asnumpy().tobytes() == second.asnumpy().tobytes()


def test_running_statistics_of_several_devices_are_averaged():
    net = small_net()
    net.collect_params().reset_ctx([mx.cpu(0), mx.cpu(1)])
    means = net[1].running_mean.list_data()
    means[0][:], means[1][:] = 1, 3
    low = mxamp.convert_block(net, target_dtype="bfloat16", fold_batch_norm=False)
    assert low.model.auxs[net[1].running_mean.name].asnumpy().tolist() == [2] * 8


def test_export_keeps_the_casts_and_needs_no_forward_pass(tmp_path):
    low = mxamp.convert_block(small_net(), target_dtype="bfloat16")
    low.export(str(tmp_path / "net"), epoch=3)
    again = mxamp.load(tmp_path / "net", epoch=3)
    assert again.graph == low.model.graph
    assert {name: value.dtype for name, value in again.arg_params.items()} == {
        name: value.dtype for name, value in low.model.arg_params.items()
    }
    with pytest.raises(ExportError, match="cannot be exported without its casts"):
        low.export(str(tmp_path / "net"), remove_amp_cast=True)


def test_export_writes_the_present_parameters(tmp_path):
    low = mxamp.convert_block(initialized(nn.BatchNorm(in_channels=8, prefix="bn_")), target_dtype="bfloat16")
    low.collect_params()["bn_gamma"].set_data(mx.nd.full((8,), 7))
    low.export(tmp_path / "net")
    assert set(mxamp.load(tmp_path / "net").arg_params["bn_gamma"].numpy()) == {7}


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda block: pickle.loads(pickle.dumps(block))])
def test_copies_and_pickles_keep_the_casts(copied):
    low = mxamp.convert_block(
        initialized(Nested()), target_dtype="bfloat16", input_shapes=[(2, 4), [(2, 2), (2, 4)]]
    )
    low.hybridize(static_alloc=True)
    arguments = features(), [features(2, 2), features(seed=6)]
    expected = low(*arguments)
    again = copied(low)
    assert again.model.graph == low.model.graph
    assert again.report == low.report
    for ours, theirs in zip(flat(again(*arguments)), flat(expected)):
        assert ours.asnumpy().tobytes() == theirs.asnumpy().tobytes()


def test_it_composes_with_symbols_and_other_blocks():
    low = mxamp.convert_block(
        initialized(Nested()), target_dtype="bfloat16", input_shapes=[(2, 4), [(2, 2), (2, 4)]]
    )
    y, (z, state) = low(mx.sym.var("x"), [mx.sym.var("a"), mx.sym.var("b")])
    assert state.name == "a"
    assert set(mx.sym.Group([y, z]).list_inputs()) >= {"x", "b"}
    inner = mxamp.convert_block(small_net(), target_dtype="bfloat16")
    outer = nn.HybridSequential()
    outer.add(inner, nn.Activation("relu"))
    outer.hybridize()
    assert_close(outer(image()), mx.nd.relu(inner(image())))


def test_cast_is_refused_with_what_to_do():
    low = mxamp.convert_block(small_net(), target_dtype="bfloat16")
    with pytest.raises(TargetError, match=r"cannot be cast to float16.* Convert the FP32 block again"):
        low.cast("float16")


def test_low_inputs_and_outputs_are_low():
    low = mxamp.convert_block(small_net(), target_dtype="bfloat16", io_dtype="low")
    assert set(low.report.inputs.values()) == set(low.report.outputs.values()) == {"bfloat16"}
    output = low(mx.nd.amp_cast(image(), dtype="bfloat16"))
    assert output.dtype.names == ("bfloat16",)


# ---------------------------------------------------------------------- what cannot be traced


class UsesShape(HybridBlock):
    def hybrid_forward(self, F, x):
        return x.reshape((x.shape[0], -1))


class UsesValues(HybridBlock):
    def hybrid_forward(self, F, x):
        return F.relu(x) if x.asnumpy().sum() > 0 else x


class ReturnsDict(HybridBlock):
    def hybrid_forward(self, F, x):
        return {"scores": F.relu(x)}


class ReturnsArray(HybridBlock):
    def hybrid_forward(self, F, x):
        return mx.nd.ones((2, 2))


class ReadsVariable(HybridBlock):
    def hybrid_forward(self, F, x):
        return x + F.var("stray")


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (
            UsesShape,
            r"\(UsesShape\) cannot be traced .*AttributeError: .*attribute 'shape' \(.*test_block.py, line",
        ),
        (UsesValues, r"\(UsesValues\) cannot be traced .*NotImplementedForSymbol: .*asnumpy"),
        (ReturnsDict, r"\(ReturnsDict\) cannot be traced .*returns dict.* Return a list or tuple"),
        (ReturnsArray, r"\(ReturnsArray\) cannot be traced .*does not return Symbols"),
        (
            ReadsVariable,
            r"\(ReadsVariable\) reads a variable 'stray' that is neither an input nor a parameter",
        ),
    ],
)
def test_a_block_that_cannot_be_traced_is_named_with_the_reason(block, message):
    with pytest.raises(TracingError, match=message):
        mxamp.convert_block(block(), target_dtype="bfloat16")


def test_the_culprit_inside_a_net_is_named():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(3, in_units=4), UsesShape())
    net.initialize()
    pattern = (
        r"'net_usesshape0' \(UsesShape\), inside block 'net_' \(HybridSequential\) .*shape-free operators"
    )
    with pytest.raises(TracingError, match=pattern.replace("'net_' ", "'net' ")) as caught:
        mxamp.convert_block(net, target_dtype="bfloat16")
    assert isinstance(caught.value.__cause__, AttributeError)


def test_plain_blocks_and_other_things_are_refused_with_what_to_use():
    class Plain(Block):
        def forward(self, x):
            return x

    for wrong, message in (
        (Plain(), r"\(Plain\) is a Block that is no HybridBlock.* Use HybridBlock"),
        (nn.Sequential(), "Use HybridSequential instead of Sequential"),
        (mx.sym.var("x"), "not Symbol. For a Symbol with its parameters use convert_model"),
        (3, "takes a gluon HybridBlock, not int"),
    ):
        with pytest.raises(TracingError, match=message):
            mxamp.convert_block(wrong, target_dtype="bfloat16")


def test_an_uninitialised_block_is_refused_with_what_to_call():
    with pytest.raises(
        TracingError, match=r"'d_weight' and 1 more have no values. Call net.load_parameters\(file\)"
    ):
        mxamp.convert_block(nn.Dense(3, in_units=4, prefix="d_"), target_dtype="bfloat16")


def test_a_block_of_several_inputs_says_what_to_pass():
    with pytest.raises(
        TracingError, match=r"takes 2 inputs \(x, states\), and 1 was assumed: pass inputs=\[...\]"
    ):
        mxamp.convert_block(initialized(Nested()), target_dtype="bfloat16")
    with pytest.raises(TracingError, match=r"takes 2 inputs \(x, states\), and 1 was given"):
        mxamp.convert_block(initialized(Nested()), target_dtype="bfloat16", input_shapes=(2, 4))


@pytest.mark.parametrize(
    ("described", "error", "message"),
    [
        ({"inputs": image(), "input_shapes": (2, 3, 8, 8)}, DataError, "not both"),
        ({"inputs": np.zeros((2, 3))}, DataError, "inputs must be an mx.nd.NDArray.* it holds ndarray"),
        ({"inputs": [None]}, DataError, "it holds none"),
        ({"input_shapes": "2,3"}, DataError, "input_shapes must be a shape such as"),
        ({"input_shapes": (2, -3, 8, 8)}, DataError, "input_shapes must be a shape such as"),
        ({"input_shapes": {}}, DataError, "input_shapes is empty"),
        ({"input_shapes": {"data": "abc"}}, DataError, "shape of the input 'data' must be a tuple"),
        ({"input_shapes": {"date": (2, 3, 8, 8)}}, UnknownNameError, "'date'.* Did you mean 'data'"),
        ({"input_shapes": (2, 4, 8, 8)}, DataError, "do not fit together at node 'net_conv0_fwd'"),
        ({"inputs": [image(), image()]}, TracingError, "takes 1 input at most, and 2 were given"),
        ({"input_shapes": [(2, 3, 8, 8), (1,)]}, TracingError, "takes 1 input at most, and 2 were given"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(described, error, message):
    net = small_net(prefix="net_")
    with pytest.raises(error, match=message):
        mxamp.convert_block(net, target_dtype="bfloat16", **described)


def test_a_symbol_block_refuses_another_number_of_inputs():
    block = SymbolBlock(mx.sym.relu(mx.sym.var("data")), mx.sym.var("data"))
    with pytest.raises(DataError, match=r"takes 1 input \(data\), but 2 were given"):
        mxamp.convert_block(block, target_dtype="bfloat16", input_shapes=[(2, 3), (2, 3)])


def test_sparse_parameters_are_refused():
    net = initialized(nn.Embedding(5, 4, prefix="e_"))
    net.weight._stype = "row_sparse"
    with pytest.raises(ParamsError, match="'e_weight' is stored as row_sparse"):
        mxamp.convert_block(net, target_dtype="bfloat16")


# ---------------------------------------------------------------------- devices


def test_float16_on_a_cpu_warns_at_conversion_and_fails_at_execution():
    net = small_net()
    pattern = r"no FP16 convolution on CPUs, so the result cannot run here. It can be saved and run on a GPU"
    with pytest.warns(MxampWarning, match=pattern) as caught:
        low = mxamp.convert_block(net, target_dtype="float16")
    assert caught[0].filename == __file__
    assert [note for note in low.report.warnings if re.search(pattern, note)]
    with pytest.raises(DeviceError, match=r"Run it on a GPU .* convert to bfloat16 .* emulate"):
        low(image())


def test_float16_block_converted_on_a_cpu_can_be_saved(tmp_path):
    with pytest.warns(MxampWarning):
        low = mxamp.convert_block(small_net(prefix="net_"), target_dtype="float16")
    low.export(tmp_path / "net")
    assert mxamp.load(tmp_path / "net").arg_params["net_conv0_weight"].dtype is mxamp.DType.FLOAT16


def test_devices_that_cannot_be_are_refused_before_any_work():
    net = small_net(in_channels=0)
    missing = mx.gpu(mx.context.num_gpus())
    for dtype in ("float16", "bfloat16"):
        with pytest.raises(DeviceError, match="There is no gpu"):
            mxamp.convert_block(net, target_dtype=dtype, ctx=missing)
    assert net[0].weight._deferred_init


@pytest.mark.gpu
def test_float16_block_runs_on_a_gpu():
    net = small_net()
    low = mxamp.convert_block(net, target_dtype="float16", ctx=mx.gpu(0))
    assert low.collect_params().list_ctx() == [mx.gpu(0)]
    assert_close(low(image().as_in_context(mx.gpu(0))), net(image()))


@pytest.mark.gpu
def test_float16_block_stays_on_the_gpu_of_the_original():
    net = small_net()
    net.collect_params().reset_ctx(mx.gpu(0))
    low = mxamp.convert_block(net, target_dtype="float16")
    data = image().as_in_context(mx.gpu(0))
    assert_close(low(data), net(data))


@pytest.mark.gpu
def test_bfloat16_on_a_gpu_is_refused():
    with pytest.raises(DeviceError, match="BF16 on CPUs alone"):
        mxamp.convert_block(small_net(), target_dtype="bfloat16", ctx=mx.gpu(0))


# ---------------------------------------------------------------------- ready for the fastest way


def convolutional():
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Conv2D(16, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"))
        net.add(nn.GlobalAvgPool2D(), nn.Dense(10))
    net.initialize()
    net(mx.nd.ones((1, 3, 16, 16)))
    return net


def fused_kernels(sym):
    return [name for name in sym.get_internals().list_outputs() if name.startswith("sg_mkldnn")]


def test_a_converted_block_is_fused_and_static_without_being_told():
    converted = mxamp.convert_block(convolutional(), "bfloat16")
    converted(mx.nd.ones((1, 3, 16, 16)))
    assert {("static_alloc", True), ("static_shape", True)} <= set(converted._flags)
    assert fused_kernels(converted._cached_graph[1])


def test_shapes_may_change_from_call_to_call_and_results_are_not_overwritten():
    net = convolutional()
    converted = mxamp.convert_block(net, "bfloat16")
    inputs = [mx.nd.random.uniform(shape=shape) for shape in ((2, 3, 16, 16), (4, 3, 20, 12), (2, 3, 16, 16))]
    outputs = [converted(data) for data in inputs]
    for data, output in zip(inputs, outputs):
        np.testing.assert_allclose(output.asnumpy(), net(data).asnumpy(), atol=0.01)


def test_hybridizing_otherwise_is_heeded_and_computes_the_same():
    converted = mxamp.convert_block(convolutional(), "bfloat16")
    data = mx.nd.random.uniform(shape=(2, 3, 16, 16))
    expected = converted(data).asnumpy()
    converted.hybridize()
    np.testing.assert_allclose(converted(data).asnumpy(), expected, atol=0.01)
    assert not fused_kernels(converted._cached_graph[1])


def test_a_fused_block_composes_exports_and_pickles_what_was_converted(tmp_path):
    converted = mxamp.convert_block(convolutional(), "bfloat16")
    data = mx.nd.random.uniform(shape=(2, 3, 16, 16))
    expected = converted(data).asnumpy()
    composed = converted(mx.sym.var("other"))
    assert not fused_kernels(composed)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(converted))(data).asnumpy(), expected)
    converted.export(str(tmp_path / "net"))
    assert "sg_mkldnn" not in (tmp_path / "net-symbol.json").read_text()
