"""Compare a model with its conversion: fidelity of outputs and layers, and latency."""

from mxamp.compare.candidates import CandidateComparison, compare_candidates
from mxamp.compare.fidelity import Fidelity, LayerFidelity, OutputFidelity
from mxamp.compare.latency import LatencyComparison, alternate_latency
from mxamp.compare.measure import compare_models
from mxamp.compare.metrics import Distance, DistanceMeter, distance
from mxamp.compare.rounding_losses import RoundingLoss, rounding_losses

__all__ = [
    "CandidateComparison",
    "Distance",
    "DistanceMeter",
    "Fidelity",
    "LatencyComparison",
    "LayerFidelity",
    "OutputFidelity",
    "RoundingLoss",
    "alternate_latency",
    "compare_candidates",
    "compare_models",
    "distance",
    "rounding_losses",
]
