"""Graphs stored as sparse matrices of INT64 edge numbers, for graph networks."""

from __future__ import annotations

from mxamp.dtypes import DType
from mxamp.ops.roles import ValueKind
from mxamp.ops.tables._notation import record

MOVE = ValueKind.MOVE

RECORDS = (
    # A graph, then the vertices; type inference wants INT64 for all.
    record("_contrib_dgl_adjacency", "kept", ValueKind.GENERATE, out=DType.FLOAT32),
    record("_contrib_dgl_subgraph", "kept*", MOVE, out=DType.INT64, seeds=(0, 1)),
    record("_contrib_dgl_graph_compact", "kept*", MOVE, out=DType.INT64, seeds=(0, 1)),
    # Edge numbers come out in the dtype of the matrix; the vertices may be of any dtype.
    record("_contrib_edge_id", "coord index index", MOVE, seeds=(0,)),
)
