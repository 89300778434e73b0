"""What to export and compare: all that a process elsewhere needs to know."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Mapping

from model_zoo_eval.registry import Case

__all__ = ["AMPLIFIES", "LIMIT", "ONNX", "PASSES", "RANKS", "SHORT_ONNX_SET", "OnnxJob"]

ONNX = "onnx"
"""The kind of a result, told from those of fidelity, which have none."""

PASSES, AMPLIFIES, RANKS = "passes", "amplifies", "ranks otherwise"

LIMIT = 1e-5
"""The largest relative L2 error of an output that is rounding: FP32, sums in another order."""

SHORT_ONNX_SET = (
    "mobilenet0.25",
    "mobilenetv3_small",
    "squeezenet1.1",
    "mobile_pose_mobilenetv3_small",
    "fcn_resnet50_voc",
    "ssd_300_mobilenet0.25_voc",
    "yolo3_mobilenet0.25_voc",
    "center_net_resnet18_v1b_dcnv2_voc",
    "siamrpn_alexnet_v2_otb15",
)
"""One of every kind that runs in seconds: what ``make verify-onnx-fp32`` takes."""


@dataclass(frozen=True)
class OnnxJob:
    """What to export and compare, and how.

    Attributes
    ----------
    name, form
        The case.
    seed
        Seed of random weights and inputs.
    """

    name: str
    form: str = ""
    seed: int = 0

    @property
    def case(self) -> Case:
        """The case."""
        return Case(self.name, self.form)

    def to_mapping(self) -> dict[str, Any]:
        """Return the job as plain data for JSON."""
        return {"kind": ONNX, **asdict(self)}

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> OnnxJob:
        """Return the job of :meth:`to_mapping`."""
        return cls(**{key: value for key, value in values.items() if key != "kind"})
