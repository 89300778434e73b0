"""OpenVINO: its own files, with our decisions in them, and running files in it."""

from mxamp.openvino.export import OpenvinoExport, export_openvino_graph
from mxamp.openvino.session import OpenvinoSession

__all__ = ["OpenvinoExport", "OpenvinoSession", "export_openvino_graph"]
