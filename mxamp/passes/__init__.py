"""Passes: rewrites of the graph, each verified after it ran."""

from mxamp.passes.base import GraphPass, Pipeline
from mxamp.passes.common_subexpressions import MergeCommonSubexpressions
from mxamp.passes.convolve_batch_norm import ConvolveBatchNorm
from mxamp.passes.dense_input import SeparateDenseInput
from mxamp.passes.drop_no_ops import DropNoOps
from mxamp.passes.emulate import EmulateLowPrecision, Emulation, InsertedRound
from mxamp.passes.fold_batch_norm import FoldBatchNorm, FoldedNorms
from mxamp.passes.fold_constants import FoldConstants
from mxamp.passes.fold_padding import FoldPadding
from mxamp.passes.global_pooling import RewriteGlobalPooling
from mxamp.passes.hard_sigmoid import RewriteHardSigmoid
from mxamp.passes.insert_casts import InsertCasts, InsertedCast, StoredParameter, offline_dtypes
from mxamp.passes.instance_norm import RewriteInstanceNorm
from mxamp.passes.keep_branches import KeepBranches
from mxamp.passes.one_spelling import OneSpelling
from mxamp.passes.pad_channels import PadChannels
from mxamp.passes.prelu import RewritePReLU
from mxamp.passes.preparation import PREPARATIONS, Preparation, check_prepare, prepare_graph
from mxamp.passes.prepare import PreparationPass, PreparedNode
from mxamp.passes.relu import RewriteRelu
from mxamp.passes.rewrite_masks import RewriteMasks, RewrittenMask
from mxamp.passes.share_layout import ShareLayout
from mxamp.passes.short_sums import RewriteShortSums

__all__ = [
    "PREPARATIONS",
    "ConvolveBatchNorm",
    "DropNoOps",
    "EmulateLowPrecision",
    "Emulation",
    "FoldBatchNorm",
    "FoldConstants",
    "FoldPadding",
    "FoldedNorms",
    "GraphPass",
    "InsertCasts",
    "InsertedCast",
    "InsertedRound",
    "KeepBranches",
    "MergeCommonSubexpressions",
    "OneSpelling",
    "PadChannels",
    "Pipeline",
    "Preparation",
    "PreparationPass",
    "PreparedNode",
    "RewriteGlobalPooling",
    "RewriteHardSigmoid",
    "RewriteInstanceNorm",
    "RewriteMasks",
    "RewritePReLU",
    "RewriteRelu",
    "RewriteShortSums",
    "RewrittenMask",
    "SeparateDenseInput",
    "ShareLayout",
    "StoredParameter",
    "check_prepare",
    "offline_dtypes",
    "prepare_graph",
]
