"""Which values are certainly images, and how many channels they have, whatever is fed to the graph."""

from __future__ import annotations

from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers, is_true

_MAKES_IMAGES = frozenset({"Convolution", "Deconvolution", "Pooling"})
"""Operators that make images where their kernel has two axes."""
ADAPTIVE_POOLING = "_contrib_AdaptiveAvgPooling2D"
"""What fails for anything else, and makes images."""
_IMAGE_AXES = (frozenset({2, 3}), frozenset({-2, -1}), frozenset({2, -1}), frozenset({-2, 3}))
KEEPS_RANK = frozenset(
    {
        "Activation",
        "BatchNorm",
        "Concat",
        "Dropout",
        "LeakyReLU",
        "Pooling",  # a global pooling may have no kernel
        "_copy",
        "amp_cast",
        "clip",
        "elemwise_add",
        "elemwise_mul",
        "elemwise_sub",
        "relu",
        "sigmoid",
    }
)
"""Operators whose first output certainly has as many axes as their first input."""

_LAYERS = frozenset({"Convolution", "Deconvolution"})
_KEEPS_CHANNELS = frozenset(KEEPS_RANK - {"Concat"})


def image_nodes(graph: Graph) -> frozenset[int]:
    """Return the nodes whose first output certainly has four axes, the second of them channels."""
    found: set[int] = set()
    for position, node in enumerate(graph.nodes):
        op = FACTS.canonical(node.op)
        if op in _MAKES_IMAGES:
            kernel = integers(node.attrs.get("kernel", ""))
            if (
                kernel is not None
                and len(kernel) == 2
                and node.attrs.get("layout", "None") in ("None", "NCHW")
            ):
                found.add(position)
                continue
        if op == ADAPTIVE_POOLING or (op in KEEPS_RANK and node.inputs and node.inputs[0].node in found):
            found.add(position)
    return frozenset(found)


def reduces_image(node: Node) -> bool:
    """Whether a reduction goes over both axes of an image, if it reads one."""
    axes = integers(node.attrs.get("axis", "()"))
    return (
        axes is not None
        and len(axes) == 2
        and frozenset(axes) in _IMAGE_AXES
        and not is_true(node.attrs, "exclude", default=False)
    )


def channels_of(graph: Graph, entry: Entry) -> int | None:
    """Return the channels of an image: those that the layer before it makes; None where none says."""
    while True:
        node = graph.nodes[entry.node]
        op = FACTS.canonical(node.op)
        if op in _LAYERS:
            filters = integers(node.attrs.get("num_filter", ""))
            return filters[0] if filters is not None and len(filters) == 1 else None
        if op not in _KEEPS_CHANNELS or not node.inputs or entry.output:
            return None
        entry = node.inputs[0]


def joined_images(graph: Graph, entry: Entry) -> tuple[Entry, ...]:
    """Return the images whose channels were put together to an image; none where they were not."""
    while True:
        node = graph.nodes[entry.node]
        op = FACTS.canonical(node.op)
        if op == "Concat":
            return node.inputs if node.attrs.get("dim", "1") == "1" else ()
        if op not in _KEEPS_CHANNELS or not node.inputs or entry.output:
            return ()
        entry = node.inputs[0]


def depthwise(name: str, source: Entry, weight: Entry, channels: int, bias: Entry | None = None) -> Node:
    """Return a Convolution that multiplies each channel of an image with its weight, and adds its bias."""
    size = str(channels)
    attrs = {"kernel": "(1, 1)", "num_filter": size, "num_group": size, "no_bias": str(bias is None)}
    return Node("Convolution", name, attrs, (source, weight) if bias is None else (source, weight, bias))
