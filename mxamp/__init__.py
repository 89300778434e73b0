"""mxamp: mixed precision for Apache MXNet 1.9 and GluonCV models."""

from mxamp.compare import Fidelity, compare_models
from mxamp.convert import convert_model, convert_symbol
from mxamp.convert_block import convert_block
from mxamp.dtypes import DType
from mxamp.errors import MxampError, MxampWarning
from mxamp.model import Model, load
from mxamp.policy import Color, NodeView, Policy
from mxamp.report.model import Report
from mxamp.targets import Target
from mxamp.version import __version__

convert_hybrid_block = convert_block  # the name in mx.contrib.amp

__all__ = [
    "Color",
    "DType",
    "Fidelity",
    "Model",
    "MxampError",
    "MxampWarning",
    "NodeView",
    "Policy",
    "Report",
    "Target",
    "__version__",
    "compare_models",
    "convert_block",
    "convert_hybrid_block",
    "convert_model",
    "convert_symbol",
    "load",
]
