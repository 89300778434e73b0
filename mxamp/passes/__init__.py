"""Passes: rewrites of the graph, each verified after it ran."""

from mxamp.passes.activations import RewriteActivations
from mxamp.passes.activations_apart import ActivationsApart
from mxamp.passes.base import Pass, run_passes
from mxamp.passes.best_boxes import RewriteBestBoxes
from mxamp.passes.bilinear_resize import RewriteBilinearResize
from mxamp.passes.bilinear_upsampling import RewriteBilinearUpsampling
from mxamp.passes.blocks_for_pooling import BlocksForPooling
from mxamp.passes.bounds import RewriteBounds
from mxamp.passes.channel_slices import SliceChannels
from mxamp.passes.columns import RewriteColumns
from mxamp.passes.common_subexpressions import MergeCommonSubexpressions
from mxamp.passes.convolve_batch_norm import ConvolveBatchNorm
from mxamp.passes.deconvolution_bias import SeparateDeconvolutionBias
from mxamp.passes.dense_convolution import RewriteDenseConvolution
from mxamp.passes.dense_input import SeparateDenseInput
from mxamp.passes.dense_layer import RewriteDenseLayer
from mxamp.passes.depthwise_sequences import RewriteDepthwiseSequences
from mxamp.passes.drop_no_ops import DropNoOps
from mxamp.passes.emulate import EmulateLowPrecision, Emulation, RoundedOnce
from mxamp.passes.emulated_graph import InsertedRound
from mxamp.passes.even_channels import EvenChannels
from mxamp.passes.explicit_padding import ExplicitPadding
from mxamp.passes.few_axes import MoveFewAxes
from mxamp.passes.few_channels import SeparateFewChannels
from mxamp.passes.fold_batch_norm import FoldBatchNorm
from mxamp.passes.fold_bias import FoldBias
from mxamp.passes.fold_constants import FoldConstants
from mxamp.passes.fold_padding import FoldPadding
from mxamp.passes.fold_scale import FoldScale
from mxamp.passes.full_width import RewriteFullWidth
from mxamp.passes.gelu import RewriteGelu
from mxamp.passes.global_pooling import RewriteGlobalPooling
from mxamp.passes.group_norm import RewriteGroupNorm
from mxamp.passes.hard_sigmoid import RewriteHardSigmoid
from mxamp.passes.hard_swish import RewriteHardSwish
from mxamp.passes.insert_casts import InsertCasts, offline_dtypes
from mxamp.passes.instance_norm import RewriteInstanceNorm
from mxamp.passes.keep_branches import KeepBranches
from mxamp.passes.keep_order import KeepOrder
from mxamp.passes.keep_planned_branches import KeepPlannedBranches
from mxamp.passes.keep_references import KeepReferences
from mxamp.passes.known_choice import DropKnownChoices
from mxamp.passes.last_axis_concat import RewriteLastAxisConcat
from mxamp.passes.last_axis_norm import RewriteLastAxisNorm
from mxamp.passes.last_axis_softmax import RewriteLastAxisSoftmax
from mxamp.passes.last_axis_split import RewriteLastAxisSplit
from mxamp.passes.last_axis_sum import RewriteLastAxisSum
from mxamp.passes.layer_norm import RewriteLayerNorm
from mxamp.passes.leaky_relu import RewriteLeakyReLU
from mxamp.passes.move_transposes import MoveTransposes
from mxamp.passes.nearest_upsampling import RewriteNearestUpsampling
from mxamp.passes.needless_casts import DropNeedlessCasts
from mxamp.passes.one_spelling import OneSpelling
from mxamp.passes.pad_channels import PadChannels
from mxamp.passes.pixel_shuffle import RewritePixelShuffle
from mxamp.passes.plain_concat import PlainConcat
from mxamp.passes.plain_for_low_pooling import PlainForLowPooling
from mxamp.passes.plain_for_pooling import PlainForPooling
from mxamp.passes.plain_softmax import PlainSoftmax
from mxamp.passes.plain_sums import PlainSums
from mxamp.passes.planned import PlannedPass
from mxamp.passes.prelu import RewritePReLU
from mxamp.passes.preparation import NodeRewrite, PreparationPass
from mxamp.passes.records import (
    InsertedCast,
    InsertedCasts,
    PlannedNode,
    PreparedNode,
    RescaledEntries,
    RewrittenMask,
)
from mxamp.passes.relu import RewriteRelu
from mxamp.passes.rescale import RescaleOverflows
from mxamp.passes.rewrite_masks import RewriteMasks
from mxamp.passes.scale_and_shift import RewriteScaleAndShift
from mxamp.passes.second_axis_max import RewriteSecondAxisMax
from mxamp.passes.second_axis_sum import RewriteSecondAxisSum
from mxamp.passes.separate_parts import SeparateParts
from mxamp.passes.sequence_pooling import RewriteSequencePooling
from mxamp.passes.share_layout import ShareLayout
from mxamp.passes.short_rows import SliceShortRows
from mxamp.passes.short_sums import RewriteShortSums
from mxamp.passes.skipped_places import SkippedPlaces
from mxamp.passes.state import Done, State
from mxamp.passes.stretch_axis import StretchAxis
from mxamp.passes.summed_products import RewriteSummedProducts
from mxamp.passes.take_rows import TakeRows
from mxamp.passes.uneven_padding import UnevenPadding
from mxamp.passes.wide_pooling import WidePooling

__all__ = [
    "ActivationsApart",
    "BlocksForPooling",
    "ConvolveBatchNorm",
    "Done",
    "DropKnownChoices",
    "DropNeedlessCasts",
    "DropNoOps",
    "EmulateLowPrecision",
    "Emulation",
    "EvenChannels",
    "ExplicitPadding",
    "FoldBatchNorm",
    "FoldBias",
    "FoldConstants",
    "FoldPadding",
    "FoldScale",
    "InsertCasts",
    "InsertedCast",
    "InsertedCasts",
    "InsertedRound",
    "KeepBranches",
    "KeepOrder",
    "KeepPlannedBranches",
    "KeepReferences",
    "MergeCommonSubexpressions",
    "MoveFewAxes",
    "MoveTransposes",
    "NodeRewrite",
    "OneSpelling",
    "PadChannels",
    "Pass",
    "PlainConcat",
    "PlainForLowPooling",
    "PlainForPooling",
    "PlainSoftmax",
    "PlainSums",
    "PlannedNode",
    "PlannedPass",
    "PreparationPass",
    "PreparedNode",
    "RescaleOverflows",
    "RescaledEntries",
    "RewriteActivations",
    "RewriteBestBoxes",
    "RewriteBilinearResize",
    "RewriteBilinearUpsampling",
    "RewriteBounds",
    "RewriteColumns",
    "RewriteDenseConvolution",
    "RewriteDenseLayer",
    "RewriteDepthwiseSequences",
    "RewriteFullWidth",
    "RewriteGelu",
    "RewriteGlobalPooling",
    "RewriteGroupNorm",
    "RewriteHardSigmoid",
    "RewriteHardSwish",
    "RewriteInstanceNorm",
    "RewriteLastAxisConcat",
    "RewriteLastAxisNorm",
    "RewriteLastAxisSoftmax",
    "RewriteLastAxisSplit",
    "RewriteLastAxisSum",
    "RewriteLayerNorm",
    "RewriteLeakyReLU",
    "RewriteMasks",
    "RewriteNearestUpsampling",
    "RewritePReLU",
    "RewritePixelShuffle",
    "RewriteRelu",
    "RewriteScaleAndShift",
    "RewriteSecondAxisMax",
    "RewriteSecondAxisSum",
    "RewriteSequencePooling",
    "RewriteShortSums",
    "RewriteSummedProducts",
    "RewrittenMask",
    "RoundedOnce",
    "SeparateDeconvolutionBias",
    "SeparateDenseInput",
    "SeparateFewChannels",
    "SeparateParts",
    "ShareLayout",
    "SkippedPlaces",
    "SliceChannels",
    "SliceShortRows",
    "State",
    "StretchAxis",
    "TakeRows",
    "UnevenPadding",
    "WidePooling",
    "offline_dtypes",
    "run_passes",
]
