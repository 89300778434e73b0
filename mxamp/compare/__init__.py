"""Compare a model with its conversion: fidelity of outputs and layers, and latency."""

from mxamp.compare.candidates import CandidateComparison, compare_candidates
from mxamp.compare.fidelity import Fidelity, LayerFidelity, OutputFidelity
from mxamp.compare.measure import compare_models
from mxamp.compare.metrics import Distance, DistanceMeter, distance
from mxamp.compare.rounding_losses import RoundingLoss, rounding_losses

__all__ = [
    "CandidateComparison",
    "Distance",
    "DistanceMeter",
    "Fidelity",
    "LayerFidelity",
    "OutputFidelity",
    "RoundingLoss",
    "compare_candidates",
    "compare_models",
    "distance",
    "rounding_losses",
]
