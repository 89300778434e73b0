"""Backends: what is true of a runtime on a kind of device, whatever the machine is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Collection, Mapping, Sequence

from mxamp.graph.graph import Entry, Graph, Use
from mxamp.targets.fusion_defect import LostBranch, handed_on, lost_branches, order_of_readers_matters
from mxamp.targets.kept_weights import layers_of_computed_weights
from mxamp.targets.memory_defect import references
from mxamp.targets.order_defect import misread_orders

MXNET = "mxnet"

RUNTIMES: Mapping[str, str] = {
    MXNET: "MXNet",
    "onnxruntime-cuda": "ONNX Runtime's CUDA provider",
    "onnxruntime-arm": "ONNX Runtime's CPU provider on ARM",
    "tensorrt": "TensorRT",
    "openvino": "OpenVINO",
}
"""What a target calls the runtime that it is for -> what people do."""


@dataclass(frozen=True)
class Backend:
    """What runs a model that was converted for a target, and what it does otherwise than the graph says.

    Another runtime's defects belong here, behind the same questions.

    Attributes
    ----------
    runtime
        One of :data:`RUNTIMES`.
    device
        ``"cpu"`` or ``"gpu"``.
    """

    runtime: str
    device: str

    @property
    def label(self) -> str:
        """What people call the runtime."""
        return RUNTIMES[self.runtime]

    @property
    def context(self) -> str:
        """What MXNet calls the device, where models are run to be measured or compared."""
        return "gpu(0)" if self.device == "gpu" else "cpu"

    @property
    def lacks_norms_of_two_dtypes(self) -> bool:
        """Whether an ONNX file for it has no BatchNormalization of low data and float32 statistics.

        ONNX Runtime's CUDA provider has no kernel of it (its OperatorKernels.md), so that it runs on the CPU,
        and OpenVINO refuses it. Who decides for MXNet and exports does not say who reads the file.
        """
        return self.runtime != "tensorrt"

    @property
    def lacks_max_pool_of_opset_22(self) -> bool:
        """Whether it has no MaxPool of ONNX's opset 22, in any dtype (microsoft/onnxruntime issue 26393)."""
        return self.runtime == "onnxruntime-cuda"

    @property
    def rounds_parameters(self) -> bool:
        """Whether it rounds parameters itself as it loads a model, those that it computes low with.

        OpenVINO adds biases as they are, and reads some weights in float32 that low nodes have: what was
        rounded before has lost what these need.
        """
        return self.runtime == "openvino"

    @property
    def has_onednn(self) -> bool:
        """Whether models meet MXNet's oneDNN fusion; those of other runtimes do when they are compared."""
        return self.device == "cpu"

    def lost_branches(self, graph: Graph) -> Sequence[LostBranch]:
        """Return every place where fusion computes something else than the graph says."""
        return lost_branches(graph) if self.has_onednn else ()

    def layers_of_computed_weights(self, graph: Graph, params: Collection[str]) -> Sequence[int]:
        """Return the layers that fusion computes with weights of the first forward pass in every other."""
        return layers_of_computed_weights(graph, params) if self.has_onednn else ()

    def order_of_readers_matters(self, graph: Graph) -> bool:
        """Return whether casts may make fusion lose what it does not lose without them."""
        return self.has_onednn and order_of_readers_matters(graph)

    def handed_on(self, graph: Graph) -> Mapping[Entry, Entry]:
        """Return what is deleted before fusion -> the value that is read in its place."""
        return handed_on(graph) if self.has_onednn else {}

    def misread_orders(self, graph: Graph, is_plain: Callable[[int], bool]) -> Sequence[int]:
        """Return the operators behind which values in oneDNN's order are taken for plain ones."""
        return misread_orders(graph, is_plain) if self.has_onednn else ()

    def uncounted_references(self, graph: Graph) -> Sequence[Use]:
        """Return where shapes are read of tensors whose memory may be another's by then."""
        return references(graph) if self.has_onednn else ()
