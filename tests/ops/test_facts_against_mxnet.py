"""Every operator record says what MXNet's own registry and type inference say."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import warnings
from typing import Any, Iterator, Mapping, NamedTuple

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="the facts are compared with MXNet's own type inference")

from mxnet.base import _LIB, MXNetError, c_str, check_call
from mxnet.operator import get_all_registered_operators

from mxamp.dtypes import DType
from mxamp.graph import Entry, Graph, parse_symbol, write_symbol
from mxamp.graph.infer import infer_dtypes
from mxamp.ops import FACTS, InputRole, OperatorFacts

LOW = (DType.FLOAT16, DType.BFLOAT16)


class Case(NamedTuple):
    """One way to call an operator.

    ``inputs`` are MXNet's names of its inputs, in order; ``v0 v1`` those of a variadic operator, which have
    none. ``saved`` are attributes that its Python function does not take but a ``symbol.json`` may hold.
    """

    op: str
    inputs: tuple[str, ...]
    attrs: Mapping[str, Any]
    index_dtypes: tuple[DType, ...] = (DType.FLOAT32, DType.INT32)
    saved: Mapping[str, str] = {}

    def __str__(self) -> str:
        attrs = {**self.attrs, **self.saved}
        return "-".join([self.op, *self.inputs, *(f"{key}={value}" for key, value in attrs.items())])


def case(op: str, inputs: str, **attrs: Any) -> Case:
    return Case(op, tuple(inputs.split()), attrs)


def cases() -> Iterator[Case]:
    yield from neural_cases()
    yield from elementwise_cases()
    yield from shape_cases()
    yield from ordering_cases()
    yield from generated_cases()
    yield from detection_cases()


def neural_cases() -> Iterator[Case]:
    kernel: dict[str, Any] = {"kernel": (1, 1), "num_filter": 2}
    for op in ("Convolution", "Convolution_v1", "Deconvolution"):
        yield case(op, "data weight bias", no_bias=False, **kernel)
        yield case(op, "data weight", no_bias=True, **kernel)
    yield case("FullyConnected", "data weight bias", num_hidden=2)
    yield case("FullyConnected", "data weight", num_hidden=2, no_bias=True)
    yield case("_contrib_DeformableConvolution", "data offset weight bias", **kernel)
    yield case("_contrib_ModulatedDeformableConvolution", "data offset mask weight bias", **kernel)
    yield case("dot", "lhs rhs")
    yield case("batch_dot", "lhs rhs")
    yield case("khatri_rao", "v0 v1")
    for states in (False, True):
        rnn = {"state_size": 2, "num_layers": 1, "state_outputs": states}
        yield case("RNN", "data parameters state state_cell", mode="lstm", **rnn)
        yield case("RNN", "data parameters state", mode="gru", **rnn)
        yield case("RNN", "data parameters state", mode="rnn_tanh", **rnn)
        rnn["use_sequence_length"] = True
        yield case("RNN", "data parameters state state_cell sequence_length", mode="lstm", **rnn)
        yield case("RNN", "data parameters state sequence_length", mode="gru", **rnn)
    normalised = "data gamma beta moving_mean moving_var"
    for op in ("BatchNorm", "BatchNorm_v1", "_contrib_BatchNormWithReLU"):
        yield case(op, normalised)
        yield case(op, normalised, output_mean_var=True)
    yield case("_contrib_SyncBatchNorm", normalised, key="k")
    yield case("_contrib_SyncBatchNorm", normalised, key="k", output_mean_var=True)
    for op in ("LayerNorm", "GroupNorm"):
        yield case(op, "data gamma beta")
        yield case(op, "data gamma beta", output_mean_var=True)
    yield case("InstanceNorm", "data gamma beta")
    yield case("L2Normalization", "data")
    yield case("LRN", "data", nsize=3)
    for function in ("relu", "sigmoid", "softrelu", "softsign", "tanh"):
        yield case("Activation", "data", act_type=function)
    yield case("LeakyReLU", "data gamma", act_type="prelu")
    for function in ("elu", "gelu", "leaky", "rrelu", "selu"):
        yield case("LeakyReLU", "data", act_type=function)
    for op in ("relu", "sigmoid", "hard_sigmoid", "softsign", "SoftmaxActivation", "MakeLoss", "make_loss"):
        yield case(op, "data")
    yield case("softmax", "data length", use_length=True)
    yield case("softmax", "data length", use_length=True, dtype="float32")
    for op in ("softmax", "log_softmax", "softmin"):
        yield case(op, "data")
        yield case(op, "data", dtype="float32")
    for op in ("SoftmaxOutput", "SVMOutput", "softmax_cross_entropy"):
        yield case(op, "data label")
    for op in ("LinearRegressionOutput", "MAERegressionOutput", "LogisticRegressionOutput"):
        yield case(op, "data label")
    yield case("CTCLoss", "data label")
    yield case(
        *("CTCLoss", "data label data_lengths label_lengths"), use_data_lengths=True, use_label_lengths=True
    )
    for pool in ("max", "avg"):
        yield case("Pooling", "data", kernel=(2, 2), pool_type=pool)
    yield case("Pooling", "data", global_pool=True)
    yield case("Pooling_v1", "data", kernel=(2, 2))
    yield case("_contrib_AdaptiveAvgPooling2D", "data")
    yield case("_contrib_BilinearResize2D", "data", height=2, width=2)
    yield case("_contrib_BilinearResize2D", "data like", mode="like")
    yield case("UpSampling", "v0", scale=2, sample_type="nearest")
    yield case("UpSampling", "v0 v1", scale=2, sample_type="nearest")
    yield case("UpSampling", "v0 v1", scale=2, sample_type="bilinear", num_filter=2)
    pooled: dict[str, Any] = {"pooled_size": (1, 1), "spatial_scale": 1}
    for op in ("ROIPooling", "_contrib_ROIAlign", "_contrib_RROIAlign"):
        yield case(op, "data rois", **pooled)
    yield case("_contrib_PSROIPooling", "data rois", output_dim=1, pooled_size=1, spatial_scale=1)
    yield case("BilinearSampler", "data grid")
    for transform in ("affine", "warp"):
        yield case("GridGenerator", "data", transform_type=transform)
    yield case("SpatialTransformer", "data loc", transform_type="affine", sampler_type="bilinear")
    yield case("Correlation", "data1 data2")
    yield case("Dropout", "data")
    for op in ("Embedding", "_contrib_SparseEmbedding"):
        yield case(op, "data weight", input_dim=2, output_dim=3)
        # The attribute is of no consequence: the weight decides.
        yield case(op, "data weight", input_dim=2, output_dim=3, dtype="float64")
    yield case("Pad", "data", mode="edge", pad_width=(0, 0, 0, 0, 1, 1, 1, 1))
    yield case("Crop", "v0", h_w=(1, 1))
    yield case("Crop", "v0 v1")
    for op in ("SequenceMask", "SequenceLast", "SequenceReverse"):
        yield case(op, "data")
        yield case(op, "data sequence_length", use_sequence_length=True)
    yield case("_contrib_div_sqrt_dim", "data")
    yield case("_contrib_interleaved_matmul_selfatt_qk", "queries_keys_values", heads=1)
    yield case("_contrib_interleaved_matmul_selfatt_valatt", "queries_keys_values attention", heads=1)
    yield case("_contrib_interleaved_matmul_encdec_qk", "queries keys_values", heads=1)
    yield case("_contrib_interleaved_matmul_encdec_valatt", "keys_values attention", heads=1)
    yield case("_image_to_tensor", "data")
    yield case("_image_normalize", "data")
    yield case("_image_resize", "data", size=(2, 2))
    yield case("_image_crop", "data", x=0, y=0, width=1, height=1)


COMPARISONS = ("equal", "not_equal", "greater", "greater_equal", "lesser", "lesser_equal")
ARITHMETIC = (
    *("plus", "minus", "rminus", "mul", "div", "rdiv", "mod", "rmod", "maximum", "minimum", "power"),
    *("rpower", "hypot"),
)
UNARY = (
    *("logical_not", "negative", "abs", "floor", "ceil", "round", "rint", "fix", "trunc", "exp", "expm1"),
    *("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "cbrt", "rcbrt", "square", "reciprocal", "sign"),
    *("sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh"),
    *("arctanh", "degrees", "radians", "erf", "erfinv", "gamma", "gammaln", "_contrib_quadratic", "_copy"),
    *("_contrib_round_ste", "_contrib_sign_ste", "_contrib_gradientmultiplier", "BlockGrad", "sum", "mean"),
    *("prod", "nansum", "nanprod", "max", "min", "moments", "_square_sum", "_scatter_plus_scalar"),
    "_scatter_minus_scalar",
)


def elementwise_cases() -> Iterator[Case]:
    for name in ("add", "sub", "mul", "div"):
        yield case(f"elemwise_{name}", "lhs rhs")
        yield case(f"broadcast_{name}", "lhs rhs")
    for name in ("mod", "power", "maximum", "minimum", "hypot"):
        yield case(f"_{name}", "lhs rhs")
        yield case(f"broadcast_{name}", "lhs rhs")
    for name in COMPARISONS:
        yield case(f"_{name}", "lhs rhs")
        yield case(f"broadcast_{name}", "lhs rhs")
        yield case(f"_{name}_scalar", "data", scalar=2)
    for name in ("and", "or", "xor"):
        yield case(f"_logical_{name}", "lhs rhs")
        yield case(f"broadcast_logical_{name}", "lhs rhs")
        yield case(f"_logical_{name}_scalar", "data", scalar=2)
    for name in ARITHMETIC:
        yield case(f"_{name}_scalar", "data", scalar=2)
    for name in ("_grad_add", "_scatter_elemwise_div", "_identity_with_attr_like_rhs"):
        yield case(name, "lhs rhs")
    for name in UNARY:
        yield case(name, "data")
    yield case("add_n", "v0")
    yield case("add_n", "v0 v1 v2")
    yield case("clip", "data", a_min=0, a_max=6)
    yield case("smooth_l1", "data", scalar=1)
    yield case("cast_storage", "data", stype="default")
    for dtype in ("float16", "float32", "float64", "int32", "bool"):
        yield case("Cast", "data", dtype=dtype)
    yield case("where", "condition x y")
    yield case("norm", "data")
    yield case("norm", "data", ord=1, axis=1)
    yield case("norm", "data", out_dtype="float32")
    yield case("_np_cumsum", "a")
    yield case("_np_cumsum", "a", dtype="float32")


def shape_cases() -> Iterator[Case]:
    for op in ("Flatten", "squeeze", "transpose", "SwapAxis", "diag"):
        yield case(op, "data")
    yield case("Reshape", "data", shape=(-1,))
    yield case("expand_dims", "data", axis=0)
    yield case("reverse", "data", axis=0)
    yield case("repeat", "data", repeats=2)
    yield case("tile", "data", reps=(2,))
    yield case("depth_to_space", "data", block_size=2)
    yield case("space_to_depth", "data", block_size=2)
    yield case("broadcast_axis", "data", axis=0, size=2)
    yield case("broadcast_to", "data", shape=(2,))
    yield case("broadcast_like", "lhs rhs")
    yield case("reshape_like", "lhs rhs")
    yield case("slice_like", "data shape_like")
    yield case("slice", "data", begin=(0,), end=(1,))
    yield case("slice_axis", "data", axis=0, begin=0, end=1)
    for count in (1, 3):
        yield case("SliceChannel", "data", num_outputs=count)
        yield case("_split_v2", "data", indices=(), sections=count)
    yield case("_split_v2", "data", indices=(0, 2))
    for op in ("Concat", "stack", "_rnn_param_concat"):
        yield case(op, "v0")
        yield case(op, "v0 v1 v2")
    yield case("im2col", "data", kernel=(1, 1))
    yield case("col2im", "data", kernel=(1, 1), output_size=(1, 1))
    yield case("_slice_assign", "lhs rhs", begin=(0,), end=(1,))
    yield case("_slice_assign_scalar", "data", begin=(0,), end=(1,))
    yield case("take", "a indices")
    yield case("batch_take", "a indices")._replace(index_dtypes=(DType.INT32,))
    yield case("pick", "data index")
    yield case("gather_nd", "data indices")
    yield case("scatter_nd", "data indices", shape=(2,))
    yield case("_scatter_set_nd", "lhs rhs indices", shape=(2,))
    yield case("one_hot", "indices", depth=2)
    yield case("one_hot", "indices", depth=2, dtype="float16")
    yield case("_contrib_boolean_mask", "data index")
    yield case("_contrib_index_copy", "old_tensor index_vector new_tensor")
    yield case("_contrib_index_array", "data")
    yield case("_contrib_allclose", "a b")
    yield case("_ravel_multi_index", "data", shape=(2, 2))
    yield case("_unravel_index", "data", shape=(2, 2))
    yield case("shape_array", "data")
    yield case("size_array", "data")


def ordering_cases() -> Iterator[Case]:
    yield case("topk", "data")
    for returns in ("both", "indices", "mask", "value"):
        yield case("topk", "data", ret_typ=returns)
        for dtype in ("float16", "int64"):
            yield case("topk", "data", ret_typ=returns, dtype=dtype)
    yield case("sort", "data")
    yield case("argsort", "data")
    yield case("argsort", "data", dtype="int32")
    for op in ("argmax", "argmin", "argmax_channel"):
        yield case(op, "data")


DISTRIBUTIONS = {
    "uniform": "low high",
    "normal": "mu sigma",
    "gamma": "alpha beta",
    "exponential": "lam",
    "poisson": "lam",
    "negative_binomial": "k p",
    "generalized_negative_binomial": "mu alpha",
}


def generated_cases() -> Iterator[Case]:
    needed: dict[str, dict[str, Any]] = {
        "_arange": {"start": 0, "stop": 4},
        "_linspace": {"start": 0, "stop": 1, "num": 3},
        "_eye": {"N": 2},
        "_zeros": {"shape": (2,)},
        "_ones": {"shape": (2,)},
        "_full": {"shape": (2,), "value": 1},
    }
    for op, attrs in needed.items():
        yield case(op, "", **attrs)
        for dtype in ("float16", "int32"):
            yield case(op, "", dtype=dtype, **attrs)
    yield case("_zeros_without_dtype", "", shape=(2,))
    yield case("_zeros_without_dtype", "", shape=(2,))._replace(saved={"dtype": "2"})
    for op in ("_contrib_arange_like", "zeros_like", "ones_like", "_shuffle", "_sample_multinomial"):
        yield case(op, "data")
    yield case("_sample_multinomial", "data", get_prob=True, dtype="float32")
    for name, parameters in DISTRIBUTIONS.items():
        yield case(f"_random_{name}", "", shape=(2,))
        yield case(f"_random_{name}", "", shape=(2,), dtype="float16")
        yield case(f"_random_{name}_like", "data")
        yield case(f"_sample_{name}", parameters)
        yield case(f"_sample_{name}", parameters, dtype="float16")
    yield case("_random_randint", "", low=0, high=2)
    yield case("_random_randint", "", low=0, high=2, dtype="int64")


def detection_cases() -> Iterator[Case]:
    yield case("_contrib_box_nms", "data")
    yield case("_contrib_box_iou", "lhs rhs")
    yield case("_contrib_box_decode", "data anchors")
    yield case("_contrib_box_encode", "samples matches anchors refs means stds")
    yield case("_contrib_bipartite_matching", "data", threshold=0.5)
    yield case("_contrib_MultiBoxPrior", "data")
    yield case("_contrib_MultiBoxTarget", "anchor label cls_pred")
    yield case("_contrib_MultiBoxDetection", "cls_prob loc_pred anchor")
    for op in ("_contrib_Proposal", "_contrib_MultiProposal"):
        yield case(op, "cls_prob bbox_pred im_info")
        yield case(op, "cls_prob bbox_pred im_info", output_score=True)
    yield case("_contrib_count_sketch", "data h s", out_dim=2)
    yield case("_contrib_getnnz", "data")


CASES = tuple(cases())

WITHOUT_CASE: dict[str, str] = {}
"""Operator -> why no case can be built."""

LENIENT_INFERENCE = {
    ("_contrib_SyncBatchNorm", 0): "the kernel reads FP32 whatever the data's dtype is",
    ("BatchNorm_v1", 0): "the kernel reads FP32 whatever the data's dtype is",
    ("CTCLoss", 0): "the kernel reads FP32 whatever the data's dtype is",
    ("_contrib_index_copy", 0): "the kernel reads all three in the output's dtype",
    ("_contrib_index_copy", 2): "the kernel reads all three in the output's dtype",
}
"""(operator, input) whose dtype type inference lets differ although the kernel then fails -> why it fails."""


# --------------------------------------------------------------------------------------------- MXNet's side


def symbol_function(facts: OperatorFacts) -> Any:
    """Return the Python function that MXNet generated for an operator, under any of its names."""
    families = {"_contrib_": mx.sym.contrib, "_image_": mx.sym.image, "_random_": mx.sym.random}
    for name in (facts.name, *facts.aliases):
        places = [(mx.sym._internal, name), (mx.sym.op, name)]
        places += [
            (module, name[len(prefix) :]) for prefix, module in families.items() if name.startswith(prefix)
        ]
        for module, function in places:
            if function in module.__dict__:
                return module.__dict__[function]
    raise AssertionError(f"MXNet generated no function for {facts.name}")


def build(given: Case) -> Graph:
    """Return the graph of one call: variables and the operator, all of whose outputs are heads."""
    facts = FACTS.get(given.op)
    assert facts is not None, f"{given.op} has no record"
    function = symbol_function(facts)
    if "v0" in given.inputs:
        sym = function(*(mx.sym.var(f"n_{name}") for name in given.inputs), name="n", **given.attrs)
    else:
        sym = function(name="n", **given.attrs)
    graph = parse_symbol(sym.tojson())
    last = len(graph.nodes) - 1
    node = graph.nodes[last]
    heads = tuple(Entry(last, index) for index in range(node.num_outputs))
    nodes = (*graph.nodes[:last], node._replace(attrs={**node.attrs, **given.saved}))
    return dataclasses.replace(graph, nodes=nodes, heads=heads, head_versions=())


def input_names(graph: Graph) -> tuple[str, ...]:
    return tuple(graph.nodes[entry.node].name for entry in graph.nodes[-1].inputs)


class Inferred(NamedTuple):
    """What MXNet infers: the dtypes of the variables and of the outputs."""

    variables: Mapping[str, DType]
    outputs: tuple[DType, ...]


def infer_with_mxnet(graph: Graph, given: Mapping[str, DType]) -> Inferred | None:
    """Let MXNet infer; None where it cannot tell. Raises MXNetError where it refuses."""
    # Symbol.infer_type takes no bfloat16; the variables' attribute does.
    nodes = tuple(
        node._replace(attrs={**node.attrs, "__dtype__": str(given[node.name].value)})
        if node.is_variable
        else node
        for node in graph.nodes
    )
    sym = mx.sym.load_json(write_symbol(dataclasses.replace(graph, nodes=nodes)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "Cannot decide type for ..."
        args, outputs, auxs = sym.infer_type()
    if args is None:
        return None
    found = dict(zip(sym.list_arguments(), args))
    found.update(zip(sym.list_auxiliary_states(), auxs))
    return Inferred(
        {name: DType.from_numpy(dtype) for name, dtype in found.items()},
        tuple(DType.from_numpy(dtype) for dtype in outputs),
    )


def refuses(graph: Graph, given: Mapping[str, DType]) -> bool:
    """Whether MXNet rejects these dtypes, cannot complete them, or puts others in their place."""
    try:
        found = infer_with_mxnet(graph, given)
    except MXNetError:
        return True
    return found is None or found.variables != given


def operator_handle(name: str) -> int:
    handle = ctypes.c_void_p()
    check_call(_LIB.NNGetOpHandle(c_str(name), ctypes.byref(handle)))
    assert handle.value is not None
    return handle.value


# --------------------------------------------------------------------------------------------- our side


def record_of(given: Case) -> OperatorFacts:
    facts = FACTS.get(given.op)
    assert facts is not None
    return facts


def roles_of(given: Case, graph: Graph) -> list[InputRole]:
    node = graph.nodes[-1]
    return [record_of(given).role(number, node.attrs) for number in range(len(node.inputs))]


def assign(
    graph: Graph, roles: list[InputRole], *, data: DType, index: DType, other: DType
) -> dict[str, DType]:
    """Give every input a dtype that its role allows."""
    by_role = {InputRole.PARAM_FP32: DType.FLOAT32, InputRole.INDEX: index}
    return {
        name: data if role.shares_dtype else by_role.get(role, other)
        for name, role in zip(input_names(graph), roles)
    }


CASE_IDS = [str(given) for given in CASES]
by_case = pytest.mark.parametrize("given", CASES, ids=CASE_IDS)


def test_every_record_has_a_case_or_a_reason() -> None:
    covered = {given.op for given in CASES} | set(WITHOUT_CASE)
    assert {facts.name for facts in FACTS.records()} == covered


def test_no_case_is_given_twice() -> None:
    assert len(set(CASE_IDS)) == len(CASES)


@pytest.mark.parametrize("facts", FACTS.records(), ids=lambda facts: facts.name)
def test_aliases_are_those_mxnet_registers(facts: OperatorFacts) -> None:
    handle = operator_handle(facts.name)
    for alias in facts.aliases:
        assert operator_handle(alias) == handle, f"{alias} is another operator than {facts.name}"


def test_no_alias_is_missing() -> None:
    handles = {operator_handle(facts.name): facts for facts in FACTS.records()}
    missing = {
        name: facts.name
        for name in get_all_registered_operators()
        if not name.startswith(("_np_", "_npi_", "_npx_"))
        for facts in [handles.get(operator_handle(name))]
        if facts is not None and name not in (facts.name, *facts.aliases)
    }
    assert missing == {}


@by_case
def test_name_is_canonical_and_inputs_come_in_order(given: Case) -> None:
    graph = build(given)
    assert graph.nodes[-1].op == given.op
    assert input_names(graph) == tuple(f"n_{name}" for name in given.inputs)


@by_case
def test_output_names_are_mxnets(given: Case) -> None:
    graph = build(given)
    names = mx.sym.load_json(write_symbol(graph)).list_outputs()
    facts, count = record_of(given), graph.nodes[-1].num_outputs
    assert names == [f"n_{facts.output_name(index, count)}" for index in range(count)]
    if count > 1:
        assert (names[0] == "n_output") is facts.first_output_named_output


@by_case
def test_inferred_dtypes_are_mxnets(given: Case) -> None:
    graph = build(given)
    roles = roles_of(given, graph)
    others = (DType.FLOAT32, DType.INT32, *LOW)
    assignments = [
        assign(graph, roles, data=data, index=index, other=other)
        for data, index, other in itertools.product((DType.FLOAT32, *LOW), given.index_dtypes, others)
    ]
    # Most operators have no input of the last two kinds, and few assignments then.
    distinct = [chosen for number, chosen in enumerate(assignments) if chosen not in assignments[:number]]
    for variables in distinct:
        ours = infer_dtypes(graph, variables)[len(graph.nodes) - 1]
        found = infer_with_mxnet(graph, variables)
        if found is None:
            assert ours == (None,) * len(ours), f"MXNet cannot tell the dtypes from {variables}"
            continue
        assert found.variables == variables, "MXNet put other dtypes in their place"
        assert ours == found.outputs, variables


@by_case
def test_inputs_that_share_a_dtype_must(given: Case) -> None:
    graph = build(given)
    roles = roles_of(given, graph)
    names = input_names(graph)
    sharing = [number for number, role in enumerate(roles) if role.shares_dtype]
    if len(sharing) < 2:
        return
    for data, strange in itertools.permutations((DType.FLOAT32, *LOW), 2):
        variables = assign(graph, roles, data=data, index=given.index_dtypes[0], other=DType.INT32)
        for number in sharing:
            rejected = refuses(graph, {**variables, names[number]: strange})
            assert rejected is ((given.op, number) not in LENIENT_INFERENCE), (names[number], data, strange)


@by_case
def test_float32_inputs_must_be_float32(given: Case) -> None:
    graph = build(given)
    roles = roles_of(given, graph)
    names = input_names(graph)
    for low in LOW:
        variables = assign(graph, roles, data=low, index=given.index_dtypes[0], other=DType.INT32)
        for number, role in enumerate(roles):
            if role is InputRole.PARAM_FP32 and (given.op, number) not in LENIENT_INFERENCE:
                assert refuses(graph, {**variables, names[number]: low}), (names[number], low)


def test_statistics_follow_float64_data() -> None:
    graph = build(case("BatchNorm", "data gamma beta moving_mean moving_var", output_mean_var=True))
    variables = dict.fromkeys(input_names(graph), DType.FLOAT64)
    found = infer_with_mxnet(graph, variables)
    assert found is not None
    assert infer_dtypes(graph, variables)[-1] == found.outputs == (DType.FLOAT64,) * 3


@pytest.mark.parametrize(
    ("given", "number", "shapes"),
    [
        (
            case("_contrib_SyncBatchNorm", "data gamma beta moving_mean moving_var", key="k"),
            *(0, [(1, 2, 1, 1), (2,), (2,), (2,), (2,)]),
        ),
        (
            case("BatchNorm_v1", "data gamma beta moving_mean moving_var"),
            *(0, [(1, 2, 1, 1), (2,), (2,), (2,), (2,)]),
        ),
        (case("CTCLoss", "data label"), 0, [(4, 1, 3), (1, 1)]),
        (case("_contrib_index_copy", "old_tensor index_vector new_tensor"), 2, [(3, 2), (1,), (1, 2)]),
    ],
    ids=lambda value: value.op if isinstance(value, Case) else None,
)
def test_kernel_refuses_what_inference_lets_pass(
    given: Case, number: int, shapes: list[tuple[int, ...]]
) -> None:
    assert (given.op, number) in LENIENT_INFERENCE
    graph = build(given)
    names = input_names(graph)
    variables = {**dict.fromkeys(names, DType.FLOAT32), names[number]: DType.FLOAT16}
    assert not refuses(graph, variables)
    sym = mx.sym.load_json(write_symbol(graph))[0]
    arrays = {
        name: mx.nd.array(np.ones(shape), dtype=variables[name].numpy) for name, shape in zip(names, shapes)
    }
    auxs = {name: arrays.pop(name) for name in sym.list_auxiliary_states()}
    with pytest.raises(MXNetError):
        sym.bind(mx.cpu(), arrays, aux_states=auxs).forward()[0].asnumpy()
