"""What a model's values are on samples of its data, and what a conversion does with it."""

from mxamp.calibration.calibration import Calibration
from mxamp.calibration.compensate import Compensation
from mxamp.calibration.moments import Moments
from mxamp.calibration.record import EntryName, ModelRecord
from mxamp.calibration.run import calibrate
from mxamp.calibration.samples import Batch, DataDescription, Samples
from mxamp.calibration.statistics import EntryStatistics

__all__ = [
    "Batch",
    "Calibration",
    "Compensation",
    "DataDescription",
    "EntryName",
    "EntryStatistics",
    "ModelRecord",
    "Moments",
    "Samples",
    "calibrate",
]
