"""Which shapes the inputs of a model probably have, where nobody says."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Iterator, Mapping, NamedTuple, Sequence, Tuple

from mxamp.conversion.certain_ranks import certain_ranks
from mxamp.conversion.options import Options
from mxamp.conversion.told_form import FRAMES, LENGTH, OPEN, told_form
from mxamp.conversion.told_size import sizes_said, told_length, told_side, told_size
from mxamp.decisions import LowPrecision
from mxamp.errors import MxampError
from mxamp.graph.graph import Graph, Node
from mxamp.graph.shapes import infer_entry_shapes
from mxamp.ops import FACTS
from mxamp.ops.attributes import is_true
from mxamp.ops.parameters import LAYERS
from mxamp.params.parameter import Parameter
from mxamp.passes.global_pooling import REDUCTIONS
from mxamp.passes.images import ADAPTIVE_POOLING, reduces_places
from mxamp.targets.work import Shapes

Shape = Tuple[int, ...]

_SIDES = (224, 299, 112, 32, 28, 64, 128, 256, 160, 192, 96, 320, 331, 384, 448, 512, 48, 24, 16, 12, 8, 4)
"""What classifiers take, the usual first."""
_SIDES_OF_DETECTORS = (512, 416, 300, 608, 320, 640, 224)
_SIDES_OF_SEGMENTATION = (480, 256, 224, 512, 768, 1024, 128, 64, 32)
_SIDE_OF_SMALL = 32
_HEIGHTS_OF_LINES = (48, 32, 64)
"""What networks take that read lines of text, which are as wide as what reads the line's steps says."""
_STRIDE = 16
"""What networks that take images of the usual sides make them smaller by; of sides that are told, and of
usual ones where none fits, strides may leave over as much."""
_IMAGE = 4
"""Axes of a batch of images."""

_NETWORK = 8
"""So many layers are no part of a network."""
_LENGTHS = (128, 64, 35, 32, 512, 1000, 16, 8, 4096, 16384)
"""The longest are of what is cut from long sequences, and of sounds."""

_FRAMES = (32, 16, 8, 64)

_DETECTS = frozenset(
    {
        *("_contrib_box_nms", "_contrib_MultiBoxDetection", "_contrib_Proposal", "_contrib_ROIAlign"),
        *("ROIPooling", "topk"),  # CenterNet ranks peaks
    }
)
_DRAWS = frozenset({"_contrib_BilinearResize2D", "Deconvolution", "UpSampling"})
_CLASSIFIES = "FullyConnected"
"""What networks that draw have none of; HRNet's classifiers make features larger on their way."""


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


def assumed_for(options: Options, graph: Graph, params: Mapping[str, Parameter]) -> AssumedShapes | None:
    """Return the shapes to choose by in a conversion that was given none; None where nothing is weighed.

    That is for targets whose costs were measured: those that were not are no reason to depart from the plan
    that is made without shapes. And not where low precision is an order.
    """
    cost = options.target.cost
    is_ordered = options.policy.is_pure or options.low_precision not in (None, LowPrecision.NONE)
    if cost is None or not cost.is_measured or is_ordered:
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
    resized to a size tells both, and layers that flatten sequences tell their length, as do arrays that are
    added to them; a clip has 32 frames, or else as many as fit. Where every side does, as before a global
    pooling, the usual one stays, but a network whose features are still large there was made for small
    images, unless it returns images. Where nothing at all tells, because every side fits and none is reduced,
    nothing is assumed of a few layers, and the usual side of a network.
    """
    ranks = certain_ranks(graph, params)
    forms = {name: told_form(graph, params, ranks, name) for name in inputs}
    told = {name: form for name, form in forms.items() if form is not None}
    if not told:
        return None
    is_certain = len(told) == len(inputs) and all(form.has_certain_axes for form in told.values())
    has_frames = any(FRAMES in form.sizes for form in told.values())
    for frames in _FRAMES if has_frames else _FRAMES[:1]:
        known = {
            name: tuple(frames if size == FRAMES else size for size in form.sizes)
            for name, form in told.items()
        }
        found = _first_that_fits(graph, params, known, inputs)
        if found is not None:
            return replace(found, have_certain_axes=is_certain)
    return None


def _first_that_fits(
    graph: Graph, params: Mapping[str, Shape], forms: Mapping[str, Shape], inputs: Sequence[str]
) -> AssumedShapes | None:
    for known in _candidates(graph, params, forms, [name for name in inputs if name not in forms]):
        found = _inferred(graph, params, known)
        if found is None:
            continue
        found = _widened(graph, params, forms, found)
        known = found.inputs
        is_usual = _SIDES[0] in itertools.chain(*known.values())
        if is_usual and _has_large_features(graph, found.entries) and not _restores(graph, found.entries):
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
        if form[-2:] == (OPEN, OPEN) and wide[name][-1] < _SIDES[0]:
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
    if any(OPEN in form for form in forms.values()):
        height, width = (
            told_size(graph, params, fill, flat=False) or told_side(graph, params, fill, axis)
            for axis, fill in (
                (-2, lambda size: filled(_Sides(size, most))),
                (-1, lambda size: filled(_Sides(most, size))),
            )
        )
        # Where neither is told this is the usual image, which is tried once.
        told = _Sides(height or most, width or most)
        larger = [_Sides(told.height + more, told.width + more) for more in range(1, _STRIDE)]
        alike = [_Sides(side, side) for side in usual]
        sides = tuple(dict.fromkeys([told, *(larger if height and width else ()), *alike, *larger]))
        lines = itertools.chain.from_iterable(map(line, _HEIGHTS_OF_LINES))  # where no image fits
    lengths: Sequence[int] = (0,)
    if any(LENGTH in form for form in forms.values()):
        fill = partial(filled, _Sides(most, most))
        fitting = [told_size(graph, params, fill, flat=flat) for flat in (True, False)]
        fitting.append(told_length(graph, params, fill))
        lengths = tuple(dict.fromkeys((*filter(None, fitting), *_LENGTHS)))
    for side in itertools.chain(sides, lines):
        for length in lengths:
            if others:
                yield filled(side, length)
            yield _filled(forms, side, length)


def _filled(forms: Mapping[str, Shape], sides: _Sides, length: int = _LENGTHS[0]) -> Mapping[str, Shape]:
    """Return forms with sizes for what is open: of two sides the last is the width."""
    found: dict[str, Shape] = {}
    for name, form in forms.items():
        left = iter(sides if form.count(OPEN) == len(sides) else sides[-1:])
        found[name] = tuple(
            [next(left) if size == OPEN else length if size == LENGTH else size for size in form]
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
        size for name, form in forms.items() for size, given in zip(found.inputs[name], form) if given == OPEN
    ]
    if not sides or _smallest_side(graph, found.entries) * _STRIDE <= max(sides):
        return True
    if sum(node.op in LAYERS for node in graph.nodes) >= _NETWORK:
        return True
    twice = dict(found.inputs)
    twice.update(
        (name, tuple(2 * size if given == OPEN else size for size, given in zip(found.inputs[name], form)))
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
        if read is not None and len(read) == _IMAGE:
            smallest = min(read[2:]) if smallest is None else min(smallest, *read[2:])
    return smallest is not None and smallest >= _SIDES[0] // 8


def _restores(graph: Graph, shapes: Shapes) -> bool:
    """Return whether the model returns images of the usual side, whatever it pools on its way."""
    made = [shapes[entry.node][entry.output] for entry in graph.heads]
    return any(shape is not None and len(shape) == _IMAGE and min(shape[2:]) >= _SIDES[0] for shape in made)


def _pools_all(node: Node) -> bool:
    """Whether a node makes one value of an image, in any of the forms that mean so."""
    op = FACTS.canonical(node.op)
    if op == "Pooling":
        return is_true(node.attrs, "global_pool", default=False)
    return op == ADAPTIVE_POOLING or (op in REDUCTIONS and reduces_places(node))
