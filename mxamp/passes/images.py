"""Which values are certainly images, sequences or volumes, and of how many channels, whatever is fed."""

from __future__ import annotations

from typing import Mapping, Sequence

from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import CHANNELS_FIRST, integers, is_true
from mxamp.params.parameter import Parameter

_MAKES_PLACES = frozenset({"Convolution", "Deconvolution", "Pooling"})
"""Operators whose results have as many axes of places as their kernel has."""
ADAPTIVE_POOLING = "_contrib_AdaptiveAvgPooling2D"
RESIZES = "_contrib_BilinearResize2D"
_OF_IMAGES = frozenset({ADAPTIVE_POOLING, RESIZES, "UpSampling", "depth_to_space", "space_to_depth"})
"""What fails for anything else, and makes images."""
_BEFORE_PLACES = 2
"""Axes of a batch and of channels."""
_IMAGE = 2
"""Axes of places of an image."""
KEEPS_RANK = frozenset(
    {
        "Activation",
        "BatchNorm",
        "Concat",
        "Dropout",
        "InstanceNorm",
        "LeakyReLU",
        "Pooling",  # a global pooling may have no kernel
        "_copy",
        "add_n",
        "amp_cast",
        "clip",
        "elemwise_add",
        "elemwise_div",
        "elemwise_mul",
        "elemwise_sub",
        "hard_sigmoid",
        "relu",
        "sigmoid",
        *(
            "_div_scalar",
            "_maximum_scalar",
            "_minimum_scalar",
            "_minus_scalar",
            "_mul_scalar",
            "_plus_scalar",
        ),
        *("_power_scalar", "_rdiv_scalar", "_rminus_scalar", "_rpower_scalar"),
        *("abs", "ceil", "cos", "erf", "exp", "expm1", "floor", "log", "log1p", "negative", "reciprocal"),
        *("rint", "round", "rsqrt", "sign", "sin", "softsign", "sqrt", "square", "tanh"),
    }
)
"""Operators whose first output certainly has as many axes as their first input."""

AS_ROWS: Mapping[str, str] = {"shape": "(0, 0, -1)"}
"""The attributes of a Reshape that makes one axis of the places of an image, ..."""
PLACES_BACK: Mapping[str, str] = {"lhs_begin": "2", "lhs_end": "3", "rhs_begin": "2", "rhs_end": "4"}
"""... and those of a ``reshape_like`` the image that brings them back."""

_OF_AXES = frozenset(PLACES_BACK)
"""The attributes with which ``reshape_like`` takes some axes of its second input alone."""

_LAYERS = frozenset({"Convolution", "Deconvolution"})
_KEEPS_CHANNELS = frozenset(KEEPS_RANK - {"Concat"}) | {ADAPTIVE_POOLING, RESIZES}
_KEEPS_AXES = KEEPS_RANK | {"Pad", "slice", "slice_axis", "slice_like"}
"""Some channels, some places, or more of both, are a batch of channels of places still."""
_CUTS = "SliceChannel"
_OF_ONE_SHAPE = frozenset({"add_n", "elemwise_add", "elemwise_div", "elemwise_mul", "elemwise_sub"})
_OF_ONE_RANK = _OF_ONE_SHAPE | {"Concat"}
"""Operators of which all inputs have as many axes."""
_BROADCAST = frozenset(
    {
        *("broadcast_add", "broadcast_div", "broadcast_maximum", "broadcast_minimum", "broadcast_mul"),
        *("broadcast_power", "broadcast_sub"),
    }
)
_REDUCES = frozenset({"max", "mean", "min", "sum"})
_CHANNELS = 1
"""The axis of channels."""
_WHAT_IS_LEFT = -1
"""Of the sizes that a Reshape says: less is a word for several axes."""


def axes_of_places(graph: Graph, params: Mapping[str, Parameter]) -> Mapping[int, int]:
    """Return the nodes whose first output certainly is a batch of channels of places: node -> axes of places.

    A sequence has one, an image two, a volume three.

    Parameters
    ----------
    graph
        The graph.
    params
        Its parameters by name: one of no more axes, with which an image is computed, takes none of its away.
    """
    found: dict[int, int] = {}
    ranks: dict[int, int] = {}  # of what is no image
    for position, node in enumerate(graph.nodes):
        op = FACTS.canonical(node.op)
        rank = _rank(graph, params, node, ranks)
        if rank is not None:
            ranks[position] = rank
        if op in _MAKES_PLACES:
            kernel = integers(node.attrs.get("kernel", ""))
            if kernel and node.attrs.get("layout", "None") in CHANNELS_FIRST:
                found[position] = len(kernel)
                continue
        if op in _OF_IMAGES:
            found[position] = _IMAGE
        elif op in _KEEPS_AXES or _keeps_its_axes(op, node):
            sources = node.inputs if op in _OF_ONE_RANK else node.inputs[:1]
            known = [entry.node for entry in sources if entry.node in found and _is_told(graph, entry)]
            if known:
                found[position] = found[known[0]]
        elif op in _BROADCAST:
            images = [entry for entry in node.inputs if entry.node in found and _is_told(graph, entry)]
            axes = {found[entry.node] for entry in images}
            others = [
                None if entry.output else ranks.get(entry.node)
                for entry in node.inputs
                if entry not in images
            ]
            if len(axes) == 1 and all(
                other is not None and other <= _BEFORE_PLACES + next(iter(axes)) for other in others
            ):
                found[position] = axes.pop()
        elif _leaves_shape(node) and node.inputs[0].node in found and _is_told(graph, node.inputs[0]):
            found[position] = found[node.inputs[0].node]
        elif op == "reshape_like" and _is_told(graph, node.inputs[1]):
            told = found.get(node.inputs[1].node)
            is_back = is_shaped_like(node) or (told == _IMAGE and _gets_places_back(graph, node))
            if told is not None and is_back:
                found[position] = told
    return found


def _rank(graph: Graph, params: Mapping[str, Parameter], node: Node, ranks: Mapping[int, int]) -> int | None:
    """Return how many axes a parameter has, a dense layer, or what says or keeps that; None of all else."""
    if node.is_variable:
        return len(params[node.name].shape) if node.name in params else None
    op = FACTS.canonical(node.op)
    if op == "Flatten" or (op == "FullyConnected" and is_true(node.attrs, "flatten", default=True)):
        return _BEFORE_PLACES
    if op == "Reshape":
        shape = integers(node.attrs.get("shape", "()")) or ()
        return len(shape) if shape and min(shape) >= _WHAT_IS_LEFT else None
    before = ranks.get(node.inputs[0].node) if node.inputs and not node.inputs[0].output else None
    if before is None or not (op == "expand_dims" or op in KEEPS_RANK):
        return None
    return before + (op == "expand_dims")


def _keeps_its_axes(op: str, node: Node) -> bool:
    """Return whether a node that takes axes away leaves all of them here, with fewer places or channels."""
    if op == _CUTS:
        return not is_true(node.attrs, "squeeze_axis", default=False)
    return op in _REDUCES and is_true(node.attrs, "keepdims", default=False)


def _is_told(graph: Graph, entry: Entry) -> bool:
    """Return whether an output has the axes of its node's first one."""
    return not entry.output or FACTS.canonical(graph.nodes[entry.node].op) == _CUTS


def is_shaped_like(node: Node) -> bool:
    """Return whether what a node makes has the shape of its second input, axis by axis."""
    return FACTS.canonical(node.op) == "reshape_like" and _OF_AXES.isdisjoint(node.attrs)


def _gets_places_back(graph: Graph, node: Node) -> bool:
    """Return whether rows of planes become images again (:mod:`mxamp.passes.plain_concat`)."""
    rows = graph.nodes[node.inputs[0].node]
    if FACTS.canonical(rows.op) == "Concat":
        rows = graph.nodes[rows.inputs[0].node]
    is_of_rows = FACTS.canonical(rows.op) == "Reshape" and rows.attrs.get("shape") == AS_ROWS["shape"]
    return is_of_rows and all(node.attrs.get(key) == value for key, value in PLACES_BACK.items())


def image_nodes(places: Mapping[int, int]) -> frozenset[int]:
    """Return the nodes whose first output certainly has four axes, the second of them channels."""
    return frozenset(position for position, axes in places.items() if axes == _IMAGE)


def reduces_places(node: Node, axes: int = _IMAGE) -> bool:
    """Whether a reduction goes over all places of what it reads, which has so many axes of them."""
    given, rank = integers(node.attrs.get("axis", "()")), _BEFORE_PLACES + axes
    return (
        given is not None
        and len(given) == axes
        and {axis % rank for axis in given if -rank <= axis < rank} == set(range(_BEFORE_PLACES, rank))
        and not is_true(node.attrs, "exclude", default=False)
    )


class ImageOrigins:
    """What made the channels of images, behind all that keeps them, and how many there are. Linear in nodes.

    Parameters
    ----------
    graph
        The graph.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._made_by: list[Entry] = []
        self._channels: list[int | None] = []
        for position, node in enumerate(graph.nodes):
            keeps = _keeps_channels(node) and node.inputs
            self._made_by.append(self._origin(node.inputs[0]) if keeps else Entry(position))
            # One channel may be repeated for many.
            least = 2 if FACTS.canonical(node.op) in _BROADCAST else 1
            read = [self.channels_of(entry) for entry in _with_its_channels(node)]
            known = [channels for channels in read if channels is not None and channels >= least]
            self._channels.append(known[0] if known else _filters(node))

    def channels_of(self, entry: Entry) -> int | None:
        """Return the channels of an image: those that a layer before it makes; None where none says."""
        return None if entry.output else self._channels[entry.node]

    def joined(self, entry: Entry) -> tuple[Entry, ...]:
        """Return the images whose channels were put together to an image; none where they were not."""
        node = self._graph.nodes[self._origin(entry).node]
        is_joined = FACTS.canonical(node.op) == "Concat" and node.attrs.get("dim", "1") == "1"
        return node.inputs if is_joined else ()

    def _origin(self, entry: Entry) -> Entry:
        """Return what made the channels; other outputs than the first, as of statistics, have their own."""
        return entry if entry.output else self._made_by[entry.node]


def _filters(node: Node) -> int | None:
    """Return how many channels a layer makes; None of what is no layer."""
    if FACTS.canonical(node.op) not in _LAYERS:
        return None
    filters = integers(node.attrs.get("num_filter", ""))
    return filters[0] if filters is not None and len(filters) == 1 else None


def _keeps_channels(node: Node) -> bool:
    """Return whether an image has the channels of what the node reads, along the same axis."""
    is_first = node.attrs.get("layout", "None") in CHANNELS_FIRST
    return FACTS.canonical(node.op) in _KEEPS_CHANNELS and is_first


def _with_its_channels(node: Node) -> Sequence[Entry]:
    """Return the inputs that have as many channels, along the same axis, as what an image becomes here."""
    op, attrs = FACTS.canonical(node.op), node.attrs
    if op in _OF_ONE_SHAPE or op in _BROADCAST:
        return node.inputs
    if is_shaped_like(node):
        return node.inputs[1:]
    if op in _KEEPS_CHANNELS:
        return node.inputs[:1] if _keeps_channels(node) else ()
    if op == "Pad":
        width = integers(attrs.get("pad_width", "")) or ()
        keeps = len(width) > 2 * _CHANNELS + 1 and not any(width[2 * _CHANNELS : 2 * _CHANNELS + 2])
    elif op == "slice_axis":
        # Counted from behind, -2 is an axis of places of an image, and the channels of a sequence.
        keeps = integers(attrs.get("axis", "")) in ((0,), (2,), (3,), (4,), (-1,))
    elif op in _REDUCES:
        axes = integers(node.attrs.get("axis", "()")) or ()
        is_of_places = bool(axes) and (min(axes) > _CHANNELS or axes == (-1,))
        keeps = (
            is_of_places and _keeps_its_axes(op, node) and not is_true(node.attrs, "exclude", default=False)
        )
    elif op == "UpSampling":
        keeps = len(node.inputs) == 1
    else:
        keeps = _leaves_shape(node)
    return node.inputs[:1] if keeps else ()


def _leaves_shape(node: Node) -> bool:
    """Return whether a node is a Reshape of three axes or more to the shape that is there."""
    shape = integers(node.attrs.get("shape", "()")) or ()
    return FACTS.canonical(node.op) == "Reshape" and len(shape) > _CHANNELS + 1 and not any(shape)


def depthwise(name: str, source: Entry, weight: Entry, channels: int, bias: Entry | None = None) -> Node:
    """Return a Convolution that multiplies each channel of an image with its weight, and adds its bias."""
    size = str(channels)
    attrs = {"kernel": "(1, 1)", "num_filter": size, "num_group": size, "no_bias": str(bias is None)}
    return Node("Convolution", name, attrs, (source, weight) if bias is None else (source, weight, bias))
