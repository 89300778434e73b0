"""Hand-written calls of operators that few models hold."""

from __future__ import annotations

from typing import Any, Iterator

from mxamp.dtypes import DType
from tests.ops.operator_cases import Case, case

__all__ = ["CASES"]


def linear_algebra_cases() -> Iterator[Case]:
    for name in ("potrf", "potri", "gelqf", "inverse", "det", "slogdet", "sumlogdiag", "syevd"):
        yield case(f"_linalg_{name}", "A")
    for name in ("extractdiag", "extracttrian", "makediag", "maketrian"):
        yield case(f"_linalg_{name}", "A")
        yield case(f"_linalg_{name}", "A", offset=1)
    yield case("_linalg_gemm", "A B C")
    for name in ("gemm2", "trmm", "trsm"):
        yield case(f"_linalg_{name}", "A B")
    yield case("_linalg_syrk", "A", transpose=True)
    yield case("_contrib_fft", "data")
    yield case("_contrib_ifft", "data")


def statistics_cases() -> Iterator[Case]:
    densities = {
        "uniform": "sample low high",
        "normal": "sample mu sigma",
        "gamma": "sample alpha beta",
        "exponential": "sample lam",
        "poisson": "sample lam",
        "negative_binomial": "sample k p",
        "generalized_negative_binomial": "sample mu alpha",
        "dirichlet": "sample alpha",
    }
    for name, inputs in densities.items():
        yield case(f"_random_pdf_{name}", inputs)
        yield case(f"_random_pdf_{name}", inputs, is_log=True)
    yield case("_sample_unique_zipfian", "", range_max=10, shape=(2,))
    yield case("_histogram", "data bins")
    yield case("_histogram", "data", bin_cnt=3, range=(0, 1))
    inputs = "lda alpha beta state lags marks valid_length max_time"
    yield case("_contrib_hawkesll", inputs)._replace(index_dtypes=(DType.INT32,))


def seldom_cases() -> Iterator[Case]:
    pooled: dict[str, Any] = {"spatial_scale": 1, "output_dim": 1, "group_size": 1, "pooled_size": 1}
    yield case("_contrib_DeformablePSROIPooling", "data rois trans", **pooled)
    yield case("_contrib_DeformablePSROIPooling", "data rois", no_trans=True, **pooled)
    yield case("IdentityAttachKLSparseReg", "data moving_avg")
    yield case("_sparse_retain", "data indices")
    yield case("_CrossDeviceCopy", "v0")
    yield case("_image_flip_left_right", "data")
    yield case("_image_flip_top_bottom", "data")
    yield case("_image_adjust_lighting", "data", alpha=(1, 1, 1))
    yield case("_contrib_edge_id", "data u v")
    yield case("_contrib_dgl_adjacency", "data")
    for mapping in (False, True):
        yield case("_contrib_dgl_subgraph", "v0 v1", return_mapping=mapping)
        yield case("_contrib_dgl_graph_compact", "v0 v1", return_mapping=mapping, graph_sizes=(1,))


def quantization_cases() -> Iterator[Case]:
    for dtype in ("int8", "uint8"):
        yield case("_contrib_quantize", "data min_range max_range", out_type=dtype)
    yield case("_contrib_quantize", "data min_range max_range")
    yield case("_contrib_quantize_asym", "data")
    for op, inputs in (
        ("_contrib_quantize_v2", "data"),
        ("_contrib_requantize", "data min_range max_range"),
    ):
        yield case(op, inputs)
        yield case(op, inputs, out_type="uint8")
        yield case(op, inputs, out_type="auto")
        yield case(op, inputs, out_type="auto", min_calib_range=0.0, max_calib_range=1.0)
        yield case(op, inputs, out_type="auto", min_calib_range=-1.0, max_calib_range=1.0)
    yield case("_contrib_dequantize", "data min_range max_range")
    yield case("_contrib_calibrate_entropy", "hist hist_edges")
    yield case("_contrib_quantized_act", "data min_data max_data", act_type="relu")
    yield case("_contrib_quantized_flatten", "data min_data max_data")
    yield case("_contrib_quantized_pooling", "data min_data max_data", kernel=(1, 1))
    yield case("_contrib_quantized_batch_norm", "data gamma beta moving_mean moving_var min_data max_data")
    plain = "data weight min_data max_data min_weight max_weight"
    biased = "data weight bias min_data max_data min_weight max_weight min_bias max_bias"
    for op, attrs in (
        ("_contrib_quantized_conv", {"kernel": (1, 1), "num_filter": 2}),
        ("_contrib_quantized_fully_connected", {"num_hidden": 2}),
    ):
        yield case(op, biased, **attrs)
        yield case(op, plain, no_bias=True, **attrs)
    summands = "lhs rhs lhs_min lhs_max rhs_min rhs_max"
    yield case("_contrib_quantized_elemwise_add", summands)
    yield case("_contrib_quantized_elemwise_mul", summands)
    yield case("_contrib_quantized_elemwise_mul", summands, enable_float_output=True)
    yield case("_contrib_quantized_elemwise_mul", summands, min_calib_range=0.0, max_calib_range=1.0)
    yield case(
        "_contrib_quantized_embedding", "data weight min_weight max_weight", input_dim=2, output_dim=2
    )._replace(index_dtypes=(DType.FLOAT32,))
    yield case(
        *("_contrib_quantized_rnn", "data parameters state state_cell min_data max_data"),
        **{"state_size": 2, "num_layers": 1, "mode": "lstm"},
    )


CASES = (*linear_algebra_cases(), *statistics_cases(), *seldom_cases(), *quantization_cases())
