"""What every node of a model does in a forward pass, and every chain that runs as one kernel."""

from __future__ import annotations

import math
from collections import Counter
from typing import AbstractSet, Mapping, NamedTuple, Sequence, Tuple

from mxamp.graph.graph import Graph, Node
from mxamp.graph.multiply_adds import multiply_adds
from mxamp.ops import FACTS, InputRole, ValueKind
from mxamp.ops.attributes import integers
from mxamp.ops.equivalents import reads_odd_channels
from mxamp.ops.parameters import LAYERS
from mxamp.targets import Work
from mxamp.targets.image_layout import BLOCKS, PLAIN, WIDEST_BLOCK, layer_layout
from mxamp.targets.layout import WRITE_BLOCKS, WRITE_OVER, layout_sources
from mxamp.targets.work import Shapes

_Shape = Tuple[int, ...]


class Layout(NamedTuple):
    """The order in which a layer's image lies, or what was written over it.

    Attributes
    ----------
    float32, low
        Where layers compute in FP32, and where in the low dtype.
    over
        The node over whose values something was written that is FP32 in any case; None where nothing was.
    """

    float32: int
    low: int
    over: int | None = None

    @property
    def is_cast_plain(self) -> bool:
        """Whether low data come of a cast, which writes plain order: what wrote it is FP32 in any case."""
        return self.over is not None


_IMAGE = 4

BLOCKED_RANKS = (4, 5)
"""Images and volumes. Without AVX-512 sequences as well; with it nobody looked, and costs were fitted to
kernels of which it was not known."""

_SEQUENCE = 3


def unknown_work(graph: Graph, shapes: Shapes, positions: AbstractSet[int]) -> list[int]:
    """Return those nodes of which the shapes do not tell what they do, in graph order."""
    return [position for position in sorted(positions) if _known_shapes(graph, position, shapes) is None]


def _known_shapes(graph: Graph, position: int, shapes: Shapes) -> tuple[tuple[_Shape, ...], _Shape] | None:
    """Return the shapes of what a node reads and of its first output; None where one is not known."""
    read = [shapes[entry.node][entry.output] for entry in graph.nodes[position].inputs]
    inputs = tuple([shape for shape in read if shape is not None])
    written = shapes[position][0] if shapes[position] else None
    return None if written is None or len(inputs) < len(read) else (inputs, written)


def chain_work(
    graph: Graph, chain: Sequence[int], shapes: Shapes, works: Sequence[Work | None]
) -> Work | None:
    """Return what a chain does that runs as one kernel; None where it is not known of its first node.

    Parameters
    ----------
    graph
        The graph.
    chain
        Its nodes, first to last; one node is a chain too.
    shapes
        For every node of the graph the shape of each output.
    works
        For every node of the chain what it does alone.
    """
    work = works[0]
    if work is None or len(chain) == 1:
        return work
    # What passes from one link to the next stays in registers.
    written = [shapes[position][0] for position in chain[:-1]]
    return work._replace(
        multiply_adds=sum((one or work).multiply_adds for one in works),
        elements=sum((one or work).elements for one in works)
        - 2 * sum(0 if shape is None else math.prod(shape) for shape in written),
        # A sum has two inputs, a BatchNorm five.
        has_activation=any(len(graph.nodes[position].inputs) == 1 for position in chain[1:]),
    )


def with_bias(work: Work) -> Work:
    """Return what a layer does once the BatchNorm behind it is folded into it, which leaves a bias."""
    if work.has_bias:
        return work
    filters = work.output[1:2]
    return work._replace(
        has_bias=True, inputs=(*work.inputs, filters), elements=work.elements + math.prod(filters)
    )


def model_work(
    graph: Graph,
    shapes: Shapes,
    layouts: Sequence[Layout | None] | None = None,
    folded: AbstractSet[int] = frozenset(),
    *,
    block: int = WIDEST_BLOCK,
) -> Sequence[Work | None]:
    """Return what every node of a model does; None for variables and where shapes do not tell.

    Parameters
    ----------
    graph
        The graph.
    shapes
        For every node the shape of each output.
    layouts
        What :func:`written_layouts` says of it, from whoever knows it.
    folded
        Each BatchNorm that a layer takes into itself: it moves nothing.
    block
        The channels in the widest block of images on the machine that it runs on.

    Notes
    -----
    What lies around a node is divided by how many there are like it: code and tables that a kernel left in
    the caches are there for the next one of its kind, as in the steps of an unrolled recurrence. Its
    parameters are where all that the model moves lets them be; what several nodes share is moved once.
    """
    layouts = written_layouts(graph, shapes, block=block) if layouts is None else layouts
    works = [
        None if node.is_variable else work_of(graph, position, shapes, layouts, block=block)
        for position, node in enumerate(graph.nodes)
    ]
    kinds = [
        None if work is None else (node.op, work.inputs, work.output, tuple(node.attrs.items()))
        for node, work in zip(graph.nodes, works)
    ]
    alike = Counter(kinds)
    ran = [
        (node.op, work)
        for position, (node, work) in enumerate(zip(graph.nodes, works))
        if not node.is_variable and position not in folded
    ]
    everything = sum(work.elements for _, work in ran if work is not None)
    at_once = everything - _read_again(graph, shapes)
    operators = len({op for op, _ in ran})
    return [
        None
        if work is None
        else work._replace(around=everything // alike[kind], model=at_once, operators=operators)
        for work, kind in zip(works, kinds)
    ]


def _read_again(graph: Graph, shapes: Shapes) -> int:
    """Return how many values nodes read of variables that nodes before them have read."""
    again, seen = 0, set()
    for position, node in enumerate(graph.nodes):
        if node.is_variable or not shapes[position] or shapes[position][0] is None:
            continue
        for number, entry in enumerate(node.inputs):
            shape = shapes[entry.node][entry.output]
            if graph.nodes[entry.node].is_variable and shape is not None and not _is_looked_up(node, number):
                again += math.prod(shape) if entry.node in seen else 0
                seen.add(entry.node)
    return again


def work_of(
    graph: Graph,
    position: int,
    shapes: Shapes,
    layouts: Sequence[Layout | None],
    *,
    block: int = WIDEST_BLOCK,
) -> Work | None:
    """Return what a node does; None where a shape is not known that is needed to tell.

    Parameters
    ----------
    graph
        The graph.
    position
        The node.
    shapes
        For every node of the graph the shape of each output.
    layouts
        In which order every node writes images: :func:`written_layouts`.
    block
        The channels in the widest block of images on the machine that it runs on.
    """
    known = _known_shapes(graph, position, shapes)
    if known is None:
        return None
    node, (inputs, output) = graph.nodes[position], known
    # Later outputs that nothing reads have no shape.
    elements = sum(math.prod(shape) for shape in shapes[position] if shape is not None)
    for number, shape in enumerate(inputs):
        if shape == output or not _only_tells_a_shape(node, number):
            values = math.prod(shape)
            elements += min(values, math.prod(output)) if _is_looked_up(node, number) else values
    first = inputs[0] if inputs else None
    weight = inputs[1] if len(inputs) > 1 else None
    layout = layouts[node.inputs[0].node] if node.inputs else None
    is_layer = node.op in LAYERS
    groups = (integers(node.attrs.get("num_group", "")) or (1,))[0] if is_layer else 1
    return Work(
        multiply_adds=multiply_adds(graph, position, shapes) or 0,
        elements=elements,
        channels=first[1] if first is not None and len(first) > 1 else 0,
        is_depthwise=is_layer and groups > 1 and weight is not None and len(weight) > 2 and weight[1] == 1,
        has_bias=is_layer and len(inputs) > 2,
        rank=0 if first is None else len(first),
        attributes=node.attrs,
        inputs=inputs,
        output=output,
        is_blocked=first is not None and _may_be_blocked(first, block) and layout is not None,
        arrives_in=(PLAIN, PLAIN) if layout is None else (layout.float32, layout.low),
        is_cast_plain=layout is not None and layout.is_cast_plain,
        block=block,
    )


def as_depthwise(work: Work, attributes: Mapping[str, str]) -> Work:
    """Return what a depthwise Convolution with a 1x1 kernel does in the place of a BatchNorm of images.

    Parameters
    ----------
    work
        What the BatchNorm does.
    attributes
        The Convolution's attributes.
    """
    channels = work.output[1]
    return work._replace(
        multiply_adds=math.prod(work.output),
        is_depthwise=True,
        has_bias=True,
        attributes=attributes,
        inputs=(work.inputs[0], (channels, 1, 1, 1), (channels,)),
    )


def written_layouts(
    graph: Graph, shapes: Shapes, *, evens: bool = False, block: int = WIDEST_BLOCK
) -> Sequence[Layout | None]:
    """Return the order in which nodes write images where layers compute in FP32, and where in low dtypes.

    None for what is no layer's, and plain. Of volumes it is known only whether they are plain.

    Parameters
    ----------
    graph
        The graph.
    shapes
        For every node of the graph the shape of each output.
    evens
        Whether a low layer of an odd number of channels, and few, will read one more.
    block
        The channels in the widest block of images on the machine that they run on.

    Notes
    -----
    What computes in FP32 alone finds plain order behind a cast, so it is looked at only in FP32 which order
    it writes over.
    """
    found: list[Layout | None] = []
    for position, node in enumerate(graph.nodes):
        sources = layout_sources(graph, position)
        layout = None
        if node.op in WRITE_BLOCKS:
            layout = _layer_layouts(graph, position, shapes, evens=evens, block=block)
        elif sources:  # of a sum the first alone, as where kernels were timed that costs were fitted to
            layout = found[sources[0]]
        elif node.op in WRITE_OVER:
            over = _written_over(graph, position, shapes)
            below = None if over is None else found[over]
            if below is not None and below.float32 != PLAIN:
                layout = Layout(below.float32, PLAIN, over if below.over is None else below.over)
        found.append(layout)
    return found


def _written_over(graph: Graph, position: int, shapes: Shapes) -> int | None:
    """Return the node over whose values another writes its own: the first that it is the last to read."""
    written = shapes[position][0] if shapes[position] else None
    for entry in graph.nodes[position].inputs:
        is_free = not graph.nodes[entry.node].is_variable and entry not in graph.heads
        is_last = is_free and graph.uses_of(entry)[-1].node == position
        if is_last and shapes[entry.node][entry.output] == written:
            return entry.node
    return None


def _layer_layouts(graph: Graph, writer: int, shapes: Shapes, *, evens: bool, block: int) -> Layout:
    node = graph.nodes[writer]
    data, weight = (shapes[entry.node][entry.output] for entry in node.inputs[:2])
    output = shapes[writer][0]
    if data is None or weight is None or output is None or not _may_be_blocked(output, block):
        return Layout(PLAIN, PLAIN)
    if len(output) > _IMAGE:
        return Layout(BLOCKS, BLOCKS)
    float32 = layer_layout(node.op, node.attrs, data, weight, output, low=False, block=block)
    if evens and reads_odd_channels(node.op, node.attrs, weight):
        data, weight = ((size[0], size[1] + 1, *size[2:]) for size in (data, weight))
    low = layer_layout(node.op, node.attrs, data, weight, output, low=True, block=block)
    return Layout(float32, low)


def _may_be_blocked(shape: _Shape, block: int) -> bool:
    """Return whether a layer may write a tensor of so many axes in blocks of channels."""
    return len(shape) in BLOCKED_RANKS or (len(shape) == _SEQUENCE and block < WIDEST_BLOCK)


def _only_tells_a_shape(node: Node, number: int) -> bool:
    """Return whether a node looks at none of an input's values."""
    facts = FACTS.of(node.op, node.attrs)
    if facts is None:
        return False
    role = facts.role(number, node.attrs)
    return role is InputRole.LIKE or (facts.kind is ValueKind.GENERATE and role is InputRole.LIKE_SAME)


_LOOKED_UP_BY = 8
"""Inputs of an operator that looks something up, at most; others may have thousands."""


def _is_looked_up(node: Node, number: int) -> bool:
    """Return whether a node reads only what its other input asks for, as of an embedding's table."""
    facts = FACTS.of(node.op, node.attrs)
    if facts is None or facts.kind is not ValueKind.MOVE or number >= _LOOKED_UP_BY:
        return False
    roles = facts.all_roles(min(len(node.inputs), _LOOKED_UP_BY), node.attrs)
    return InputRole.INDEX in roles and roles[number] is InputRole.DATA
