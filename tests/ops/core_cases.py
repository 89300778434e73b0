"""Hand-written calls of the operators that the converter's models are made of."""

from __future__ import annotations

from typing import Any, Iterator

from mxamp.dtypes import DType
from tests.ops.operator_cases import Case, case

__all__ = ["CASES"]


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
