"""Passes: rewrites of the graph, each verified after it ran."""

from mxamp.passes.base import GraphPass, Pipeline
from mxamp.passes.insert_casts import InsertCasts, InsertedCast, StoredParameter

__all__ = ["GraphPass", "InsertCasts", "InsertedCast", "Pipeline", "StoredParameter"]
