"""Layers: convolutions, dense layers, normalisation, activations, pooling, resampling, recurrence, losses."""

from __future__ import annotations

from typing import Mapping

from mxamp.dtypes import DType
from mxamp.ops.attributes import integers, is_true
from mxamp.ops.roles import Averaging, InputRole, SameAsData, ValueKind
from mxamp.ops.tables._notation import SAME, attribute, record, roles

COMPUTE = ValueKind.COMPUTE
MOVE = ValueKind.MOVE

FP32 = DType.FLOAT32
STATISTICS = SameAsData.AT_LEAST_FLOAT32

_WITH_CELL = roles("data data data data index")
_WITHOUT_CELL = roles("data data data index")


def _rnn_roles(attrs: Mapping[str, str]) -> tuple[InputRole, ...]:
    """Return the roles of data, parameters, state, cell state (LSTM alone) and sequence lengths (if used)."""
    return _WITH_CELL if attrs.get("mode") == "lstm" else _WITHOUT_CELL


def _averaged_by_pooling(attrs: Mapping[str, str]) -> Averaging:
    if attrs.get("pool_type", "max") != "avg":
        return Averaging.NOTHING
    return Averaging.IMAGE if is_true(attrs, "global_pool", default=False) else Averaging.WINDOW


def _refused_by_pooling(attrs: Mapping[str, str]) -> frozenset[DType]:
    """Return bfloat16 for a global pooling that has no kernel: oneDNN does not get to see it."""
    return frozenset() if integers(attrs.get("kernel", "")) else frozenset({DType.BFLOAT16})


RECORDS = (
    # data, weight, bias
    record("Convolution _npx_convolution", "data data data", COMPUTE, multiplies=True),
    record("Convolution_v1", "data data data", COMPUTE, multiplies=True),
    record("Deconvolution _npx_deconvolution", "data data data", COMPUTE, multiplies=True),
    record(
        "FullyConnected _sparse_FullyConnected _npx_fully_connected",
        "data data data",
        COMPUTE,
        multiplies=True,
        is_dense=True,
    ),
    # data, offset, (mask,) weight, bias. The sampling position h + offset is computed in the data's dtype.
    record("_contrib_DeformableConvolution", "data coord data data", COMPUTE, multiplies=True),
    record("_contrib_ModulatedDeformableConvolution", "data coord data data data", COMPUTE, multiplies=True),
    record("dot _sparse_dot", "data data", COMPUTE, multiplies=True),
    record("batch_dot _npx_batch_dot", "data data", COMPUTE, multiplies=True),
    record("khatri_rao", "data*", COMPUTE, multiplies=True),
    record(
        *("RNN _npx_rnn", "data data data data index", COMPUTE),
        inputs_by=_rnn_roles,
        named="output state_output statecell_output",
        multiplies=True,
    ),
    # data, gamma, beta, moving mean, moving variance: the last four are FP32 for FP16 and BF16 data
    # (BatchNormType in src/operator/nn/batch_norm.cc).
    record(
        *("BatchNorm _npx_batch_norm", "data fp32 fp32 fp32 fp32", COMPUTE),
        out=(SAME, STATISTICS),
        named="output mean var",
    ),
    # A fourth, hidden output: the mask that backward needs.
    record(
        *("_contrib_BatchNormWithReLU", "data fp32 fp32 fp32 fp32", COMPUTE),
        out=(SAME, STATISTICS),
        named="output mean var workspace",
    ),
    # Type inference lets their data be FP16, but the kernels read every array as FP32
    # (get<xpu, 4, real_t> in src/operator/contrib/sync_batch_norm-inl.h, src/operator/batch_norm_v1-inl.h).
    record(
        *("_contrib_SyncBatchNorm", "fp32 fp32 fp32 fp32 fp32", COMPUTE), out=FP32, named="output mean var"
    ),
    record("BatchNorm_v1", "fp32 fp32 fp32 fp32 fp32", COMPUTE, out=FP32, named="output mean var"),
    # These, unlike BatchNorm, want gamma and beta in the data's dtype.
    record("LayerNorm _npx_layer_norm", "data data data", COMPUTE, named="output mean std"),
    record("GroupNorm", "data data data", COMPUTE, named="output mean std"),
    record("InstanceNorm", "fp32 fp32 fp32", COMPUTE, out=FP32, named="output mean var"),
    record("L2Normalization", "data", COMPUTE, named="output norm"),
    record("LRN", "data", COMPUTE, named="output tmp_norm"),
    record("Activation _npx_activation", "data", COMPUTE),
    # data, gamma (act_type=prelu). Two outputs with act_type=rrelu.
    record("LeakyReLU _npx_leaky_relu", "data data", COMPUTE, named="output mask"),
    # Of a position, as of its maximum with 0, or of what is scaled, shifted and clipped: other spellings.
    record("relu _sparse_relu", "data", ValueKind.AFFINE),
    record("hard_sigmoid", "data", ValueKind.AFFINE),
    record("sigmoid _sparse_sigmoid", "data", COMPUTE),
    record("softsign", "data", COMPUTE),
    # data, length (use_length=True), which must be of an integer dtype when it runs.
    record("softmax _npx_softmax", "data index", COMPUTE, out=attribute("dtype", SAME)),
    record("log_softmax _npx_log_softmax", "data", COMPUTE, out=attribute("dtype", SAME)),
    record("softmin", "data", COMPUTE, out=attribute("dtype", SAME)),
    record("SoftmaxActivation", "data", COMPUTE),
    # Forward never looks at the labels of these, yet their dtype must be the data's.
    record("SoftmaxOutput Softmax", "data like_same", COMPUTE),
    record("LinearRegressionOutput _sparse_LinearRegressionOutput", "data like_same", MOVE),
    record("MAERegressionOutput _sparse_MAERegressionOutput", "data like_same", MOVE),
    record("LogisticRegressionOutput _sparse_LogisticRegressionOutput", "data like_same", COMPUTE),
    record("SVMOutput", "data like_same", MOVE),
    # Class numbers, read as the data's dtype.
    record("softmax_cross_entropy", "data coord", COMPUTE),
    # data, label, data lengths, label lengths. The kernel reads the activations as FP32.
    record(
        *("CTCLoss _contrib_CTCLoss _contrib_ctc_loss ctc_loss", "fp32 index index index", COMPUTE), out=FP32
    ),
    record("MakeLoss", "data", MOVE),
    record("make_loss _sparse_make_loss", "data", MOVE, named="loss"),
    # A second, hidden output: oneDNN's workspace of positions.
    record(
        *("Pooling _npx_pooling", "data", COMPUTE),
        out=(SAME, DType.INT32),
        named="output workspace",
        averaging_by_attributes=_averaged_by_pooling,
        refuses_by_attributes=_refused_by_pooling,
    ),
    record("Pooling_v1", "data", COMPUTE),
    record("_contrib_AdaptiveAvgPooling2D", "data", COMPUTE),
    # data, like (mode=like). It has no type inference of its own, so all its dtypes are made one.
    record("_contrib_BilinearResize2D", "data like_same", COMPUTE),
    record("UpSampling", "data*", COMPUTE),
    record(
        "ROIPooling _npx_roi_pooling", "data coord", COMPUTE, out=(SAME, DType.INT32), named="output maxidx"
    ),
    record("_contrib_ROIAlign", "data coord", COMPUTE),
    record("_contrib_RROIAlign", "data coord", COMPUTE),
    record("_contrib_PSROIPooling", "data coord", COMPUTE),
    record("BilinearSampler", "data coord", COMPUTE, named="output tmp"),
    record("GridGenerator", "coord", COMPUTE, named="output grid_dst", seeds=(0,)),
    record("SpatialTransformer", "data coord", COMPUTE, named="output grid_dst grid_src"),
    record("Correlation", "data data", COMPUTE, named="output tmp1 tmp2"),
    record("Dropout _npx_dropout", "data", MOVE, named="output mask"),
    record("Embedding _sparse_Embedding _npx_embedding", "index data", MOVE),
    record("_contrib_SparseEmbedding", "index data", MOVE),
    record("Pad pad", "data", MOVE),
    # Implemented in FP32 alone; the second input only gives the shape.
    record("Crop", "fp32*", MOVE, out=FP32),
    record("SequenceMask _npx_sequence_mask", "data index", MOVE),
    record("SequenceLast", "data index", MOVE),
    record("SequenceReverse", "data index", MOVE),
    record("_contrib_div_sqrt_dim", "data", COMPUTE),
    record("_contrib_interleaved_matmul_selfatt_qk", "data", COMPUTE, multiplies=True),
    record("_contrib_interleaved_matmul_selfatt_valatt", "data data", COMPUTE, multiplies=True),
    record("_contrib_interleaved_matmul_encdec_qk", "data data", COMPUTE, multiplies=True),
    record("_contrib_interleaved_matmul_encdec_valatt", "data data", COMPUTE, multiplies=True),
    # Image pipelines exported with the network. to_tensor turns 0..255, usually uint8, into FP32 0..1.
    record("_image_to_tensor _npx__image_to_tensor", "free", COMPUTE, out=FP32),
    record("_image_normalize _npx__image_normalize", "data", COMPUTE),
    record("_image_resize _npx__image_resize", "data", COMPUTE),
    record("_image_crop _npx__image_crop", "data", MOVE),
)
