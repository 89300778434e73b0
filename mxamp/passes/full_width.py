"""Let a layer that takes rows of an image whole read them as what they are: a sequence."""

from __future__ import annotations

from typing import Sequence

from mxamp.decisions.workload import model_work
from mxamp.dtypes import DType
from mxamp.graph.graph import VARIABLE, Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers, is_true
from mxamp.params.parameter import Parameter
from mxamp.params.rearranged import RearrangedParameter
from mxamp.passes.edit import GraphEdit, NodeShapes
from mxamp.passes.move_transposes import is_of_each_value
from mxamp.passes.preparation import NodeRewrite
from mxamp.passes.sequences import chain_behind
from mxamp.passes.state import State

_WIDE = 32
"""Values of a row from which on sequences were measured to be faster."""

_IMAGE = 4
"""Axes of a batch of images."""

_LAYOUTS = frozenset({"None", "NCHW"})

_OF_EACH_AXIS = ("kernel", "stride", "pad", "dilate")
"""Attributes that say something of each axis of places."""

_ROWS, _COLUMNS = 3, 2
"""The axis along which a row lies, and a column."""

_LESS = 0.9
"""What a sequence must take of what an image does: costs of such kernels are off by a tenth."""

_SAME = frozenset({"Activation", "Dropout", "_copy", "clip", "relu", "sigmoid", "tanh"})
"""Operators that do the same to a sequence as to an image of one column, with the same attributes."""


class RewriteFullWidth(NodeRewrite):
    """Replace a convolution that is as wide as its image by one over a sequence.

    Before::

        x (batch, 1, words, 300) -> Convolution {kernel: (3, 300)} -> Activation -> Pooling {kernel: (54, 1)}

    After::

        x -> Reshape {shape: (0, -3, 0)} -> transpose {axes: (0, 2, 1)} -> (batch, 300, words)
          -> Convolution {kernel: (3,)} -> Activation -> Pooling {kernel: (54,)} -> expand_dims {axis: 3}

    The values of a row are the channels of a place. What follows the layer and nothing else reads has one
    axis less as well: activations, BatchNorm and Pooling. Likewise a convolution that is as high as its
    image, without the transpose.

    Refuses: where it is not certain that the image is as wide as the kernel in every call, as it is where an
    Embedding or a FullyConnected makes rows; more than one channel; rows of less than 32 values; padding
    or dilation along them; a layer that is a graph output; weights that are not dense float32, or that other
    nodes read; on targets that run float32 alone, where their costs do not say that it clearly pays, the
    copies included, as of short sequences; numpy's shape semantics; nodes that a rule of the user's picks;
    targets that do not name the pass; the bodies of control flow.

    Notes
    -----
    Why: oneDNN's kernels go over rows and take blocks of channels, and here a row of results has one value
    and the image one channel. So they compute one product of many: the three layers of a classifier of
    sentences (Kim, "Convolutional Neural Networks for Sentence Classification", EMNLP 2014), 56 words of 300
    values, take 0.62 ms with 100 filters and 1.13 with 128, and as sequences 0.40 and 0.35; in bfloat16 0.49
    and 0.56, and 0.36 and 0.25. Of 1,014 characters of 70 values, with 256 filters, 12 and 2.5, and 2.7 and
    1.4 (AMD EPYC with avx512_bf16, family 26, one thread, the copies included).

    The same products are summed, in the order of another kernel. Linear in nodes and parameters.
    """

    step = "full_width"
    operators = frozenset({"Convolution"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Put a sequence in front of a layer, and an image behind the last node that takes one."""
        axis = _full_axis(state, position)
        if axis is None:
            return None
        chain = chain_behind(
            state, position, lambda reader: _takes_sequences(state.graph.nodes[reader], axis)
        )
        if not _pays(state, chain, axis):
            return None
        node = state.graph.nodes[position]
        image, weight = node.inputs[0], node.inputs[1].node
        sequence = edit.once((image, axis), lambda: _sequence(state, edit, position, axis))
        edit.change_parameter(weight, _rearranged(state.params[state.graph.nodes[weight].name], axis))
        layer = _as_sequence(node, axis)._replace(inputs=(sequence, *node.inputs[1:]))
        edit.replace(position, layer, shapes=_shapes(state, position, without=axis))
        for reader in chain[1:]:
            taken = _as_sequence(state.graph.nodes[reader], axis)
            edit.replace(reader, taken, shapes=_shapes(state, reader, without=axis))
        last = chain[-1]
        attrs, name = {"axis": str(axis)}, f"{state.graph.nodes[last].name}_image"
        behind = Node("expand_dims", name, attrs, (Entry(last),))
        edit.insert_behind(behind, shapes=_shapes(state, last)[:1])
        return "takes rows of its image whole, which is a sequence: faster so"


def _full_axis(state: State, position: int) -> int | None:
    """Return which axis of its image a convolution takes whole in every call; None where it takes none."""
    node = state.graph.nodes[position]
    weight = state.own_parameter(node.inputs[1]) if len(node.inputs) > 1 else None
    if (
        weight is None
        or len(weight.shape) != _IMAGE
        or weight.shape[1] != 1
        or max(weight.shape[2:]) < _WIDE
        or node.attrs.get("num_group", "1") != "1"
        or node.attrs.get("layout", "None") not in _LAYOUTS
        or position in state.heads
        or set(state.graph.uses[position]) != {0}
        or state.graph.has_numpy_shapes
        or state.dtypes[position][0] is not DType.FLOAT32
    ):
        return None
    sizes = state.axis_sizes.of(node.inputs[0])
    if sizes is None or len(sizes) != _IMAGE:
        return None
    for axis in (_ROWS, _COLUMNS):
        is_whole = along_axis(node, "pad", axis, 0) == 0 and along_axis(node, "dilate", axis, 1) == 1
        if is_whole and sizes[axis] == weight.shape[axis] >= _WIDE:
            return axis
    return None


def _pays(state: State, chain: Sequence[int], axis: int) -> bool:
    """Return whether nodes take less with a sequence, by the costs of a target that runs float32 alone.

    Where layers may be low, their time in float32 says too little, and it pays wherever it was measured.
    """
    nodes, cost = state.graph.nodes, state.target.cost
    first = nodes[chain[0]]
    image, weight = map(state.usual_shape, first.inputs[:2])
    if cost is None or not state.target.runs_nothing_low or image is None or weight is None:
        return True
    times = []
    for turns in (False, True):
        priced = _Priced(image)
        if turns:
            batch, _, height, width = image
            priced.add(Node("Reshape", "rows", {"shape": "(0, -3, 0)"}), ((batch, height, width),))
            if axis == _ROWS:
                priced.add(Node("transpose", "turned", {"axes": "(0, 2, 1)"}), ((batch, width, height),))
        for position in chain:
            node, rest = nodes[position], [state.usual_shape(entry) for entry in nodes[position].inputs[1:]]
            if turns:
                node = _as_sequence(node, axis)
                if position == chain[0]:
                    rest[0] = (weight[0], weight[axis], weight[_ROWS + _COLUMNS - axis])
            priced.add(node, _shapes(state, position, without=axis if turns else None), rest)
        if turns:
            restored = Node("expand_dims", "restored", {"axis": str(axis)})
            priced.add(restored, _shapes(state, chain[-1])[:1])
        behind = state.only_reader(chain[-1])
        if behind is not None:  # it may read blocks of channels, which a sequence has not
            rest = [state.usual_shape(entry) for entry in nodes[behind].inputs[1:]]
            priced.add(nodes[behind], _shapes(state, behind), rest)
        works = model_work(Graph(tuple(priced.nodes), ()), priced.shapes, block=cost.block)
        known = [(node.op, work) for node, work in zip(priced.nodes, works) if work is not None]
        times.append(sum(cost.microseconds(FACTS.canonical(op), work, low=False) for op, work in known))
    return times[1] < _LESS * times[0]


class _Priced:
    """A graph whose nodes come one behind another, to be priced."""

    def __init__(self, image: tuple[int, ...]) -> None:
        self.nodes = [Node(VARIABLE, "image")]
        self.shapes: list[NodeShapes] = [(image,)]

    def add(self, node: Node, shapes: NodeShapes, rest: Sequence[tuple[int, ...] | None] = ()) -> None:
        """Add a node that reads the last one, and inputs of such shapes besides."""
        read = [Entry(len(self.nodes) - 1)]
        for shape in rest:
            read.append(Entry(len(self.nodes)))
            self.nodes.append(Node(VARIABLE, f"read{len(self.nodes)}"))
            self.shapes.append((shape,))
        self.nodes.append(node._replace(inputs=tuple(read)))
        self.shapes.append(shapes)


def along_axis(node: Node, name: str, axis: int, default: int) -> int | None:
    """Return what an attribute says of an axis of an image; None where it does not say one number.

    Parameters
    ----------
    node
        A layer, or a Pooling.
    name
        The attribute.
    axis
        The axis, counted from that of the batch.
    default
        What holds where it is not given.
    """
    given = integers(node.attrs.get(name, "()"))
    if given is None or len(given) not in (0, _IMAGE - 2):
        return None
    return given[axis - 2] if given else default


def _takes_sequences(node: Node, axis: int) -> bool:
    """Return whether a node does to a sequence what it does to an image of one column, or one row."""
    op = FACTS.canonical(node.op)
    if op == "BatchNorm":
        return node.attrs.get("axis", "1") == "1"
    if op != "Pooling":
        return op in _SAME and is_of_each_value(node)
    return node.attrs.get("layout", "None") in _LAYOUTS and (
        is_true(node.attrs, "global_pool", default=False)
        or (along_axis(node, "kernel", axis, 0) == 1 and along_axis(node, "pad", axis, 0) == 0)
    )


def _as_sequence(node: Node, axis: int) -> Node:
    """Return a node whose attributes leave an axis of places out."""
    attrs = dict(node.attrs)
    attrs.pop("layout", None)
    for name in _OF_EACH_AXIS:
        given = integers(attrs.get(name, "()"))
        if given and len(given) == _IMAGE - 2:
            attrs[name] = f"({given[_ROWS - axis]},)"
    return node._replace(attrs=attrs)


def _sequence(state: State, edit: GraphEdit, position: int, axis: int) -> Entry:
    """Return an image of one channel as a sequence whose channels are its rows, or columns."""
    image = state.graph.nodes[position].inputs[0]
    shape = state.usual_shape(image)
    lines = None if shape is None else (shape[0], *shape[2:])
    rows = edit.part(position, "Reshape", "rows", image, like=lines, shape="(0, -3, 0)")
    if axis == _COLUMNS:
        return rows
    like = None if lines is None else (lines[0], lines[2], lines[1])
    return edit.part(position, "transpose", "sequence", rows, like=like, axes="(0, 2, 1)")


def _rearranged(weight: Parameter, axis: int) -> Parameter:
    """Return the weight of a convolution over a sequence."""
    filters, _, height, width = weight.shape
    if axis == _COLUMNS:
        return RearrangedParameter(weight, (0, 1, 2, 3), (filters, height, width))
    return RearrangedParameter(weight, (0, 1, 3, 2), (filters, width, height))


def _shapes(state: State, position: int, *, without: int | None = None) -> NodeShapes:
    """Return the shapes of a node's outputs, the first without an axis."""
    found: list[tuple[int, ...] | None] = []
    for output in range(state.graph.nodes[position].num_outputs):
        shape = state.usual_shape(Entry(position, output))
        if shape is not None and not output:
            shape = tuple([size for axis, size in enumerate(shape) if axis != without])
        found.append(shape)
    return tuple(found)
