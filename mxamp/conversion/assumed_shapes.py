"""Which shapes the inputs of a model probably have, where nobody says."""

from __future__ import annotations

import itertools
import math
from collections import deque
from dataclasses import dataclass, replace
from typing import Iterator, Mapping, NamedTuple, Sequence, Tuple

from mxamp.conversion.certain_ranks import certain_ranks
from mxamp.conversion.options import Options
from mxamp.conversion.told_size import OF_ANY_BATCH, sizes_said, told_side, told_size
from mxamp.errors import MxampError
from mxamp.graph.graph import Entry, Graph, Node, Use
from mxamp.graph.shapes import infer_entry_shapes
from mxamp.ops import FACTS, InputRole
from mxamp.ops.attributes import integers, is_true
from mxamp.ops.casts import CAST_OPERATORS
from mxamp.ops.parameters import LAYERS
from mxamp.params.parameter import Parameter
from mxamp.passes.axis_sizes import moved_axes
from mxamp.passes.global_pooling import REDUCTIONS
from mxamp.passes.images import ADAPTIVE_POOLING, reduces_places
from mxamp.targets.work import Shapes

Shape = Tuple[int, ...]

_OPEN = -1
"""A side of an image, which candidates fill in."""
_LENGTH = -2
"""The length of a sequence."""

_SIDES = (224, 299, 112, 32, 28, 64, 128, 256, 160, 192, 96, 320, 331, 384, 448, 512, 48, 24, 16, 12, 8, 4)
"""What classifiers take, the usual first."""
_SIDES_OF_DETECTORS = (512, 416, 300, 608, 320, 640, 224)
_SIDES_OF_SEGMENTATION = (480, 256, 224, 512, 768, 1024, 128, 64, 32)
_SIDE_OF_SMALL = 32
_HEIGHTS_OF_LINES = (48, 32, 64)
"""What networks take that read lines of text, which are as wide as what reads the line's steps says."""
_STRIDE = 16
"""What networks that take images of the usual sides make them smaller by."""
_IMAGE = 4
"""Axes of a batch of images."""

_NETWORK = 8
"""So many layers are no part of a network."""
_FRAMES = 32
_LENGTHS = (128, 64, 35, 32, 512, 1000, 16, 8)

_DETECTS = frozenset(
    {
        *("_contrib_box_nms", "_contrib_MultiBoxDetection", "_contrib_Proposal", "_contrib_ROIAlign"),
        *("ROIPooling", "topk"),  # CenterNet ranks peaks
    }
)
_DRAWS = frozenset({"_contrib_BilinearResize2D", "Deconvolution", "UpSampling"})
_CLASSIFIES = "FullyConnected"
"""What networks that draw have none of; HRNet's classifiers make features larger on their way."""
_OF_TWO = frozenset(
    {f"{kind}_{name}" for kind in ("elemwise", "broadcast") for name in ("add", "sub", "mul", "div")}
)
"""Operators whose second input is data as their first is, and not a box, a state or a size."""
_CUTS = "SliceChannel"
"""What gives each step of an unrolled network its part of the data."""
_MOVES_AXES = frozenset({_CUTS, "SwapAxis", "expand_dims", "squeeze", "transpose"})
"""What must be undone to tell what was read."""
_LOOKS_UP = "Embedding"


@dataclass(frozen=True)
class AssumedShapes:
    """Shapes under which a model's layers fit together.

    Attributes
    ----------
    inputs
        Input name -> the shape that was assumed.
    entries
        For every node the shape of each output, where known.
    have_certain_axes
        Whether inputs of no other numbers of axes can be fed. By such shapes every pass may choose, for it is
        right for all sizes; what a FullyConnected flattens may come with any number of axes.
    """

    inputs: Mapping[str, Shape]
    entries: Shapes
    have_certain_axes: bool = False


class _Sides(NamedTuple):
    """The sides of an image."""

    height: int
    width: int


class _Form(NamedTuple):
    """The shape of an input with its open sizes marked."""

    sizes: Shape
    has_certain_axes: bool


def assumed_for(options: Options, graph: Graph, params: Mapping[str, Parameter]) -> AssumedShapes | None:
    """Return the shapes to choose by in a conversion that was given none; None where nothing is weighed.

    That is for targets whose costs were measured: those that were not are no reason to depart from the plan
    that is made without shapes. And not where low precision is an order.
    """
    cost = options.target.cost
    if cost is None or not cost.is_measured or options.low_precision is not None or options.policy.is_pure:
        return None
    shapes = {name: parameter.shape for name, parameter in params.items()}
    inputs = [name for name in graph.variables if name not in params]
    return assume_shapes(graph, shapes, inputs)


def assumed_again(
    earlier: AssumedShapes, graph: Graph, params: Mapping[str, Parameter]
) -> AssumedShapes | None:
    """Return what the same inputs make of the graph in another form; None where nothing follows.

    Parameters
    ----------
    earlier
        What was assumed.
    graph, params
        The graph as it is now.
    """
    found = _inferred(graph, {name: value.shape for name, value in params.items()}, earlier.inputs)
    return None if found is None else replace(found, have_certain_axes=earlier.have_certain_axes)


def assume_shapes(graph: Graph, params: Mapping[str, Shape], inputs: Sequence[str]) -> AssumedShapes | None:
    """Return shapes that a model's inputs may have; None where nothing that is tried fits.

    Parameters
    ----------
    graph
        The graph.
    params
        The shapes of its parameters and auxiliary states by name.
    inputs
        Its inputs.

    Notes
    -----
    What an input says of its own shape (``__shape__``) is taken. Otherwise the layer that reads it first
    has a weight, which tells the number of channels and of axes; batches are of one. The sides of an
    image, and the length of a sequence, are tried, the usual ones of that kind of model first, until
    there is a shape for every layer: where one flattens its input, its weight has as many columns as
    there are values, and only one side fits, or one height and every width: lines of text are as wide as
    images usually are. Layers that read rows tell one side, what is put together with images that are
    resized to a size tells both, and layers that flatten sequences tell their length. Where every side
    does, as before a global pooling, the usual one stays, but a network whose features are still large
    there was made for small images. Where nothing at all tells, because every side fits and none is
    reduced, nothing is assumed of a few layers, and the usual side of a network.
    """
    ranks = certain_ranks(graph, params)
    told = {name: form for name in inputs for form in [_form(graph, params, ranks, name)] if form is not None}
    if not told:
        return None
    is_certain = len(told) == len(inputs) and all(form.has_certain_axes for form in told.values())
    found = _first_that_fits(graph, params, {name: form.sizes for name, form in told.items()}, inputs)
    return None if found is None else replace(found, have_certain_axes=is_certain)


def _first_that_fits(
    graph: Graph, params: Mapping[str, Shape], forms: Mapping[str, Shape], inputs: Sequence[str]
) -> AssumedShapes | None:
    for known in _candidates(graph, params, forms, [name for name in inputs if name not in forms]):
        found = _inferred(graph, params, known)
        if found is None:
            continue
        found = _widened(graph, params, forms, found)
        known = found.inputs
        if _SIDES[0] in itertools.chain(*known.values()) and _has_large_features(graph, found.entries):
            small = {
                name: tuple(_SIDE_OF_SMALL if size == _SIDES[0] else size for size in shape)
                for name, shape in known.items()
            }
            return _inferred(graph, params, small) or found
        return found if _is_told(graph, params, forms, found) else None
    return None


def _widened(
    graph: Graph, params: Mapping[str, Shape], forms: Mapping[str, Shape], found: AssumedShapes
) -> AssumedShapes:
    """Return shapes with images of the usual width, where only heights are told, as of lines of text."""
    wide = dict(found.inputs)
    for name, form in forms.items():
        if form[-2:] == (_OPEN, _OPEN) and wide[name][-1] < _SIDES[0]:
            wide[name] = (*wide[name][:-1], _SIDES[0])
    if wide == found.inputs:
        return found
    return _inferred(graph, params, wide) or found


def _candidates(
    graph: Graph, params: Mapping[str, Shape], forms: Mapping[str, Shape], others: Sequence[str]
) -> Iterator[Mapping[str, Shape]]:
    """Yield shapes to try, the usual first; inputs that no layer reads are one number, or what follows."""
    ops = {FACTS.canonical(node.op) for node in graph.nodes}
    sides: Sequence[_Sides] = (_Sides(0, 0),)
    draws = ops & _DRAWS and _CLASSIFIES not in ops
    first = _SIDES_OF_DETECTORS if ops & _DETECTS else _SIDES_OF_SEGMENTATION if draws else ()
    usual = list(dict.fromkeys((*first, *_SIDES)))
    most = usual[0]
    one = dict.fromkeys(others, (1,))

    def filled(sides: _Sides, length: int = _LENGTHS[0]) -> Mapping[str, Shape]:
        return {**_filled(forms, sides, length), **one}

    def line(height: int) -> Iterator[_Sides]:
        """Yield the line of text that is as wide as a layer or a Reshape says."""
        width = told_size(graph, params, lambda size: filled(_Sides(height, size)), flat=True)
        if width is not None:
            yield _Sides(height, width)

    lines: Iterator[_Sides] = iter(())
    if any(_OPEN in form for form in forms.values()):
        height, width = (
            told_size(graph, params, fill, flat=False) or told_side(graph, params, fill, axis)
            for axis, fill in (
                (-2, lambda size: filled(_Sides(size, most))),
                (-1, lambda size: filled(_Sides(most, size))),
            )
        )
        # Where neither is told this is the usual image, which is tried once.
        first_sides = _Sides(height or most, width or most)
        sides = tuple(dict.fromkeys([first_sides, *[_Sides(side, side) for side in usual]]))
        lines = itertools.chain.from_iterable(map(line, _HEIGHTS_OF_LINES))  # where no image fits
    lengths: Sequence[int] = (0,)
    if any(_LENGTH in form for form in forms.values()):
        fitting = told_size(graph, params, lambda size: filled(_Sides(most, most), size), flat=True)
        lengths = tuple(dict.fromkeys((fitting or _LENGTHS[0], *_LENGTHS)))
    for side in itertools.chain(sides, lines):
        for length in lengths:
            if others:
                yield filled(side, length)
            yield _filled(forms, side, length)


def _filled(forms: Mapping[str, Shape], sides: _Sides, length: int = _LENGTHS[0]) -> Mapping[str, Shape]:
    """Return forms with sizes for what is open: of two sides the last is the width."""
    found: dict[str, Shape] = {}
    for name, form in forms.items():
        left = iter(sides if form.count(_OPEN) == len(sides) else sides[-1:])
        found[name] = tuple(
            [next(left) if size == _OPEN else length if size == _LENGTH else size for size in form]
        )
    return found


def _inferred(graph: Graph, params: Mapping[str, Shape], known: Mapping[str, Shape]) -> AssumedShapes | None:
    """Return the shapes of all entries; None where they contradict each other, or a layer's is not known."""
    try:
        entries = infer_entry_shapes(graph, known, params).entries
    except MxampError:  # the conversion needs no shapes, and tells what is wrong with the graph better
        return None
    for node, outputs in zip(graph.nodes, entries):
        op = FACTS.canonical(node.op)
        if op in LAYERS and outputs[0] is None:
            return None
        if op == "Reshape" and _cuts_image(node, entries[node.inputs[0].node][node.inputs[0].output]):
            return None
    return AssumedShapes(known, entries)


def _cuts_image(node: Node, shape: Shape | None) -> bool:
    """Return whether a Reshape to rows makes several of an image, of more values than a place has.

    Where it was written for images of one size, a row is a whole image.
    """
    said = sizes_said(node)
    if said is None or said.batch != -1 or len(said.sizes) != 1 or shape is None or len(shape) != _IMAGE:
        return False
    return max(shape[1], shape[-1]) < said.sizes[0] < math.prod(shape[1:])


def _is_told(
    graph: Graph, params: Mapping[str, Shape], forms: Mapping[str, Shape], found: AssumedShapes
) -> bool:
    """Return whether sides of images are to be assumed: large strides tell, or a layer that takes no others.

    A network that keeps its images as large as they come, or nearly so, draws or restores them: what it is
    fed with is hardly smaller than what others are.
    """
    sides = [
        size
        for name, form in forms.items()
        for size, given in zip(found.inputs[name], form)
        if given == _OPEN
    ]
    if not sides or _smallest_side(graph, found.entries) * _STRIDE <= max(sides):
        return True
    if sum(node.op in LAYERS for node in graph.nodes) >= _NETWORK:
        return True
    twice = dict(found.inputs)
    twice.update(
        (name, tuple(2 * size if given == _OPEN else size for size, given in zip(found.inputs[name], form)))
        for name, form in forms.items()
    )
    return _inferred(graph, params, twice) is None


def _smallest_side(graph: Graph, shapes: Shapes) -> int:
    """Return the least side of what layers make of images."""
    made = [outputs[0] for node, outputs in zip(graph.nodes, shapes) if node.op in LAYERS]
    return min([min(shape[-2:]) for shape in made if shape is not None and len(shape) > 3], default=1)


def _has_large_features(graph: Graph, shapes: Shapes) -> bool:
    """Return whether what is pooled to one value at last is an eighth of the image's side, or more."""
    smallest = None
    for node in graph.nodes:
        if not _pools_all(node):
            continue
        read = shapes[node.inputs[0].node][node.inputs[0].output]
        if read is not None and len(read) == 4:
            smallest = min(read[2:]) if smallest is None else min(smallest, *read[2:])
    return smallest is not None and smallest >= _SIDES[0] // 8


def _pools_all(node: Node) -> bool:
    """Whether a node makes one value of an image, in any of the forms that mean so."""
    op = FACTS.canonical(node.op)
    if op == "Pooling":
        return is_true(node.attrs, "global_pool", default=False)
    return op == ADAPTIVE_POOLING or (op in REDUCTIONS and reduces_places(node))


def _form(graph: Graph, params: Mapping[str, Shape], ranks: Mapping[Entry, int], name: str) -> _Form | None:
    """Return the form of an input; None where its readers do not tell."""
    position = graph.variables[name]
    declared = integers(graph.nodes[position].attrs.get("__shape__", "")) or ()
    if declared and all(size > 0 for size in declared[1:]):
        return _Form((max(1, declared[0]), *declared[1:]), True)
    # Nodes on the way to a reader that cut or move axes, the last first.
    moves: tuple[Node, ...] = ()
    waiting, seen = deque([(position, moves)]), {position}
    while waiting:
        at, moves = waiting.popleft()
        for use in _readers(graph, at):
            node = graph.nodes[use.node]
            form = _form_read(graph, params, node, use.input)
            if at == position and form is None:
                form = _form_reshaped(node)
            for move in moves:
                form = None if form is None else _before(form, move)
            if form is not None:
                return _Form(form, ranks.get(Entry(position)) == len(form))
            op = FACTS.canonical(node.op)
            is_data = use.input == 0 or op in _OF_TWO
            if is_data and use.node not in seen:
                seen.add(use.node)
                waiting.append((use.node, (node, *moves) if op in _MOVES_AXES else moves))
    return None


def _form_reshaped(node: Node) -> Shape | None:
    """Return what a Reshape makes of an input, where it says all sizes: the input has as many values."""
    said = sizes_said(node)
    return (1, *said.sizes) if said is not None and said.batch in OF_ANY_BATCH else None


def _readers(graph: Graph, position: int) -> Sequence[Use]:
    """Return the places that read a node, those behind casts too: a converted model tells what FP32 told."""
    found: list[Use] = []
    waiting = [position]
    while waiting:
        for places in graph.uses[waiting.pop()].values():
            for use in places:
                if FACTS.canonical(graph.nodes[use.node].op) in CAST_OPERATORS:
                    waiting.append(use.node)
                else:
                    found.append(use)
    return sorted(found)


def _before(form: Shape, node: Node) -> Shape | None:
    """Return the form of what a node reads whose result has a form; None where the two do not fit."""
    op = FACTS.canonical(node.op)
    if op == _CUTS:
        return _uncut(form, node)
    if op in ("SwapAxis", "transpose"):
        order = moved_axes(node, len(form))
        return None if order is None else tuple([form[order.index(axis)] for axis in range(len(form))])
    axes = integers(node.attrs.get("axis", "()")) or ()
    if op == "squeeze":
        rank = len(form) + len(axes)
        kept = iter(form)
        gone = {axis % rank for axis in axes if -rank <= axis < rank}
        return tuple([1 if axis in gone else next(kept) for axis in range(rank)]) if gone else None
    (axis,) = axes if len(axes) == 1 else (len(form),)
    if not -len(form) <= axis < len(form) or form[axis] > 1:
        return None
    left = (*form[: axis % len(form)], *form[axis % len(form) + 1 :])
    # What has one side is no image.
    return tuple([_LENGTH if size == _OPEN and left.count(_OPEN) == 1 else size for size in left])


def _uncut(form: Shape, node: Node) -> Shape:
    """Return the form of what a node cuts into parts of a form, as a network unrolled over steps does."""
    parts = (integers(node.attrs.get("num_outputs", "1")) or (1,))[0]
    axis = (integers(node.attrs.get("axis", "1")) or (1,))[0]
    if is_true(node.attrs, "squeeze_axis", default=False):
        axis = axis % (len(form) + 1)
        return (*form[:axis], parts, *form[axis:])
    axis = axis % len(form)
    size = form[axis] * parts if form[axis] > 0 else form[axis]
    return (*form[:axis], size, *form[axis + 1 :])


def _form_read(graph: Graph, params: Mapping[str, Shape], node: Node, number: int) -> Shape | None:
    """Return the form of what a node reads as one of its inputs; None where the node does not tell."""
    op = FACTS.canonical(node.op)
    facts = FACTS.of(node.op, node.attrs)
    if op == _LOOKS_UP and facts is not None and facts.role(number, node.attrs) is InputRole.INDEX:
        return (1, _LENGTH)
    if op not in LAYERS or number != 0 or len(node.inputs) < 2:
        return None
    weight = params.get(graph.nodes[node.inputs[1].node].name)
    if weight is None or len(weight) < 2:
        return None
    if op == "FullyConnected":
        columns = weight[1]
        return (1, columns) if is_true(node.attrs, "flatten", default=True) else (1, _LENGTH, columns)
    groups = (integers(node.attrs.get("num_group", "1")) or (1,))[0]
    is_last = node.attrs.get("layout", "None") in ("NHWC", "NWC", "NDHWC")
    # A weight is (out, in, ...), with channels last (out, ..., in), and turned round (in, out, ...).
    channels = weight[0 if op == "Deconvolution" else -1 if is_last else 1]
    channels *= 1 if op == "Deconvolution" else groups
    if op == "Deconvolution" and groups == channels > 1:
        return None  # bilinear upsampling, in whatever words: it tells no size
    space: Shape = {3: (_LENGTH,), 4: (_OPEN, _OPEN), 5: (_FRAMES, _OPEN, _OPEN)}.get(len(weight), ())
    if not space:
        return None
    if op == "Deconvolution":  # a generator, which starts from one place
        space = (1,) * len(space)
    return (1, *space, channels) if is_last else (1, channels, *space)
