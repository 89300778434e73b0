"""Let convolutions read the parts of what was put together, where putting together is slow."""

from __future__ import annotations

import math
from typing import Mapping, NamedTuple, Sequence

from mxamp.decisions.decision import Decision
from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import CHANNELS_FIRST
from mxamp.params.parameter import ArrayParameter
from mxamp.passes.edit import GraphEdit, NodeShapes
from mxamp.passes.planned import PlannedPass
from mxamp.passes.preparation import own_attributes
from mxamp.passes.state import Done, State

_IMAGE = 4

_VALUE_NS = 2.3
"""What a value takes that Concat writes, beyond what readers spare: two parts of 64 channels of 55 x 55 take
1.0 ms, 2.7 ns each, in batches 0.4 (AMD EPYC of family 23, one thread), ..."""

_SUM_NS, _KERNEL_NS = 0.3, 8000.0
"""... what a layer takes for each value that it adds to, and another kernel however small."""

_MOST_PARTS = 4
"""What grows from layer to layer is put together again and again, but every fourth time is enough."""

_CARRIERS = frozenset({"Activation", "BatchNorm", "Pooling"})
"""What computes each channel from the same channel of an image, as depthwise layers do."""


class _Joined(NamedTuple):
    """Channels that were put together, and who reads them."""

    concat: int
    parts: Sequence[Entry]
    sizes: Sequence[int]
    """Channels of each part."""
    carriers: Sequence[int]
    layers: Sequence[int]


class SeparateParts(PlannedPass):
    """Replace convolutions of channels that were put together by sums of convolutions of the parts.

    Before::

        x (64 channels), y (32) -> Concat [-> BatchNorm -> Activation] -> Convolution(weight, bias) -> z

    After::

        x [-> BatchNorm -> Activation] -> Convolution(weight of the first 64 channels, bias) -> u
        y [-> BatchNorm -> Activation] -> Convolution(weight of the last 32) -> elemwise_add(u) -> z

    Pooling is done to the parts as well, and another Concat puts them together. Of what grows from layer to
    layer, as in DenseNet, some are put together still, which are parts then.

    Refuses: where anything computes low, or in float64; batches of more than one; where anything else reads
    what is put together, or it is a graph output; more than four parts; layers in groups, of channels last or
    whose weight has other readers; parts whose channels are not known, or fill no blocks; a node that a rule
    of the user's picks; the bodies of control flow; and where it does not pay.

    Notes
    -----
    Why: for one image oneDNN's Concat of blocks of channels copies value by value, 2.7 ns each, and for
    several 0.4. Two parts of 64 channels of 55 x 55 and the 1x1 layer of 16 filters that reads them take 1.23
    ms, and so 0.18; 64 filters of 3x3 over 112 x 112 24.0 and 19.5, 1,000 over 512 channels of 13 x 13 2.1
    and 1.8 (AMD EPYC of family 23, float32, one thread). With AVX-512 most layers keep channels last, which
    Concat puts together pixel by pixel, so targets of such CPUs do not name the pass.

    It waits until BatchNorm is folded into the layers before it, which sums would keep from it.

    Numerical effect: the terms of a sum come in another order, that of the parts. Linear in nodes and parts.
    """

    step = "separate_parts"

    def run(self, state: State) -> Done | None:
        """Return the graph in which layers read parts."""
        if not self.plan(state).is_float32:
            return None
        separated: dict[int, _Joined] = {}
        spliced: dict[int, Sequence[Entry]] = {}
        channels: dict[Entry, int | None] = {}
        for position, node in enumerate(state.graph.nodes):
            if not _is_concat(node):
                continue
            sizes = [_channels(state, part, channels) for part in node.inputs]
            known = [size for size in sizes if size is not None]
            channels[Entry(position)] = sum(known) if len(known) == len(sizes) else None
            parts = [one for part in node.inputs for one in _parts(part, separated)]
            joined = _joined(state, position, parts, channels)
            if joined is not None and _pays(state, joined):
                separated[position] = joined
            elif len(parts) > len(node.inputs):
                spliced[position] = parts
        if not separated:
            return None
        edit, records = GraphEdit(state.graph, state.params), []
        decisions = dict(_put_together(self.plan(state).decisions, edit, state.graph, spliced))
        for joined in separated.values():
            decisions.update(_separate(self.plan(state).decisions, state, edit, joined))
            reason = "its readers read the parts, for to put them together takes longer"
            gone = (joined.concat, *joined.carriers)
            records += [self.changed(state, position, reason, is_gone=True) for position in gone]
            reason = "computed of each part and summed, which is faster than to put the parts together"
            records += [self.changed(state, position, reason) for position in joined.layers]
        return Done(edit.finish(), tuple(records), decisions)


def _is_concat(node: Node) -> bool:
    return FACTS.canonical(node.op) == "Concat" and node.attrs.get("dim", "1") == "1"


def _parts(entry: Entry, separated: Mapping[int, _Joined]) -> Sequence[Entry]:
    return separated[entry.node].parts if entry.node in separated else (entry,)


def _put_together(
    decided: Sequence[Decision | None],
    edit: GraphEdit,
    graph: Graph,
    spliced: Mapping[int, Sequence[Entry]],
) -> Mapping[int, Decision]:
    """Let what stays put together read parts; return the new decisions."""
    decisions = {}
    for position, parts in spliced.items():
        node, decision = graph.nodes[position], decided[position]
        assert decision is not None  # it is an operator
        attrs = {**node.attrs, "num_args": str(len(parts))}
        edit.replace(position, node._replace(attrs=attrs, inputs=tuple(parts), input_versions=()))
        decisions[position] = decision._replace(inputs=(DType.FLOAT32,) * len(parts))
    return decisions


def _separate(
    decided: Sequence[Decision | None], state: State, edit: GraphEdit, joined: _Joined
) -> Mapping[int, Decision]:
    """Write the readers of one Concat; return the decisions for what was put in."""
    graph = state.graph
    decisions: dict[int, Decision] = {}
    parts = {Entry(joined.concat): joined.parts}

    def put(position: int, what: str, made: Node, channels: int) -> Entry:
        decision = decided[position]
        assert decision is not None  # it is an operator
        shapes = _with_channels(state.usual_shape(Entry(position)), channels, made.num_outputs)
        named = made._replace(name=f"{graph.nodes[position].name}_{what}", input_versions=(), control_deps=())
        entry = edit.insert(named, before=position, shapes=shapes)
        inputs = (DType.FLOAT32,) * len(made.inputs)
        outputs = (DType.FLOAT32,) * made.num_outputs
        decisions[entry.node] = decision._replace(inputs=inputs, outputs=outputs, attrs=())
        return entry

    def slices(position: int, axis: int) -> Sequence[list[Entry]]:
        """Return a node's parameters for each part, those with an axis of channels cut; each is read once."""
        found: list[list[Entry]] = [[] for _ in joined.sizes]
        for entry in graph.nodes[position].inputs[1:]:
            name, parameter = graph.nodes[entry.node].name, state.parameter(entry)
            assert parameter is not None  # it was looked at
            values, first = parameter.values() if axis < len(parameter.shape) else None, 0
            for number, size in enumerate(joined.sizes):
                read = entry
                if values is not None:
                    cut = values[(slice(None),) * axis + (slice(first, first + size),)]
                    own = ArrayParameter(cut.copy())
                    read = edit.add_parameter(f"{name}_part{number}", own, [name], before=position)
                    first += size
                found[number].append(read)
        return found

    for position in joined.carriers:
        node = graph.nodes[position]
        own_parts = []
        read_by = zip(parts[node.inputs[0]], joined.sizes, slices(position, 0))
        for number, (part, size, parameters) in enumerate(read_by):
            attrs = node.attrs
            if node.op == "Convolution":
                attrs = {**attrs, "num_filter": str(size), "num_group": str(size)}
            made = node._replace(attrs=attrs, inputs=(part, *parameters))
            own_parts.append(put(position, f"part{number}", made, size))
        parts[Entry(position)] = own_parts
    for position in joined.layers:
        node = graph.nodes[position]
        filters = state.params[graph.nodes[node.inputs[1].node].name].shape[0]
        layers = []
        for number, (part, parameters) in enumerate(zip(parts[node.inputs[0]], slices(position, 1))):
            weight, *bias = parameters
            attrs = node.attrs if not number else {**node.attrs, "no_bias": "True"}
            made = node._replace(attrs=attrs, inputs=(part, weight, *([] if number else bias)))
            layers.append(put(position, f"part{number}", made, filters))
        total = layers[0]
        for number, layer in enumerate(layers[1:-1], 1):
            total = put(position, f"sum{number}", Node("elemwise_add", "", {}, (layer, total)), filters)
        added = Node("elemwise_add", node.name, own_attributes(node), (layers[-1], total))
        edit.replace(position, added._replace(control_deps=node.control_deps))
        decision = decided[position]
        assert decision is not None  # it is an operator
        decisions[position] = decision._replace(inputs=(DType.FLOAT32,) * 2, attrs=())
    for position in (joined.concat, *joined.carriers):
        edit.drop(position)
    return decisions


def _joined(
    state: State, concat: int, parts: Sequence[Entry], channels: Mapping[Entry, int | None]
) -> _Joined | None:
    """Return a Concat with its readers; None where it stays."""
    graph = state.graph
    shape = state.usual_shape(Entry(concat))
    if (
        not 2 <= len(parts) <= _MOST_PARTS
        or shape is None
        or len(shape) != _IMAGE
        or shape[0] != 1
        or any(part.node not in state.images for part in parts)
    ):
        return None
    sizes = [size for part in parts for size in [_channels(state, part, channels)] if size is not None]
    if len(sizes) < len(parts) or any(size % state.target.block for size in sizes):
        return None
    carriers: list[int] = []
    layers: list[int] = []
    waiting = [concat]
    while waiting:
        position = waiting.pop()
        is_fixed = state.is_fixed(position, updating=False)  # a BatchNorm is as if it did not train
        if position in state.heads or is_fixed or set(graph.uses[position]) - {0}:
            return None
        for use in graph.uses_of(Entry(position)):
            if use.input == 0 and _carries(state, use.node, sum(sizes)):
                carriers.append(use.node)
                waiting.append(use.node)
            elif use.input == 0 and _is_layer(state, use.node, sum(sizes)):
                layers.append(use.node)
            elif position != concat or not _is_concat(graph.nodes[use.node]) or state.is_fixed(use.node):
                return None
    return _Joined(concat, parts, sizes, sorted(carriers), sorted(layers))


def _channels(state: State, entry: Entry, put_together: Mapping[Entry, int | None]) -> int | None:
    """Return the channels of an image, also of one that was put together."""
    return put_together[entry] if entry in put_together else state.image_origins.channels_of(entry)


def _carries(state: State, position: int, channels: int) -> bool:
    """Return whether a node does to each channel of an image what needs no other."""
    node = state.graph.nodes[position]
    is_depthwise = node.op == "Convolution" and (
        node.attrs.get("num_group") == node.attrs.get("num_filter") == str(channels)
    )
    is_first = node.attrs.get("layout", "None") in CHANNELS_FIRST and node.attrs.get("axis", "1") == "1"
    parameters = [state.parameter(entry) for entry in node.inputs[1:]]
    return (
        (is_depthwise or FACTS.canonical(node.op) in _CARRIERS)
        and is_first
        and all(one is not None and one.dtype is DType.FLOAT32 and not one.is_sparse for one in parameters)
    )


def _is_layer(state: State, position: int, channels: int) -> bool:
    node = state.graph.nodes[position]
    if FACTS.canonical(node.op) != "Convolution" or state.is_fixed(position):
        return False
    weight = state.own_parameter(node.inputs[1])
    return (
        weight is not None
        and len(weight.shape) == _IMAGE
        and weight.shape[1] == channels
        and node.attrs.get("num_group", "1") == "1"
        and node.attrs.get("layout", "None") in CHANNELS_FIRST
        and all(state.parameter(bias) is not None for bias in node.inputs[2:])
    )


def _pays(state: State, joined: _Joined) -> bool:
    """Return whether sums take less than to put together, going by what was measured."""
    written = state.usual_shape(Entry(joined.concat))
    layers = [state.usual_shape(Entry(position)) for position in joined.layers]
    if written is None or any(shape is None for shape in layers):
        return False
    more = len(joined.sizes) - 1
    kernels = more * (len(joined.layers) + len(joined.carriers))
    summed = more * sum(math.prod(shape) for shape in layers if shape is not None)
    return _VALUE_NS * math.prod(written) > _SUM_NS * summed + _KERNEL_NS * kernels


def _with_channels(shape: tuple[int, ...] | None, channels: int, outputs: int) -> NodeShapes:
    known = None if shape is None else (shape[0], channels, *shape[2:])
    return (known, *((channels,),) * (outputs - 1))
