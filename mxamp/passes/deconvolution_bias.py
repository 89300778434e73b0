"""Add a Deconvolution's bias by a kernel of the backend."""

from __future__ import annotations

import numpy as np

from mxamp.dtypes import DType
from mxamp.ops.attributes import integers
from mxamp.params.parameter import ArrayParameter
from mxamp.passes.edit import GraphEdit
from mxamp.passes.images import depthwise
from mxamp.passes.preparation import NodeRewrite, own_attributes
from mxamp.passes.state import State

_INPUTS = 3
"""Data, weight and bias."""

_FEWEST = 16
"""Filters; with fewer there is little to add, and a depthwise convolution works on blocks of so many."""


class SeparateDeconvolutionBias(NodeRewrite):
    """Take the bias out of a Deconvolution, and add it by a depthwise Convolution with ones.

    Before::

        x -> Deconvolution(weight, bias) -> y

    After::

        x -> Deconvolution(weight) -> depthwise 1x1 Convolution(ones, bias) -> y

    Refuses: kernels of one or three axes; data not certainly float32; fewer than 16 filters; a bias that is
    no parameter; a node that a rule of the user's picks; targets that do not name the pass; the bodies of
    control flow. The node may be a graph output, for its name stays.

    Notes
    -----
    Why: oneDNN's Deconvolution is called without the bias, and MXNet adds that in a loop over plain tensors,
    which takes longer than all the rest: from 128 channels of 128 x 128 to 64 of 256 x 256 (2x2, stride 2)
    the layer takes 30.5 ms with and 12.0 without in float32, and 89 and 5.7 in bfloat16 (AMD EPYC, one
    thread, the other core busy). The Convolution reads and writes blocks, and a BatchNorm and a relu behind
    become part of it.

    Bit-exact in float32 for all values, infinities and NaN among them: each product is of one, and the sum
    is the one that there was. In low precision both forms round the Deconvolution's result and the sum.
    Linear in nodes.
    """

    step = "deconvolution_bias"
    operators = frozenset({"Deconvolution", "_npx_deconvolution"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Separate one bias."""
        node = state.graph.nodes[position]
        if len(node.inputs) != _INPUTS or position not in state.images:
            return None
        channels, bias = (integers(node.attrs.get("num_filter", "")) or (0,))[0], node.inputs[-1]
        if (
            channels < _FEWEST
            or state.parameter(bias) is None
            or state.certain_dtypes[position][0] is not DType.FLOAT32
        ):
            return None

        # Ones of its own, for a BatchNorm behind it is folded into them.
        values = ArrayParameter(np.ones((channels, 1, 1, 1), np.float32))
        ones = edit.add_parameter(f"{node.name}_ones", values, before=position)
        layer = node._replace(
            name=f"{node.name}_unbiased",
            attrs={**node.attrs, "no_bias": "True"},
            inputs=node.inputs[:-1],
            input_versions=(),
        )
        product = edit.insert(layer, before=position)
        sum_ = depthwise(node.name, product, ones, channels, bias)
        edit.replace(position, sum_._replace(attrs={**own_attributes(node), **sum_.attrs}))
        return "a depthwise convolution adds the bias as well, with a kernel of the backend"
