"""How fast a model can be that may lose so much: prices of roundings, the curve, and the choice on it."""

from mxamp.tuning.sensitivity import NodeSensitivity, Sensitivity, sensitivity
from mxamp.tuning.tune import tune
from mxamp.tuning.tuning import Point, Tuning

__all__ = ["NodeSensitivity", "Point", "Sensitivity", "Tuning", "sensitivity", "tune"]
