"""A model: its graph, parameters and report, kept whole; its files, and what is recorded of them."""

from mxamp.model.given import graph_of
from mxamp.model.load import load
from mxamp.model.model import Model
from mxamp.model.paths import PathLike, model_paths

__all__ = ["Model", "PathLike", "graph_of", "load", "model_paths"]
