"""Passes: rewrites of the graph, each verified after it ran."""

from mxamp.passes.base import GraphPass, Pipeline
from mxamp.passes.fold_batch_norm import FoldBatchNorm
from mxamp.passes.insert_casts import InsertCasts, InsertedCast, StoredParameter

__all__ = ["FoldBatchNorm", "GraphPass", "InsertCasts", "InsertedCast", "Pipeline", "StoredParameter"]
