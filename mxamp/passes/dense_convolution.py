"""Let a layer of few rows and many weights be a convolution, whose weights the backend arranges once."""

from __future__ import annotations

import math

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import is_true
from mxamp.params.padded import PaddedParameter
from mxamp.params.parameter import Parameter
from mxamp.params.rearranged import RearrangedParameter
from mxamp.passes.edit import GraphEdit, NodeShapes
from mxamp.passes.move_transposes import is_of_each_value
from mxamp.passes.preparation import NodeRewrite, own_attributes
from mxamp.passes.state import State

_MATRIX, _SEQUENCES = 2, 3
"""Axes of what a layer reads: rows, or sequences of rows."""

_BLOCK = 16
"""Channels in a block of oneDNN's: where they fill none, its convolutions are the slower form."""

_LEAST = (
    (3, ((192, 1 << 21),)),
    (4, ((192, 1 << 19),)),
    (8, ((192, 1 << 19), (512, 1 << 18))),
    (16, ((256, 1 << 19), (512, 1 << 18))),
    (32, ((384, 1 << 20),)),
    (64, ((512, 1 << 22),)),
)
"""Rows up to which a layer of so many channels and weights is faster: in both dtypes, or else much in one.

One row is a product with a vector, which reads weights as they are.
"""

_LEAST_TO_FILL = 3 << 19
"""Weights from which on a layer is faster whose channels or units have to be filled up."""


class RewriteDenseConvolution(NodeRewrite):
    """Replace a FullyConnected of few rows and many weights by a 1x1 convolution.

    Before::

        x (rows, channels) -> FullyConnected(w) -> relu -> y

    After::

        x -> transpose {axes: (1, 0)} -> Reshape {shape: (1, channels, -1, 1)} -> Convolution(w) -> relu
          -> Reshape {shape: (units, -1)} -> transpose {axes: (1, 0)} -> y

    The rows are the places of an image of one column. A layer behind reads that image as it is, through
    activations and a BatchNorm, where nothing else reads what lies between. Likewise for sequences of rows,
    of which each is a column.

    Channels and units that fill no blocks of 16 are filled up with zeros, and what added units write is cut
    off before anything else::

        x -> transpose {axes: (1, 0)} -> Reshape {shape: (1, 1, channels, -1)} -> Pad
          -> Reshape {shape: (1, more channels, -1, 1)} -> Convolution(w with more of both)
          -> Reshape {shape: (more units, -1)} -> slice_axis {end: units} -> transpose {axes: (1, 0)} -> y

    Refuses: rows and weights of other numbers, in the call whose shapes are known or usual; sequences of
    which a row fills no blocks of 16; what comes from a layer of volumes, which MXNet cannot transpose then
    (:mod:`mxamp.passes.volumes`); weights that are not dense float32, or that other nodes read, and biases
    likewise where there are units to add; other dtypes than float32; what may be empty; nodes that a rule of
    the user's picks; targets that do not name the pass; the bodies of control flow.

    Notes
    -----
    Why: oneDNN brings the weights of its matrix product into blocks in every pass, and those of a convolution
    are in blocks when the model has run once. The more weights there are for each row, the more of the time
    that is. Layers of 2,048 channels and units take 1.45 ms in float32 for 8 rows and 0.88 in bfloat16, and
    as convolutions 1.07 and 0.22; for 16 rows 2.3 and 1.04, and 1.03 and 0.38; AlexNet's first, of 9,216 and
    4,096, for 8 rows 16.5 and 7.6, and 8.6 and 4.7 (AMD EPYC of family 26, one thread, transposes and casts
    included). From about 64 rows on there is little to gain.

    The same sums, which the backend may add up in another order. Right for any number of rows. Linear in
    nodes and parameters.
    """

    step = "dense_convolution"
    operators = frozenset({"FullyConnected", "_npx_fully_connected"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Put an image in front of a layer that gains, and rows behind the last node that takes it."""
        axes = _axes_of_gain(state, position)
        if axes is None:
            return None
        node = state.graph.nodes[position]
        # As it is by now: a layer in front may have put rows there.
        data, weight = edit.node(Entry(position)).inputs[0], _own(state, node.inputs[1])
        units, channels = weight.shape
        added = -units % _BLOCK
        if added or channels % _BLOCK:
            weight = PaddedParameter(weight, {0: added, 1: -channels % _BLOCK})
        whole = RearrangedParameter(weight, (0, 1), (*weight.shape, 1, 1))
        edit.change_parameter(node.inputs[1].node, whole)
        for bias in node.inputs[2:] if added else ():
            edit.change_parameter(bias.node, PaddedParameter(_own(state, bias), {0: added}))
        image = edit.once((data, axes), lambda: _image(state, edit, position, data, axes, channels))
        attrs = {**own_attributes(node), "kernel": "(1, 1)", "num_filter": str(units + added)}
        if "no_bias" in node.attrs:
            attrs["no_bias"] = node.attrs["no_bias"]
        layer = Node("Convolution", node.name, attrs, (image, *node.inputs[1:]))
        if added or position in state.heads:  # the last of those that take its place has its name
            like = _shapes(state, position, axes)[0]
            like = like and (1, units + added, *like[2:])
            part = edit.part(position, layer.op, "image", *layer.inputs, like=like, **attrs)
            made = _rows(state, edit, position, part, axes, units, added)
            edit.replace(position, made._replace(name=node.name))
            return _WHY
        edit.replace(position, layer, shapes=_shapes(state, position, axes))
        last, reader = position, state.only_reader(position)
        while reader is not None and _takes_images(state, reader, axes):
            edit.replace(reader, edit.node(Entry(reader)), shapes=_shapes(state, reader, axes))
            last, reader = reader, state.only_reader(reader)
        if reader is not None and _axes_of_gain(state, reader) == axes:
            edit.once((Entry(last), axes), lambda: Entry(last))
            return _WHY
        rows = edit.insert(
            _rows(state, edit, last, Entry(last), axes, units),
            after=last,
            shapes=(state.usual_shape(Entry(last)),),
        )
        for use in state.graph.uses[last].get(0, ()):
            edit.connect(use, rows)
        return _WHY


_WHY = "few rows for its many weights, which a convolution brings into blocks once and for all"


def _axes_of_gain(state: State, position: int) -> int | None:
    """Return how many axes a layer writes that gains; None where it does not."""
    node = state.graph.nodes[position]
    if node.op not in RewriteDenseConvolution.operators or len(node.inputs) < 2 or state.is_fixed(position):
        return None
    data, weight = node.inputs[0], state.own_parameter(node.inputs[1])
    usual, certain = state.usual_shape(data), state.shape(data)
    if (
        weight is None
        or usual is None
        or len(weight.shape) != _MATRIX
        or data.node in state.of_volumes
        or state.dtypes[position][0] is not DType.FLOAT32
    ):
        return None
    units, channels = weight.shape
    if units % _BLOCK and not all(state.own_parameter(bias) for bias in node.inputs[2:]):
        return None
    axes = None if certain is None else len(certain)
    if axes != _MATRIX and data.node not in state.never_empty:
        return None  # of an empty matrix both forms raise
    if is_true(node.attrs, "flatten", default=True):
        axes = _MATRIX
    if not _is_faster(math.prod(usual) // channels, units, channels):
        return None
    return axes if axes == _MATRIX or (axes == _SEQUENCES and channels % _BLOCK == 0) else None


def _is_faster(rows: int, units: int, channels: int) -> bool:
    """Return whether a layer is faster as a convolution."""
    weights = units * channels
    if (units % _BLOCK or channels % _BLOCK) and weights < _LEAST_TO_FILL:
        return False
    least = next((least for most, least in _LEAST if 1 < rows <= most), ())
    return any(channels >= fewest and weights >= number for fewest, number in least)


def _own(state: State, entry: Entry) -> Parameter:
    """Return a parameter that no other node reads."""
    parameter = state.own_parameter(entry)
    assert parameter is not None  # it is known that the layer gains
    return parameter


def _takes_images(state: State, position: int, axes: int) -> bool:
    """Return whether a node does to an image what it does to its columns as rows."""
    node = state.graph.nodes[position]
    if state.is_fixed(position, updating=False) or position in state.heads:
        return False
    if FACTS.canonical(node.op) == "BatchNorm":
        return axes == _MATRIX and node.attrs.get("axis", "1") == "1"
    return is_of_each_value(node)


def _image(state: State, edit: GraphEdit, position: int, data: Entry, axes: int, channels: int) -> Entry:
    """Return what a layer reads as an image whose places are the rows."""
    before = state.graph.nodes[position].inputs[0]
    shape, certain = state.usual_shape(before), state.shape(before)
    assert shape is not None  # it is known that the layer gains
    *places, _ = shape if axes == _SEQUENCES else (math.prod(shape) // channels, channels)
    if axes == _SEQUENCES:
        like = (channels, *places)
        turned = edit.part(position, "transpose", "turned", data, like=like, axes="(2, 0, 1)")
        return edit.part(position, "expand_dims", "data", turned, like=(1, *like), axis="0")
    rows, added = data, -channels % _BLOCK
    is_flat = is_true(state.graph.nodes[position].attrs, "flatten", default=True)
    if certain is None or len(certain) != _MATRIX or (is_flat and state.graph.nodes[before.node].is_variable):
        like = (*places, channels)
        rows = edit.part(position, "Reshape", "rows", data, like=like, shape=f"(-1, {channels})")
    turned = edit.part(position, "transpose", "turned", rows, like=(channels, *places), axes="(1, 0)")
    if added:  # a Pad goes along the last two axes of four
        like = (1, 1, channels, *places)
        plane = edit.part(position, "Reshape", "plane", turned, like=like, shape=f"(1, 1, {channels}, -1)")
        pad = {"mode": "constant", "pad_width": f"(0, 0, 0, 0, 0, {added}, 0, 0)", "constant_value": "0"}
        like = (1, 1, channels + added, *places)
        turned = edit.part(position, "Pad", "channels", plane, like=like, **pad)
    like = (1, channels + added, *places, 1)
    return edit.part(position, "Reshape", "data", turned, like=like, shape=f"(1, {channels + added}, -1, 1)")


def _rows(
    state: State, edit: GraphEdit, last: int, image: Entry, axes: int, units: int, added: int = 0
) -> Node:
    """Return the node that makes rows of an image again, and put in what it reads."""
    shape, name = state.usual_shape(Entry(last)), state.graph.nodes[last].name
    places = None if shape is None else shape[:-1]
    given = {"shape": f"({units + added}, -1)" if axes == _MATRIX else "(-3, 0, 0)"}
    made = Node("Reshape", f"{name}_columns", given, (image,))
    beside = {"after": last} if image == Entry(last) else {"before": last}
    columns = edit.insert(made, shapes=(places and (units + added, *places),), **beside)
    if added:
        cut = {"axis": "0", "begin": "0", "end": str(units)}
        made = Node("slice_axis", f"{name}_units", cut, (columns,))
        columns = edit.insert(made, shapes=(places and (units, *places),), **beside)
    order = "(1, 0)" if axes == _MATRIX else "(1, 2, 0)"
    return Node("transpose", f"{name}_rows", {"axes": order}, (columns,))


def _shapes(state: State, position: int, axes: int) -> NodeShapes:
    """Return the shapes of a node's outputs, the first as an image."""
    found = [
        state.usual_shape(Entry(position, output))
        for output in range(state.graph.nodes[position].num_outputs)
    ]
    shape = found[0]
    if shape is not None:
        found[0] = (1, shape[-1], *shape[:-1], *([1] if axes == _MATRIX else []))
    return tuple(found)
