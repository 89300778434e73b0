"""Which entries of a graph certainly have one shape, whatever is fed to it."""

from __future__ import annotations

from typing import Callable, Hashable, Mapping, Sequence

from mxamp.graph.graph import VARIABLE, Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import CHANNELS_FIRST, integers, is_true
from mxamp.ops.shapes.elementwise import BROADCASTING, SHAPED_AS_FIRST
from mxamp.params.parameter import Parameter

KEEP_SHAPE = SHAPED_AS_FIRST | {"BatchNorm", "GroupNorm", "InstanceNorm", "LayerNorm", "_grad_add"}
"""What has the shape of its first input. (``elemwise_add`` and ``add_n`` refuse inputs of two shapes.)"""

_BATCH, _CHANNELS, _PLANE = 1, 2, 3


class EqualShapes:
    """Tells whether two entries certainly have one shape.

    Every entry gets a key, which says how its shape comes about: entries of one key have one shape, of two
    keys perhaps not. An image's says where its batch comes from, how many channels it has, and what its plane
    was at first and went through: a 3x3 Convolution with stride 2 and padding 1 makes the same plane as a 1x1
    Convolution with stride 2 does, and as a Pad and a Convolution without padding.

    Parameters
    ----------
    graph
        The graph.
    params
        Its parameters by name: their shapes are known.
    sizes
        The sizes of an entry's axes, as far as they are the same in every call; None where nothing is known.
    """

    def __init__(
        self,
        graph: Graph,
        params: Mapping[str, Parameter],
        sizes: Callable[[Entry], Sequence[object] | None] = lambda entry: None,
    ) -> None:
        self._sizes = sizes
        self._numbers: dict[Hashable, int] = {}
        self._grown: dict[Hashable, tuple[Hashable, Sequence[int]]] = {}
        """A plane -> of which it has all places but those at its edges -> and by how many it is longer."""
        self._keys: list[Hashable] = []
        for position, node in enumerate(graph.nodes):
            parameter = params.get(node.name) if node.op == VARIABLE else None
            if parameter is not None:
                self._keys.append(("shape", parameter.shape))
            else:
                key = self._made(position, node)
                self._keys.append(self._unknown(position) if key is None else key)

    def are_equal(self, one: Entry, other: Entry) -> bool:
        """Return whether two entries certainly have one shape."""
        return self._key(one) == self._key(other)

    def _key(self, entry: Entry) -> Hashable:
        return ("entry", *entry) if entry.output else self._keys[entry.node]

    def _unknown(self, position: int) -> Hashable:
        """Return the key of what nothing is known of, but perhaps that it has so many channels."""
        key, sizes = ("entry", position, 0), self._sizes(Entry(position))
        if sizes is None or len(sizes) <= _CHANNELS or not isinstance(sizes[_CHANNELS - 1], int):
            return key
        return ("image", ("batch", key), sizes[_CHANNELS - 1], ("plane", key))

    def _made(self, position: int, node: Node) -> Hashable | None:
        """Return the key of what a node makes; None where nothing is known."""
        if not node.inputs:
            return None
        op, keys = FACTS.canonical(node.op), [self._key(entry) for entry in node.inputs]
        if op in KEEP_SHAPE:
            return keys[0]
        if op in BROADCASTING:
            return keys[0] if len(set(keys)) == 1 else self._stretched(position, node)
        if op == "FullyConnected":
            hidden = integers(node.attrs.get("num_hidden", ""))
            if not hidden:
                return None
            if is_true(node.attrs, "flatten", default=True):
                return ("image", _part(keys[0], _BATCH, "batch"), hidden[0], "no plane")
            return ("rows", _rows(keys[0]), hidden)
        if op == "Convolution" and node.attrs.get("layout", "None") in CHANNELS_FIRST:
            filters = integers(node.attrs.get("num_filter", ""))
            return self._windowed(node, keys[0], filters[0]) if filters else None
        if op == "Pooling" and node.attrs.get("layout", "None") in CHANNELS_FIRST:
            if is_true(node.attrs, "global_pool", default=False):
                return None
            return self._windowed(node, keys[0], _part(keys[0], _CHANNELS, "channels"))
        if op == "Concat" and node.attrs.get("dim", "1") == "1":
            batch, plane = _part(keys[0], _BATCH, "batch"), _part(keys[0], _PLANE, "plane")
            joined = tuple([_part(key, _CHANNELS, "channels") for key in keys])
            counts = [count for count in joined if isinstance(count, int)]
            channels = sum(counts) if len(counts) == len(joined) else self._number("joined", joined)
            return ("image", batch, channels, plane)
        if op == "slice_axis":
            return _first_channels(node, keys[0])
        if op == "Pad":
            return self._padded(node, keys[0])
        return None

    def _number(self, *key: Hashable) -> Hashable:
        """Return a short key for one that holds others, which would nest as deep as the graph is."""
        return ("number", self._numbers.setdefault(key, len(self._numbers)))

    def _stretched(self, position: int, node: Node) -> Hashable | None:
        """Return the key of the input that no other one stretches, as of an image that is weighted."""
        own = self._sizes(Entry(position))
        alike = [entry for entry in node.inputs if own is not None and self._sizes(entry) == own]
        return self._key(alike[0]) if alike else None

    def _windowed(self, node: Node, source: Hashable, channels: Hashable) -> Hashable | None:
        """Return the key of what a window makes that moves over a plane."""
        kernel = integers(node.attrs.get("kernel", ""))
        if kernel is None:
            return None
        axes = len(kernel)
        strides = for_each_place(node, "stride", axes, 1)
        pads = for_each_place(node, "pad", axes, 0)
        dilations = for_each_place(node, "dilate", axes, 1)
        if strides is None or pads is None or dilations is None:
            return None
        # floor((size + 2 pad - dilation (kernel - 1) - 1) / stride) + 1; ceil for pooling that is "full".
        steps = [
            (2 * pad - dilation * (size - 1), stride)
            for size, stride, pad, dilation in zip(kernel, strides, pads, dilations)
        ]
        plane = self._moved(
            _part(source, _PLANE, "plane"), steps, node.attrs.get("pooling_convention", "valid")
        )
        return ("image", _part(source, _BATCH, "batch"), channels, plane)

    def _padded(self, node: Node, source: Hashable) -> Hashable | None:
        """Return the key of an image with more places at its edges."""
        width = integers(node.attrs.get("pad_width", "")) or ()
        before, after = width[::2], width[1::2]
        if len(before) <= _CHANNELS or len(before) != len(after) or any(width[: 2 * _CHANNELS]):
            return None
        steps = [(sum(edges), 1) for edges in zip(before[_CHANNELS:], after[_CHANNELS:])]
        plane = self._moved(_part(source, _PLANE, "plane"), steps, "valid")
        return ("image", _part(source, _BATCH, "batch"), _part(source, _CHANNELS, "channels"), plane)

    def _moved(self, plane: Hashable, steps: Sequence[tuple[int, int]], convention: str) -> Hashable:
        """Return the key of what windows make of a plane that is so much longer, with strides like these."""
        base, longer = self._grown.get(plane, (plane, (0,) * len(steps)))
        if len(longer) != len(steps):
            base, longer = plane, (0,) * len(steps)
        steps = [(more + added, stride) for more, (added, stride) in zip(longer, steps)]
        grown = [more for more, stride in steps if stride == 1]
        if len(grown) < len(steps):
            return self._number("window", base, tuple(steps), convention)
        if not any(grown):
            return base
        key = self._number("window", base, tuple(steps), "valid")  # where no place is skipped both are one
        self._grown[key] = (base, grown)
        return key


def _part(key: Hashable, number: int, name: str) -> Hashable:
    """Return what is known of an image's batch, channels or plane, or else that it is this entry's."""
    if isinstance(key, tuple) and key[0] == "image":
        part: Hashable = key[number]
        return part
    return (name, key)


def _first_channels(node: Node, source: Hashable) -> Hashable | None:
    """Return the key of the first channels of an image, where it has so many."""
    axis, begin, end = (integers(node.attrs.get(key, "")) for key in ("axis", "begin", "end"))
    channels = _part(source, _CHANNELS, "channels")
    if axis != (1,) or begin != (0,) or end is None or not isinstance(channels, int):
        return None
    if len(end) != 1 or not 0 < end[0] <= channels:
        return None
    return ("image", _part(source, _BATCH, "batch"), end[0], _part(source, _PLANE, "plane"))


def _rows(key: Hashable) -> Hashable:
    """Return what is known of the axes before the last."""
    if isinstance(key, tuple) and key[0] == "rows":
        rows: Hashable = key[1]
        return rows
    return ("rows of", key)


def for_each_place(node: Node, attribute: str, axes: int, default: int) -> Sequence[int] | None:
    """Return one number for each axis of a plane; None where the attribute is none such."""
    values = integers(node.attrs.get(attribute, "()"))
    if values is None or len(values) not in (0, axes):
        return None
    return values or (default,) * axes
