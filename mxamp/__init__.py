"""mxamp: mixed precision for Apache MXNet 1.9 and GluonCV models."""

from mxamp.convert import convert_model, convert_symbol
from mxamp.dtypes import DType
from mxamp.errors import MxampError, MxampWarning
from mxamp.model import Model, load
from mxamp.policy import Color, NodeView, Policy
from mxamp.report.model import Report
from mxamp.targets import Target
from mxamp.version import __version__

__all__ = [
    "Color",
    "DType",
    "Model",
    "MxampError",
    "MxampWarning",
    "NodeView",
    "Policy",
    "Report",
    "Target",
    "__version__",
    "convert_model",
    "convert_symbol",
    "load",
]
