"""mxamp: mixed precision for Apache MXNet 1.9 and GluonCV models.

::

    fp32 = mxamp.load("resnet50")  # or a Symbol with its parameters: convert_model(sym, args, auxs, ...)
    model = mxamp.convert_model(*fp32, "bfloat16", input_shapes=(1, 3, 224, 224))
    print(model.report)  # what became of every node, and why
    model.save("resnet50-bf16")  # plain MXNet files, which run where mxamp is not installed
    net = mxamp.convert_block(net, "float16")  # a Gluon block, for a GPU
    mxamp.compare_models(fp32, model, data)  # how far the outputs are from FP32's, layer by layer
    mxamp.evaluate(fp32, model, data, labels)  # how well both do
    mxamp.emulate(*fp32, "float16")  # the numbers of float16 where there is no GPU
    mxamp.tune(fp32, data, max_error=2e-3)  # the fastest conversion whose error is at most that
    mxamp.export_onnx(model, "resnet50.onnx", input_shapes=(1, 3, 224, 224))  # for other runtimes
"""

from __future__ import annotations

import logging as _logging

from mxamp.cli.interrupt import quiet_while_importing as _quiet_while_importing

_quiet_while_importing()

from mxamp.calibration import Calibration, calibrate
from mxamp.compare import (
    CandidateComparison,
    Fidelity,
    RoundingLoss,
    compare_candidates,
    compare_models,
    rounding_losses,
)
from mxamp.convert import convert_model, convert_symbol
from mxamp.convert_block import convert_block
from mxamp.decisions.own_operators import register_operator
from mxamp.dtypes import DType
from mxamp.emulate import emulate
from mxamp.errors import MxampError, MxampWarning
from mxamp.evaluation import Evaluation, evaluate
from mxamp.export import export_onnx, export_openvino
from mxamp.model import Model, load
from mxamp.model.verification import Verification, verify
from mxamp.onnx import OnnxExport, register_onnx_mapping
from mxamp.openvino import OpenvinoExport
from mxamp.ops import Registration
from mxamp.policy import Color, NodeView, Policy
from mxamp.racing import RaceResult, race
from mxamp.report.model import Report
from mxamp.targets import Target
from mxamp.tuning import Tuning, sensitivity, tune
from mxamp.version import __version__

convert_hybrid_block = convert_block  # the name in mx.contrib.amp

# A library says nothing unless the program that uses it wants to hear it.
_logging.getLogger("mxamp").addHandler(_logging.NullHandler())

__all__ = [
    "Calibration",
    "CandidateComparison",
    "Color",
    "DType",
    "Evaluation",
    "Fidelity",
    "Model",
    "MxampError",
    "MxampWarning",
    "NodeView",
    "OnnxExport",
    "OpenvinoExport",
    "Policy",
    "RaceResult",
    "Registration",
    "Report",
    "RoundingLoss",
    "Target",
    "Tuning",
    "Verification",
    "__version__",
    "calibrate",
    "compare_candidates",
    "compare_models",
    "convert_block",
    "convert_hybrid_block",
    "convert_model",
    "convert_symbol",
    "emulate",
    "evaluate",
    "export_onnx",
    "export_openvino",
    "load",
    "race",
    "register_onnx_mapping",
    "register_operator",
    "rounding_losses",
    "sensitivity",
    "tune",
    "verify",
]


def __dir__() -> list[str]:
    """Return the public names: submodules are imported by their own."""
    return __all__
