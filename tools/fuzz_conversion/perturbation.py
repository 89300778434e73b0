"""How far a rounding error may carry: the FP32 program, perturbed at the precision of a dtype.

Every floating-point tensor is multiplied by 1 + e, where e is drawn anew for every value and every run, and
once more for the whole tensor, for errors may all point one way. How far outputs then move is measured, not
derived; so what amplifies or damps an error, and what jumps, does so here as it does in the conversion.
"""

from __future__ import annotations

from typing import AbstractSet, Any, Iterator, Mapping, Sequence

import mxnet as mx
import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.reference import round_to
from mxamp.ops.rounding import ROUND
from mxamp.runtime.library import load_operators
from tools.fuzz_conversion.execution import Bound, entry_types, numpy_shapes, sized_entries, to_symbol
from tools.fuzz_conversion.model import RandomModel

__all__ = ["Perturbed", "Reference", "perturbed_graph"]

_MAKES_INTEGERS = frozenset(
    {
        *("argmax", "argmin", "argmax_channel", "argsort", "topk", "_arange", "_contrib_arange_like"),
        *("one_hot", "_zeros", "_ones", "_full", "_eye", "zeros_like", "ones_like", "floor", "ceil", "round"),
        *("rint", "fix", "trunc", "sign", "logical_not", "Cast", "amp_cast", "_npi_argmax", "_npi_argmin"),
        *("_npi_floor", "_npi_ceil", "_npi_rint", "_npi_trunc", "_npi_sign", "_npx_one_hot"),
    }
)
"""Operators whose integers are integers, and not sums that happen to be: comparisons besides."""

_POSITIONS = frozenset(
    {
        *("argmax", "argmin", "argmax_channel", "argsort", "topk", "_arange", "_contrib_arange_like"),
        *("_npi_argmax", "_npi_argmin"),
    }
)

_KEEPS_INTEGERS = frozenset(
    {
        *(
            "Reshape",
            "Flatten",
            "expand_dims",
            "squeeze",
            "transpose",
            "SwapAxis",
            "reverse",
            "repeat",
            "tile",
        ),
        *("slice", "slice_axis", "SliceChannel", "_split_v2", "Concat", "stack", "take", "pick", "gather_nd"),
        *("broadcast_to", "broadcast_like", "broadcast_axis", "reshape_like", "slice_like", "where", "max"),
        *("min", "_copy", "BlockGrad", "abs", "negative", "clip", "relu", "_plus_scalar", "_minus_scalar"),
        *("_rminus_scalar", "_mul_scalar", "elemwise_add", "elemwise_sub", "elemwise_mul", "broadcast_add"),
        *("broadcast_sub", "broadcast_mul", "broadcast_maximum", "broadcast_minimum", "_maximum_scalar"),
        *("_minimum_scalar", "SequenceLast", "SequenceReverse", "Embedding", "Dropout", "Pad"),
        *("_np_reshape", "_npi_expand_dims", "_np_squeeze", "_np_transpose"),
    }
)

_COUNTS = frozenset({"_plus_scalar"})
"""What is not perturbed in the body of a loop: the counters that decide when it ends."""


def _compares(op: str) -> bool:
    return any(word in op for word in ("equal", "greater", "lesser", "less", "logical"))


class Reference:
    """What a model computes in FP32 with fusion off: all that is read or returned, for each set of data.

    Parameters
    ----------
    model
        The model.
    """

    def __init__(self, model: RandomModel) -> None:
        self.model = model
        graph = model.graph
        arrays = {**model.args, **model.auxs, **model.data[0]}
        self.types = entry_types(graph, arrays)
        self.sized = sized_entries(graph, arrays)
        entries = sorted({entry for node in graph.nodes for entry in node.inputs} | set(graph.heads))
        symbol = to_symbol(Graph(graph.nodes, tuple(entries), graph.attrs))
        with numpy_shapes(graph):
            bound = Bound(symbol, arrays, fused=False)
            self.values: list[dict[Entry, NDArray[Any]]] = [
                dict(zip(entries, bound.run(data))) for data in model.data
            ]

    @property
    def outputs(self) -> list[list[NDArray[Any]]]:
        """The outputs, for each set of data."""
        return [[values[head] for head in self.model.graph.heads] for values in self.values]

    def largest(self) -> float:
        """Return the largest magnitude of any floating-point value; infinite where one is not finite."""
        largest = 0.0
        for values in self.values:
            for array in values.values():
                if array.dtype.kind == "f" and array.size:
                    if not np.isfinite(array).all():
                        return float("inf")
                    largest = max(largest, float(np.abs(array).max()))
        return largest

    def is_whole(self, entry: Entry) -> bool:
        """Whether an entry holds integers alone."""
        return all(bool((values[entry] == np.round(values[entry])).all()) for values in self.values)

    def exact_integers(self, limit: int) -> set[Entry]:
        """Return the entries that a conversion may not change: small integers, and positions of any size."""
        graph = self.model.graph
        exact: set[Entry] = set()
        positions: set[Entry] = set()
        for entry in sorted(self.types):
            node = graph.nodes[entry.node]
            op = node.op if node.is_variable else FACTS.canonical(node.op)
            if not self.is_whole(entry):
                continue
            keeps = op in _KEEPS_INTEGERS and all(
                read in exact or self.types.get(read, np.dtype("f")).kind != "f" for read in node.inputs
            )
            if not (node.is_variable or op in _MAKES_INTEGERS or keeps or _compares(op)):
                continue
            of_positions = (
                op in _POSITIONS
                or node.name in self.model.positions
                or (op in (*_KEEPS_INTEGERS, "Cast") and any(read in positions for read in node.inputs))
            )
            largest = max(
                float(np.abs(values[entry].astype(np.float64)).max(initial=0.0)) for values in self.values
            )
            if of_positions or largest <= limit:
                exact.add(entry)
            if of_positions:
                positions.add(entry)
        return exact


class Perturbed:
    """The FP32 program, perturbed.

    Parameters
    ----------
    reference
        The program as it is.
    format
        At which precision.
    """

    def __init__(self, reference: Reference, format: DType) -> None:
        self._reference = reference
        self._format = format
        self._bound: dict[bool, Bound] = {}
        unit = 2.0**-format.format.significand_bits
        # Behind a condition nothing is perturbed, not even what leaves there, and a conversion rounds it.
        units = [0.0 if head in reference.sized else unit for head in reference.model.graph.heads]
        self.deviations = [
            [np.asarray(least * np.abs(values.astype(np.float64))) for values, least in zip(given, units)]
            for given in reference.outputs
        ]
        """For each set of data and each output, how far each value moved at most."""

    def run(self, times: int, seed: int, *, rounding: bool = False) -> None:
        """Run it so many times on each set of data, and note how far outputs move.

        Parameters
        ----------
        times, seed
            How often, and what the perturbations come from.
        rounding
            Whether to round what was perturbed to the format as well: that makes values equal that were not.
        """
        model = self._reference.model
        mx.random.seed(seed)
        with numpy_shapes(model.graph):
            if rounding not in self._bound:
                graph = perturbed_graph(self._reference, self._format, rounding=rounding)
                arrays = {**model.args, **model.auxs, **model.data[0]}
                self._bound[rounding] = Bound(to_symbol(graph), arrays, fused=False)
            bound = self._bound[rounding]
            for data, expected, found in zip(model.data, self._reference.outputs, self.deviations):
                bound.run(data)
                for _ in range(times):
                    for number, values in enumerate(bound.run()):
                        if values.shape != found[number].shape:
                            found[number][...] = np.inf
                            continue
                        with np.errstate(all="ignore"):
                            moved = np.abs(values.astype(np.float64) - expected[number].astype(np.float64))
                        moved = np.where(np.isnan(moved), np.inf, moved)
                        np.maximum(found[number], moved, out=found[number])


def perturbed_graph(reference: Reference, format: DType, *, rounding: bool = False) -> Graph:
    """Return the graph that perturbs what it computes."""
    graph = reference.model.graph
    unit = 2.0**-format.format.significand_bits
    exact = reference.exact_integers(2**format.format.significand_bits)
    nodes: list[Node] = []
    moved: dict[Entry, Entry] = {}

    def add(op: str, inputs: Sequence[Entry], **attrs: Any) -> Entry:
        texts = {name: str(value) for name, value in attrs.items()}
        nodes.append(Node(op, f"perturb{len(nodes)}", texts, tuple(inputs)))
        return Entry(len(nodes) - 1)

    def noise(shape: tuple[int, ...], centre: float, width: float) -> Entry:
        low, high = centre - width, centre + width
        return add("_random_uniform", [], low=low, high=high, shape=shape, dtype="float32")

    def perturb(entry: Entry, values: Sequence[NDArray[Any]]) -> Entry:
        shape = values[0].shape
        found = add("elemwise_mul", [entry, noise(shape, 1.0, unit)])
        if shape:
            found = add("broadcast_mul", [found, noise((1,) * len(shape), 1.0, unit)])
        sizes = np.abs(np.concatenate([array.ravel() for array in values]))
        least = format.smallest_normal * unit
        # Below, FP32 itself has no precision left.
        if least > 1e-37 and ((sizes > 0) & (sizes < format.smallest_normal)).any():
            found = add("elemwise_add", [found, noise(shape, 0.0, least)])
        if rounding and not format.is_emulated_only:
            found = add("amp_cast", [add("amp_cast", [found], dtype=format.label)], dtype="float32")
        elif rounding:
            load_operators()
            found = add(ROUND, [found], format=format.label)
        return found

    for position, node in enumerate(graph.nodes):
        inputs = tuple(moved[entry] for entry in node.inputs)
        bodies = tuple(_perturbed_bodies(node, unit))
        attrs = node.attrs
        if rounding and not node.is_variable and _compares(node.op) and "scalar" in attrs:
            # What is compared with is rounded as well, and may be met then.
            scalar = round_to(np.array([float(attrs["scalar"])], np.float32), format.label)
            attrs = {**attrs, "scalar": repr(float(scalar[0]))}
        nodes.append(node._replace(inputs=inputs, subgraphs=bodies, attrs=attrs))
        new = len(nodes) - 1
        for output in range(max(node.num_outputs, 1)):
            entry = Entry(position, output)
            moved[entry] = Entry(new, output)
            if entry in exact or reference.types.get(entry) != np.float32:
                continue
            # Behind a condition MXNet infers no shapes, and element-wise operators insist on them.
            if entry in reference.sized and node.name not in reference.model.auxs:
                moved[entry] = perturb(moved[entry], [values[entry] for values in reference.values])
    return Graph(tuple(nodes), tuple(moved[head] for head in graph.heads), graph.attrs)


def _perturbed_bodies(node: Node, unit: float) -> Iterator[Graph]:
    """Yield the bodies of a node, perturbed: all but the one that decides which branch, or how often."""
    decides = 0 if node.op in ("_cond", "_while_loop") else None
    left_alone = frozenset() if node.op == "_cond" else _COUNTS
    for number, body in enumerate(node.subgraphs):
        yield body if number == decides else _perturbed_body(body, unit, left_alone)


def _perturbed_body(body: Graph, unit: float, left_alone: AbstractSet[str]) -> Graph:
    nodes: list[Node] = []
    moved: dict[Entry, Entry] = {}
    for position, node in enumerate(body.nodes):
        nodes.append(node._replace(inputs=tuple(moved[entry] for entry in node.inputs)))
        new = len(nodes) - 1
        for output in range(max(node.num_outputs, 1)):
            moved[Entry(position, output)] = Entry(new, output)
        if not node.is_variable and node.op not in left_alone:
            attrs: Mapping[str, str] = {"low": str(1 - 2 * unit), "high": str(1 + 2 * unit)}
            nodes.append(Node("_random_uniform_like", f"perturb{new}", attrs, (Entry(new),)))
            nodes.append(Node("elemwise_mul", f"perturbed{new}", {}, (Entry(new), Entry(len(nodes) - 1))))
            moved[Entry(position)] = Entry(len(nodes) - 1)
    return Graph(tuple(nodes), tuple(moved[head] for head in body.heads), body.attrs)
