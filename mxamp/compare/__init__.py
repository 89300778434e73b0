"""Compare a model with its conversion: fidelity of outputs and layers, and latency."""

from mxamp.compare.fidelity import Fidelity, LayerFidelity, OutputFidelity
from mxamp.compare.latency import LatencyComparison, alternate_latency
from mxamp.compare.measure import compare_models
from mxamp.compare.metrics import Distance, DistanceMeter, distance

__all__ = [
    "Distance",
    "DistanceMeter",
    "Fidelity",
    "LatencyComparison",
    "LayerFidelity",
    "OutputFidelity",
    "alternate_latency",
    "compare_models",
    "distance",
]
