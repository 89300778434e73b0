"""Layers as matrices: what multiplies a parameter with data, and the columns that its rows meet there.

A layer computes ``y = W x`` for many columns ``x``: one for every position of an image that its kernel
covers, every token, every sample. Here it is told which nodes are such layers, how their parameter is laid
out as matrices (one a group), and how the columns are cut out of the values that the layer reads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Mapping, Sequence, Tuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from mxamp.graph.graph import Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers, is_true

LAYERS = frozenset({"Convolution", "Deconvolution", "FullyConnected", "dot"})
"""The operators, by their canonical names."""

_PLAIN_LAYOUTS = frozenset({"None", "NCHW", "NCW", "NCDHW"})

Shape = Tuple[int, ...]


@dataclass(frozen=True)
class Layer:
    """A node that multiplies a parameter with data.

    Attributes
    ----------
    position, name
        The node.
    op
        Its operator's canonical name, one of :data:`LAYERS`.
    weight
        The parameter.
    bias
        The parameter that is added; None without one.
    attrs
        The node's attributes.
    shape
        The shape of the weight.
    """

    position: int
    name: str
    op: str
    weight: str
    bias: str | None
    attrs: Mapping[str, str]
    shape: Shape

    @property
    def groups(self) -> int:
        """Into how many groups channels are divided, each with a matrix of its own."""
        return _groups(self.op, self.attrs)

    @property
    def columns(self) -> int:
        """The length of a column of one group: the products that an output sums."""
        if self.op == "Deconvolution":
            return self.shape[0] // self.groups * math.prod(self.shape[2:])
        if self.op == "dot":
            return self.shape[-1] if is_true(self.attrs, "transpose_b", default=False) else self.shape[0]
        return math.prod(self.shape[1:])

    @property
    def taps(self) -> int:
        """How many columns in a row belong to one channel of the input: the positions of the kernel."""
        return math.prod(self.shape[2:]) if self.op in ("Convolution", "Deconvolution") else 1

    def sampled(self, values: NDArray[np.float32], positions: int, first: int) -> NDArray[np.float32]:
        """Return columns of what the layer reads.

        Parameters
        ----------
        values
            What it reads, float32.
        positions
            The most columns for one sample.
        first
            The number of the first sample. Which columns are taken is drawn anew for each sample, and is the
            same for the same number, whatever batch it comes in.

        Returns
        -------
        numpy.ndarray
            float32, shape ``(groups, columns taken, columns)``.
        """
        if self.op == "FullyConnected" and is_true(self.attrs, "flatten", default=True):
            return values.reshape(1, len(values), -1)
        if self.op in ("FullyConnected", "dot"):
            rows = values.reshape(len(values), -1, values.shape[-1])
            chosen = _drawn(len(rows), rows.shape[1], positions, first)
            tokens: NDArray[np.float32] = rows[np.arange(len(rows))[:, np.newaxis], chosen]
            return tokens.reshape(1, -1, values.shape[-1])
        windows = self._windows(values)
        axes = (windows.ndim - 2) // 2
        outputs = windows.shape[2 : 2 + axes]
        chosen = _drawn(len(values), math.prod(outputs), positions, first)
        places = np.unravel_index(chosen, outputs)
        samples: Any = np.arange(len(values))[:, np.newaxis]
        taken: NDArray[np.float32] = windows[(samples, slice(None), *places)]
        # (samples, positions, channels, kernel) -> (groups, samples * positions, channels * kernel)
        grouped = taken.reshape(chosen.size, self.groups, -1)
        return np.ascontiguousarray(grouped.transpose(1, 0, 2))

    def _windows(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return a view of shape (samples, channels, positions, kernel), each of the last two by axes."""
        kernel = self.shape[2:]
        axes = len(kernel)
        stride, dilate = _sizes(self.attrs, "stride", axes, 1), _sizes(self.attrs, "dilate", axes, 1)
        pad = _sizes(self.attrs, "pad", axes, 0)
        before: Sequence[int] = pad
        after: Sequence[int] = pad
        if self.op == "Deconvolution":
            adjust = _sizes(self.attrs, "adj", axes, 0)
            values = _spread(values, stride)
            before = [d * (k - 1) - p for d, k, p in zip(dilate, kernel, pad)]
            after = [b + a for b, a in zip(before, adjust)]
            stride = (1,) * axes
        if any(before) or any(after):
            values = np.pad(values, [(0, 0), (0, 0), *zip(before, after)])
        spans = [d * (k - 1) + 1 for d, k in zip(dilate, kernel)]
        whole: Any = sliding_window_view(values, spans, axis=tuple(range(2, 2 + axes)))  # type: ignore[call-overload]
        steps = [slice(None, None, step) for step in stride]
        taps = [slice(None, None, step) for step in dilate]
        windows: NDArray[np.float32] = whole[(slice(None), slice(None), *steps, *taps)]
        if self.op == "Deconvolution":  # its kernel comes turned around
            windows = np.flip(windows, tuple(range(-axes, 0)))
        return windows


def layer_of(graph: Graph, position: int, shapes: Mapping[str, Shape]) -> Layer | None:
    """Return what a node is as a layer; None where it is none, or one that no matrix stands for here.

    Parameters
    ----------
    graph
        The graph.
    position
        The node.
    shapes
        The shapes of parameters by name.

    Notes
    -----
    None are: layers whose weight is no parameter; channels that come last; a Deconvolution that states the
    shape of its result, or crops more than its kernel covers; ``dot`` with the parameter first.
    """
    node = graph.nodes[position]
    op = FACTS.canonical(node.op) if not node.is_variable else ""
    if op not in LAYERS or len(node.inputs) < 2:
        return None
    weight = graph.nodes[node.inputs[1].node]
    shape = shapes.get(weight.name) if weight.is_variable else None
    data = graph.nodes[node.inputs[0].node]
    if shape is None or (data.is_variable and data.name in shapes) or not _is_plain(op, node, shape):
        return None
    bias = graph.nodes[node.inputs[2].node] if len(node.inputs) > 2 else None
    if bias is not None and (not bias.is_variable or bias.name not in shapes):
        return None
    return Layer(
        position,
        node.name,
        op,
        weight.name,
        None if bias is None else bias.name,
        node.attrs,
        shape,
    )


def layers_of(graph: Graph, shapes: Mapping[str, Shape]) -> list[Layer]:
    """Return all layers of a graph, in its order."""
    found = (layer_of(graph, position, shapes) for position in range(len(graph.nodes)))
    return [layer for layer in found if layer is not None]


def as_matrices(op: str, attrs: Mapping[str, str], weight: NDArray[Any]) -> NDArray[Any]:
    """Return a layer's parameter as matrices.

    Parameters
    ----------
    op, attrs
        The layer.
    weight
        Convolution: (out, in / groups, kernel); Deconvolution: (in, out / groups, kernel); FullyConnected:
        (out, in); dot: (in, out), or transposed.

    Returns
    -------
    numpy.ndarray
        Shape ``(groups, outputs of a group, columns)``; a view where that is possible.
    """
    groups = _groups(op, attrs)
    if op == "Deconvolution":
        by_group = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
        return by_group.transpose(0, 2, 1, 3).reshape(groups, weight.shape[1], -1)
    if op == "dot":
        return np.expand_dims(weight if is_true(attrs, "transpose_b", default=False) else weight.T, 0)
    return weight.reshape(groups, weight.shape[0] // groups, -1)


def from_matrices(op: str, attrs: Mapping[str, str], matrices: NDArray[Any], shape: Shape) -> NDArray[Any]:
    """Return what :func:`as_matrices` was given.

    Parameters
    ----------
    op, attrs
        The layer.
    matrices
        The matrices.
    shape
        The shape of its parameter.
    """
    if op == "Deconvolution":
        groups = _groups(op, attrs)
        split = matrices.reshape(groups, shape[1], shape[0] // groups, -1)
        return split.transpose(0, 2, 1, 3).reshape(shape)
    if op == "dot":
        matrix: NDArray[Any] = matrices[0]
        return matrix if is_true(attrs, "transpose_b", default=False) else matrix.T
    return matrices.reshape(shape)


def _groups(op: str, attrs: Mapping[str, str]) -> int:
    return int(attrs.get("num_group", "1")) if op in ("Convolution", "Deconvolution") else 1


def _is_plain(op: str, node: Node, shape: Shape) -> bool:
    attrs = node.attrs
    if op == "dot":
        return len(shape) == 2 and not is_true(attrs, "transpose_a", default=False) and len(node.inputs) == 2
    if op == "FullyConnected":
        return len(shape) == 2
    axes = len(shape) - 2
    if axes < 1 or attrs.get("layout", "None") not in _PLAIN_LAYOUTS:
        return False
    if op == "Convolution":
        return True
    stated = integers(attrs.get("target_shape", "()")) or ()
    pads = zip(_sizes(attrs, "pad", axes, 0), _sizes(attrs, "dilate", axes, 1), shape[2:])
    return not any(stated) and all(pad <= dilate * (size - 1) for pad, dilate, size in pads)


def _sizes(attrs: Mapping[str, str], key: str, axes: int, default: int) -> Shape:
    found = integers(attrs.get(key, "()")) or ()
    return found if len(found) == axes else (default,) * axes


def _spread(values: NDArray[np.float32], stride: Sequence[int]) -> NDArray[np.float32]:
    """Return values with zeros between them, as a Deconvolution reads them at stride 1."""
    sizes = [step * (size - 1) + 1 for step, size in zip(stride, values.shape[2:])]
    spread = np.zeros((*values.shape[:2], *sizes), values.dtype)
    spread[(slice(None), slice(None), *(slice(None, None, step) for step in stride))] = values
    return spread


def _drawn(samples: int, total: int, wanted: int, first: int) -> NDArray[np.intp]:
    """Return for each sample the positions taken, of ``total``: one drawn from each of equal stretches."""
    if total <= wanted:
        return np.broadcast_to(np.arange(total), (samples, total))
    starts = np.arange(wanted)
    drawn = [
        np.floor((starts + np.random.default_rng(number).random(wanted)) * (total / wanted))
        for number in range(first, first + samples)
    ]
    return np.minimum(np.array(drawn), total - 1).astype(np.intp)
