"""Races between runtimes: models and files in MXNet, ONNX Runtime and OpenVINO, by turns on this machine."""

from mxamp.racing.result import RaceEntry, RaceResult
from mxamp.racing.run import race

__all__ = ["RaceEntry", "RaceResult", "race"]
