"""Write bilinear upsampling as the operator that the backend has kernels for."""

from __future__ import annotations

import math

from mxamp.dtypes import DType
from mxamp.ops.attributes import integers
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite, own_attributes
from mxamp.passes.state import State

_INPUTS = 2
"""Data and weight."""


class RewriteBilinearUpsampling(NodeRewrite):
    """Replace bilinear UpSampling by the Deconvolution that it is.

    Before::

        x -> UpSampling {scale: 2, sample_type: bilinear, num_filter: channels}(weight) -> y

    After::

        x -> Deconvolution {kernel: (4, 4), stride: (2, 2), pad: (1, 1), num_group: channels}(weight) -> y

    Refuses: other kinds of upsampling; attributes that are not as they must be; other dtypes than float32;
    images that may be empty, for which oneDNN raises; a node that a rule of the user's picks; targets that do
    not name the pass; the bodies of control flow. The node may be a graph output, for its name stays.

    Notes
    -----
    Why: MXNet computes it as a Deconvolution of its own, with one matrix product for each channel, while
    oneDNN has depthwise kernels, in bfloat16 as well. Twice as large, 256 channels of 16 x 16 take 10.7 ms as
    UpSampling and 0.12 as a Deconvolution, 64 of 32 x 32 10.8 and 0.19; eight times as large, 21 of 32 x 32
    54 and 4.8 (AMD EPYC, one thread, FP32).

    The same up to the order of summation, of four products a value with MXNet's bilinear weights. Linear in
    nodes.

    References
    ----------
    ``UpSamplingBilinear`` in src/operator/nn/upsampling-inl.h of apache/mxnet 1.9.1: kernel, stride and
    padding by the scale.
    """

    step = "bilinear_upsampling"
    operators = frozenset({"UpSampling"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one upsampling."""
        node = state.graph.nodes[position]
        scale, filters = (integers(node.attrs.get(key, "")) for key in ("scale", "num_filter"))
        if (
            node.attrs.get("sample_type") != "bilinear"
            or len(node.inputs) != _INPUTS
            or scale is None
            or filters is None
            or len(scale) != 1
            or len(filters) != 1
            or min(*scale, *filters) < 1
            or state.certain_dtypes[position][0] is not DType.FLOAT32
            or node.inputs[0].node not in state.never_empty
        ):
            return None
        side, pad = 2 * scale[0] - scale[0] % 2, math.ceil((scale[0] - 1) / 2)
        attrs = {
            **own_attributes(node),
            **{"kernel": str((side, side)), "stride": str((scale[0], scale[0])), "pad": str((pad, pad))},
            **{"num_filter": str(filters[0]), "num_group": str(filters[0]), "no_bias": "True"},
        }
        edit.replace(position, node._replace(op="Deconvolution", attrs=attrs))
        return "a depthwise Deconvolution is the same, with a kernel of the backend"
