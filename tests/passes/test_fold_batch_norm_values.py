"""Folding BatchNorm through `convert_model`: the values it stores, the names it keeps, what it refuses."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import mxamp
from mxamp.graph import Entry, Graph, Node
from mxamp.graph.output_names import output_names
from mxamp.model import Model
from mxamp.params.parameter import ArrayParameter

CHANNELS = 8
RANDOM = np.random.default_rng(7)
STATISTICS = {
    "gamma": RANDOM.uniform(0.5, 1.5, CHANNELS).astype(np.float32),
    "beta": RANDOM.normal(0.0, 1.0, CHANNELS).astype(np.float32),
    "mean": RANDOM.normal(0.0, 1.0, CHANNELS).astype(np.float32),
    "var": RANDOM.uniform(0.5, 2.0, CHANNELS).astype(np.float32),
}
CONVOLUTION = {"kernel": "(3, 3)", "num_filter": str(CHANNELS), "no_bias": "True"}


class Network:
    """data -> layer -> BatchNorm -> relu, with the parts a test wants changed."""

    def __init__(self) -> None:
        self.op = "Convolution"
        self.attrs = dict(CONVOLUTION)
        self.weight = RANDOM.normal(0.0, 0.2, (CHANNELS, 4, 3, 3)).astype(np.float32)
        self.bias: np.ndarray | None = None
        self.norm_attrs = {"fix_gamma": "False", "eps": "1e-05"}
        self.extra: list[Node] = []
        self.scales = np.ones(CHANNELS, np.float32)
        self.heads = ["relu"]

    def build(self) -> tuple[Graph, dict[str, np.ndarray], dict[str, np.ndarray]]:
        nodes = [Node("null", "data"), Node("null", "conv_weight")]
        inputs = [Entry(0), Entry(1)]
        args = {"conv_weight": self.weight, "gamma": STATISTICS["gamma"], "beta": STATISTICS["beta"]}
        if self.bias is not None:
            inputs.append(Entry(len(nodes)))
            nodes.append(Node("null", "conv_bias"))
            args["conv_bias"] = self.bias
            self.attrs["no_bias"] = "False"
        layer = len(nodes)
        nodes.append(Node(self.op, "conv", self.attrs, tuple(inputs)))
        first = len(nodes)
        nodes.extend(Node("null", name) for name in STATISTICS)
        parameters = tuple(Entry(first + number) for number in range(4))
        nodes.append(Node("BatchNorm", "bn", self.norm_attrs, (Entry(layer), *parameters), num_outputs=3))
        nodes.append(Node("Activation", "relu", {"act_type": "relu"}, (Entry(len(nodes) - 1),)))
        nodes.extend(self.extra)
        position = {node.name: number for number, node in enumerate(nodes)}
        heads = tuple(Entry(position[name]) for name in self.heads)
        auxs = {"mean": STATISTICS["mean"], "var": STATISTICS["var"]}
        return Graph(tuple(nodes), heads), args, auxs

    def convert(self, dtype: str = "bfloat16", **options: object) -> Model:
        graph, args, auxs = self.build()
        return mxamp.convert_model(graph, args, auxs, dtype, **options)  # type: ignore[arg-type]


def is_folded(model: Model) -> bool:
    gone = all(node.op != "BatchNorm" for node in model.graph.nodes)
    assert gone == ("gamma" not in model.arg_params)
    assert gone == ("mean" not in model.aux_params)
    return gone


def scale_and_shift(eps: float = 1e-5) -> tuple[np.ndarray, np.ndarray]:
    exact = {name: values.astype(np.float64) for name, values in STATISTICS.items()}
    scale = exact["gamma"] / np.sqrt(exact["var"] + eps)
    return scale, exact["beta"] - exact["mean"] * scale


def distance_in_ulps(stored: np.ndarray, exact: np.ndarray) -> float:
    info = ml_dtypes.finfo(stored.dtype)
    exponent = np.maximum(np.floor(np.log2(np.abs(exact))), info.minexp)
    return float(np.max(np.abs(stored.astype(np.float64) - exact) / 2.0 ** (exponent - info.nmant)))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_folded_parameters_are_the_float64_product_rounded_once(dtype: str) -> None:
    network = Network()
    model = network.convert(dtype)
    assert is_folded(model)
    scale, shift = scale_and_shift()
    weight = model.arg_params["conv_weight"].numpy()
    bias = model.arg_params["conv_bias"].numpy()
    assert str(weight.dtype) == str(bias.dtype) == dtype
    exact = network.weight.astype(np.float64) * scale[:, None, None, None]
    slack = 2.0**-15 if dtype == "bfloat16" else 2.0**-12
    assert distance_in_ulps(weight, exact) <= 0.5 + slack
    assert distance_in_ulps(bias, shift) <= 0.5 + 1e-9
    # Truncation would hide in the mean: every error would point the same way.
    bias_of_errors = np.mean((np.abs(weight.astype(np.float64)) - np.abs(exact)) / np.abs(exact))
    assert abs(bias_of_errors) < 2.0 ** (-10 if dtype == "bfloat16" else -13)


def test_folding_into_an_existing_bias_scales_it() -> None:
    network = Network()
    network.bias = RANDOM.normal(0.0, 1.0, CHANNELS).astype(np.float32)
    model = network.convert()
    assert is_folded(model)
    scale, shift = scale_and_shift()
    exact = network.bias.astype(np.float64) * scale + shift
    assert distance_in_ulps(model.arg_params["conv_bias"].numpy(), exact) <= 0.5 + 1e-9
    assert [node.name for node in model.graph.nodes].count("conv_bias") == 1


def test_fix_gamma_counts_gamma_as_one() -> None:
    network = Network()
    network.norm_attrs = {"eps": "1e-05"}  # MXNet's default is fix_gamma=True
    model = network.convert()
    scale = 1.0 / np.sqrt(STATISTICS["var"].astype(np.float64) + 1e-5)
    exact = network.weight.astype(np.float64) * scale[:, None, None, None]
    assert distance_in_ulps(model.arg_params["conv_weight"].numpy(), exact) <= 0.5 + 2.0**-15


def test_grouped_deconvolution_scales_the_output_channels_of_each_group() -> None:
    network = Network()
    network.op = "Deconvolution"
    network.attrs = {"kernel": "(2, 2)", "num_filter": str(CHANNELS), "num_group": "2", "no_bias": "True"}
    network.weight = RANDOM.normal(0.0, 0.2, (6, CHANNELS // 2, 2, 2)).astype(np.float32)
    model = network.convert("float16")
    assert is_folded(model)
    scale, _ = scale_and_shift()
    exact = network.weight.astype(np.float64)
    exact[:3] *= scale[None, :4, None, None]
    exact[3:] *= scale[None, 4:, None, None]
    assert distance_in_ulps(model.arg_params["conv_weight"].numpy(), exact) <= 0.5 + 2.0**-12


def test_refuses_a_deconvolution_where_a_bias_makes_it_slow() -> None:
    """On cpu-bf16 a Deconvolution with a bias takes up to three times FP32's time."""
    network = Network()
    network.op = "Deconvolution"
    network.attrs = {"kernel": "(2, 2)", "num_filter": str(CHANNELS), "no_bias": "True"}
    network.weight = RANDOM.normal(0.0, 0.2, (6, CHANNELS, 2, 2)).astype(np.float32)
    refuses(network)


def test_fully_connected_is_folded() -> None:
    network = Network()
    network.op = "FullyConnected"
    network.attrs = {"num_hidden": str(CHANNELS), "no_bias": "True"}
    network.weight = RANDOM.normal(0.0, 0.2, (CHANNELS, 5)).astype(np.float32)
    assert is_folded(network.convert(low_precision="required"))


def test_report_keeps_the_folded_node_and_its_parameters() -> None:
    network = Network()
    report = network.convert().report
    assert report is not None
    node = report.node("bn")
    assert node.rule == "fold batch norm"
    assert "'conv'" in node.reason
    assert node.name_after == "conv"
    parameters = {parameter.name: parameter for parameter in report.parameters}
    assert not parameters["gamma"].stored
    assert parameters["gamma"].bytes_after == 0
    assert parameters["conv_weight"].stored == {"conv_weight": "bfloat16", "conv_bias": "bfloat16"}
    stored = network.convert()
    arrays = [*stored.arg_params.values(), *stored.aux_params.values()]
    assert report.parameter_bytes_after == sum(array.numpy().nbytes for array in arrays)


def test_names_of_outputs_and_other_nodes_are_kept() -> None:
    network = Network()
    before, _, _ = network.build()
    after = network.convert().graph
    assert output_names(after) == output_names(before) == ("relu_output",)
    assert {"data", "conv", "conv_weight", "relu"} <= {node.name for node in after.nodes}


def test_new_bias_does_not_take_a_name_that_exists() -> None:
    network = Network()
    network.extra = [Node("Activation", "conv_bias", {"act_type": "tanh"}, (Entry(8),))]
    network.heads = ["conv_bias"]
    model = network.convert()
    assert is_folded(model)
    assert "conv_bias_1" in model.arg_params


def test_second_conversion_changes_nothing() -> None:
    model = Network().convert()
    again = mxamp.convert_model(
        model.graph,
        {name: value.numpy() for name, value in model.arg_params.items()},
        {name: value.numpy() for name, value in model.aux_params.items()},
        "bfloat16",
    )
    assert again.graph == model.graph


def test_caller_arrays_are_not_changed() -> None:
    network = Network()
    graph, args, auxs = network.build()
    copies = {name: values.copy() for name, values in {**args, **auxs}.items()}
    mxamp.convert_model(graph, args, auxs, "bfloat16").arg_params["conv_weight"].numpy()
    for name, values in {**args, **auxs}.items():
        np.testing.assert_array_equal(values, copies[name])


def refuses(network: Network, **options: object) -> None:
    assert not is_folded(network.convert(**options))


def test_refuses_when_switched_off() -> None:
    refuses(Network(), fold_batch_norm=False)


def test_refuses_when_the_batch_norm_is_a_graph_output() -> None:
    network = Network()
    network.heads = ["relu", "bn"]
    refuses(network)


def test_refuses_when_the_layer_is_a_graph_output() -> None:
    network = Network()
    network.heads = ["relu", "conv"]
    refuses(network)


def test_refuses_when_something_else_reads_the_layer() -> None:
    network = Network()
    network.extra = [Node("Activation", "other", {"act_type": "tanh"}, (Entry(2),))]
    network.heads = ["relu", "other"]
    refuses(network)


def test_refuses_when_something_else_reads_the_weight() -> None:
    network = Network()
    network.extra = [Node("Convolution", "other", dict(CONVOLUTION), (Entry(0), Entry(1)))]
    network.heads = ["relu", "other"]
    refuses(network)


def test_refuses_when_statistics_are_read() -> None:
    network = Network()
    network.extra = [Node("_copy", "statistics", {}, (Entry(7, 1),))]
    network.heads = ["relu", "statistics"]
    refuses(network)


@pytest.mark.parametrize("name", ["conv", "bn"])
def test_refuses_when_the_user_keeps_one_of_the_two_in_float32(name: str) -> None:
    refuses(Network(), exclude=[name])


def test_refuses_another_axis() -> None:
    network = Network()
    network.norm_attrs["axis"] = "3"
    refuses(network)


def test_refuses_channels_last() -> None:
    network = Network()
    network.attrs["layout"] = "NHWC"
    refuses(network)


def test_refuses_a_product_beyond_the_range() -> None:
    network = Network()
    network.weight = np.full((CHANNELS, 4, 3, 3), 6e4, np.float32)
    network.norm_attrs["eps"] = "0.0"
    model = network.convert("float16")
    scale, _ = scale_and_shift(0.0)
    assert 6e4 * scale.max() > 65504
    assert not is_folded(model)
    assert np.isfinite(model.arg_params["conv_weight"].numpy().astype(np.float32)).all()


def test_refuses_when_parameters_are_cast_at_run_time() -> None:
    refuses(Network(), cast_optional_params=False)


def test_runs_in_mxnet_as_the_float32_network() -> None:
    pytest.importorskip("mxnet", reason="executes the folded network")
    from mxamp.runtime.executor import run_outputs

    network = Network()
    graph, args, auxs = network.build()
    data = {"data": RANDOM.normal(0.0, 1.0, (2, 4, 6, 6)).astype(np.float32)}
    reference = Model(
        graph,
        {name: ArrayParameter(values) for name, values in args.items()},
        {name: ArrayParameter(values) for name, values in auxs.items()},
    )
    expected = run_outputs(reference, data, fusion=False)[0]
    for fusion in (True, False):
        actual = run_outputs(network.convert(), data, fusion=fusion)[0]
        assert np.linalg.norm(actual - expected) < 6e-3 * np.linalg.norm(expected)


class TestTheLowerEndOfTheRange:
    """A small scale makes weights subnormal in float16, where they lose bits."""

    @staticmethod
    def network(scale: float, op: str = "Convolution", channels: slice = slice(None)) -> Network:
        network = Network()
        if op == "Deconvolution":
            network.op = op
            network.attrs["num_group"] = "2"
            network.weight = RANDOM.normal(0.0, 0.2, (4, CHANNELS // 2, 3, 3)).astype(np.float32)
        if op == "FullyConnected":
            network.op = op
            network.attrs = {"num_hidden": str(CHANNELS), "no_bias": "True"}
            network.weight = RANDOM.normal(0.0, 0.2, (CHANNELS, 4 * 6 * 6)).astype(np.float32)
        network.scales[channels] = scale
        return network

    @staticmethod
    def models(network: Network, **options: object) -> tuple[Model, Model]:
        """Return the network and its emulation; BatchNorm's statistics are those of its layer on the data."""
        graph, args, auxs = network.build()
        scales = network.scales
        auxs = {"mean": np.zeros(CHANNELS, np.float32), "var": np.ones(CHANNELS, np.float32)}
        args = {**args, "gamma": args["gamma"] * scales, "beta": args["beta"] * scales}
        reference = Model(
            graph,
            {name: ArrayParameter(values) for name, values in args.items()},
            {name: ArrayParameter(values) for name, values in auxs.items()},
        )
        return reference, mxamp.emulate(graph, args, auxs, "float16", **options)  # type: ignore[arg-type]

    @pytest.mark.parametrize("op", ["Convolution", "Deconvolution", "FullyConnected"])
    @pytest.mark.parametrize("scale", [1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5])
    def test_folding_is_never_less_precise(self, scale: float, op: str) -> None:
        pytest.importorskip("mxnet", reason="executes the folded network")
        from mxamp.errors import LibraryError
        from mxamp.runtime.executor import run_outputs
        from mxamp.runtime.library import load_operators

        try:
            load_operators()
        except LibraryError as error:
            pytest.skip(f"the operator library cannot be built: {error}")
        network = self.network(scale, op)
        data = {"data": RANDOM.normal(0.0, 1.0, (4, 4, 6, 6)).astype(np.float32)}
        errors = []
        for fold in (True, False):
            reference, emulated = self.models(network, fold_batch_norm=fold)
            expected, found = (run_outputs(model, data, fusion=False)[0] for model in (reference, emulated))
            errors.append(np.linalg.norm(found - expected) / np.linalg.norm(expected))
        # Without folding the layer is rounded once more; below the range it is the results that are.
        assert errors[0] < 1.3 * errors[1] + 1e-4

    def test_what_is_not_folded_says_why(self) -> None:
        _, emulated = self.models(self.network(1e-5))
        assert (
            "not folded into 'conv', whose weights would become subnormal"
            in emulated.report.node("bn").reason
        )

    @pytest.mark.parametrize("scale", [0.0, 1e-9])
    def test_a_dead_channel_keeps_nothing_from_being_folded(self, scale: float) -> None:
        assert is_folded(self.models(self.network(scale, channels=slice(2, 3)))[1])

    def test_one_small_channel_does(self) -> None:
        network = self.network(1e-3)
        assert is_folded(self.models(network)[1])
        network.scales[2] = 5e-5
        assert not is_folded(self.models(network)[1])

    def test_bfloat16_has_float32s_exponents(self) -> None:
        network = self.network(1e-5)
        graph, args, auxs = network.build()
        args["gamma"] = args["gamma"] * network.scales
        assert is_folded(mxamp.convert_model(graph, args, auxs, "bfloat16"))
