"""Passes: rewrites of the graph, each verified after it ran."""

from mxamp.passes.base import GraphPass, Pipeline
from mxamp.passes.common_subexpressions import MergeCommonSubexpressions
from mxamp.passes.drop_no_ops import DropNoOps
from mxamp.passes.emulate import EmulateLowPrecision, Emulation, InsertedRound
from mxamp.passes.fold_batch_norm import FoldBatchNorm
from mxamp.passes.hard_sigmoid import RewriteHardSigmoid
from mxamp.passes.insert_casts import InsertCasts, InsertedCast, StoredParameter, offline_dtypes
from mxamp.passes.keep_branches import KeepBranches
from mxamp.passes.preparation import PREPARATIONS, Preparation, check_prepare, prepare_graph
from mxamp.passes.prepare import PreparationPass, PreparedNode
from mxamp.passes.relu import RewriteRelu
from mxamp.passes.rewrite_masks import RewriteMasks, RewrittenMask

__all__ = [
    "PREPARATIONS",
    "DropNoOps",
    "EmulateLowPrecision",
    "Emulation",
    "FoldBatchNorm",
    "GraphPass",
    "InsertCasts",
    "InsertedCast",
    "InsertedRound",
    "KeepBranches",
    "MergeCommonSubexpressions",
    "Pipeline",
    "Preparation",
    "PreparationPass",
    "PreparedNode",
    "RewriteHardSigmoid",
    "RewriteMasks",
    "RewriteRelu",
    "RewrittenMask",
    "StoredParameter",
    "check_prepare",
    "offline_dtypes",
    "prepare_graph",
]
