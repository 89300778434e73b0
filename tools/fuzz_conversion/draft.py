"""Writing a random model, step by step; every step is run in FP32 before it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Callable, Mapping, Sequence, TypeVar

import mxnet as mx
import numpy as np
from numpy.typing import NDArray

from mxamp.graph.graph import VARIABLE, Entry, Graph, Node
from mxamp.graph.symbol_reader import parse_symbol
from tools.fuzz_conversion.execution import Bound, to_symbol
from tools.fuzz_conversion.model import RandomModel

__all__ = ["Draft", "NothingFitsError", "Value"]

_Item = TypeVar("_Item")

_ELEMENTS, _MANY_ELEMENTS = 4096, 1 << 16
"""The most values in a tensor: a case is to take milliseconds, and where size matters not much longer."""

_LARGEST = 500.0
"""Values beyond are not kept, so that float16 could hold what comes of them."""


class NothingFitsError(Exception):
    """A step found no value that it could take, or MXNet refused what it made of them."""


@dataclass(frozen=True)
class Value:
    """Something that later steps may read.

    Attributes
    ----------
    entry
        Where it is in the graph.
    array
        Its values, for the first set of data.
    is_param
        Whether it is a parameter.
    """

    entry: Entry
    array: NDArray[Any]
    is_param: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self.array.shape)

    @property
    def dtype(self) -> str:
        """Its dtype."""
        return str(self.array.dtype)

    @cached_property
    def sym(self) -> Any:
        """A variable that stands for it while a step is written."""
        return mx.sym.var(f"@{self.entry.node}.{self.entry.output}")


class Draft:
    """A model that is being written.

    Parameters
    ----------
    random
        Where all choices come from.
    numpy_mode
        Whether it is written under NumPy shape semantics.
    """

    def __init__(self, random: np.random.Generator, *, numpy_mode: bool = False) -> None:
        self.random = random
        self.numpy_mode = numpy_mode
        # Many forms are for whole blocks of channels, or for so many values that they pay.
        self.is_large = self.chance(0.3)
        self.most_values = _ELEMENTS
        self.nodes: list[Node] = []
        self.values: list[Value] = []
        self.args: dict[str, NDArray[Any]] = {}
        self.auxs: dict[str, NDArray[Any]] = {}
        self.inputs: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}
        self.positions: set[str] = set()
        self._steps = 0

    def grow(self) -> None:
        """Let tensors be as large as those for which targets choose other forms."""
        self.is_large, self.most_values = True, _MANY_ELEMENTS

    # ------------------------------------------------------------------ chance

    def integer(self, low: int, high: int) -> int:
        """Return an integer, both ends included."""
        return int(self.random.integers(low, high + 1))

    def chance(self, probability: float = 0.5) -> bool:
        """Return True now and then."""
        return bool(self.random.random() < probability)

    def choice(self, items: Sequence[_Item]) -> _Item:
        """Return one of them."""
        if not items:
            raise NothingFitsError
        return items[int(self.random.integers(len(items)))]

    def width(self, *small: int) -> int:
        """Return a number of channels, or of features: one of some, or in a large model of whole blocks."""
        return self.choice([8, 16, 16, 24, 32] if self.is_large and self.chance(0.7) else small)

    def number(self, low: float, high: float) -> float:
        """Return a number of few digits, as people write them."""
        return round(float(self.random.uniform(low, high)), self.choice([0, 1, 2, 4]))

    def normal(self, *shape: int, scale: float = 1.0) -> NDArray[np.float32]:
        """Return normal values; now and then some repeat, or are zero, or all are one."""
        values = self.random.standard_normal(shape) * scale
        kind = self.random.random()
        if kind < 0.05:
            values = np.round(values, 1)
        elif kind < 0.1:
            values = np.maximum(values, 0)
        elif kind < 0.12:
            values = np.full(shape, self.choice([0.0, 1.0, 0.1, -3.0]) * scale)
        return np.asarray(values, np.float32)

    # ------------------------------------------------------------------ values

    def input(self, name: str, draw: Callable[[], NDArray[Any]], *, positions: bool = False) -> Value:
        """Add an input."""
        name = f"{name}{len(self.inputs)}" if name in self.inputs else name
        self.inputs[name] = (draw(), draw())
        if positions:
            self.positions.add(name)
        return self._variable(name, self.inputs[name][0])

    def param(self, *shape: int, scale: float | None = None, shared: float = 0.2) -> Value:
        """Return a parameter: a new one, or now and then one of this shape that is there already."""
        known = [value for value in self.values if value.is_param and value.shape == shape]
        if known and self.chance(shared):
            return self.choice(known)
        name = f"{self.choice(['weight', 'table', 'scale'])}{len(self.nodes)}"
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        self.args[name] = self.normal(*shape, scale=scale or 1.0 / np.sqrt(max(fan, 1)))
        return self._variable(name, self.args[name], is_param=True)

    def constant(self, values: NDArray[Any]) -> Value:
        """Add a parameter of these values."""
        name = f"constant{len(self.nodes)}"
        self.args[name] = values
        return self._variable(name, values, is_param=True)

    def pick(
        self,
        where: Callable[[Value], bool] = lambda value: True,
        *,
        ndim: int | Sequence[int] | None = None,
        dtype: str = "float32",
        params: bool = False,
    ) -> Value:
        """Return a value that fits, mostly a recent one, so that graphs are deep and branches join.

        Raises
        ------
        NothingFitsError
            When there is none.
        """
        sizes = (ndim,) if isinstance(ndim, int) else ndim
        fitting = [
            value
            for value in self.values
            if value.dtype == dtype
            and (params or not value.is_param)
            and (sizes is None or len(value.shape) in sizes)
            and where(value)
        ]
        return self.choice(fitting[-3:] if self.chance(0.7) else fitting)

    def alike(self, value: Value) -> Value:
        """Return a value of the same shape and dtype: another, the same again, or a parameter."""
        if value.dtype != "float32" or self.chance(0.8):
            return self.pick(lambda other: other.shape == value.shape, dtype=value.dtype, params=True)
        return self.param(*value.shape, scale=1.0)

    def broadcastable(self, value: Value) -> Value:
        """Return a value that broadcasts with another: of its shape, or with sizes of 1."""
        if self.chance(0.6):
            return self.pick(
                lambda other: (
                    len(other.shape) == len(value.shape)
                    and all(a == b or 1 in (a, b) for a, b in zip(other.shape, value.shape))
                ),
                dtype=value.dtype,
                params=True,
            )
        return self.param(*(size if self.chance() else 1 for size in value.shape), scale=1.0)

    def _variable(self, name: str, values: NDArray[Any], *, is_param: bool = False) -> Value:
        self.nodes.append(Node(VARIABLE, name))
        value = Value(Entry(len(self.nodes) - 1), values, is_param)
        self.values.append(value)
        return value

    # ------------------------------------------------------------------ steps

    def add(self, step: Callable[[Draft], Any]) -> list[Value]:
        """Let a step write a symbol over values, run it, and keep it.

        Raises
        ------
        NothingFitsError
            When MXNet refuses it, or its values are not finite, too large, or too many.
        """
        before = len(self.nodes), len(self.values), dict(self.args)
        try:
            return self._add(step)
        except (NothingFitsError, mx.base.MXNetError, ValueError, TypeError, AttributeError):
            del self.nodes[before[0] :]
            del self.values[before[1] :]
            self.args = before[2]
            raise NothingFitsError from None

    def _add(self, step: Callable[[Draft], Any]) -> list[Value]:
        self._steps += 1
        with mx.name.Prefix(f"s{self._steps}_"):
            symbol = step(self)
        names = symbol.list_inputs()
        known = {f"@{value.entry.node}.{value.entry.output}": value for value in self.values}
        shapes, _, states = symbol.infer_shape_partial(  # of loops and masks MXNet cannot tell
            **{name: known[name].shape for name in names if name in known}
        )
        arrays = {name: known[name].array for name in names if name in known}
        args = {
            name: self._drawn(name, shape)
            for name, shape in zip(symbol.list_arguments(), shapes)
            if name not in known
        }
        auxs = {name: self._drawn(name, shape) for name, shape in zip(symbol.list_auxiliary_states(), states)}
        outputs = Bound(symbol, {**arrays, **args, **auxs}, fused=False).run()
        for values in outputs:
            _check_values(values, self.most_values)
        entries = self._import(symbol, known)
        self.args.update(args)
        self.auxs.update(auxs)
        added = [Value(entry, values) for entry, values in zip(entries, outputs)]
        self.values.extend(added)
        return added

    def _drawn(self, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        if any(size <= 0 for size in shape) or not (shape or self.numpy_mode):
            raise NothingFitsError
        if name.endswith(("var", "var_")):
            return np.asarray(self.random.uniform(0.3, 2.0, shape), np.float32)
        if name.endswith(("gamma", "parameters")):
            return np.asarray(self.random.uniform(-0.5, 1.0, shape), np.float32)
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 4
        return self.normal(*shape, scale=1.0 / np.sqrt(max(fan, 1)))

    def _import(self, symbol: Any, known: Mapping[str, Value]) -> list[Entry]:
        graph = parse_symbol(symbol.tojson(remove_amp_cast=False))
        moved: list[int | Entry] = []

        def entry_of(entry: Entry) -> Entry:
            place = moved[entry.node]
            return place if isinstance(place, Entry) else Entry(place, entry.output)

        for node in graph.nodes:
            if node.is_variable and node.name in known:
                moved.append(known[node.name].entry)
                continue
            self.nodes.append(node._replace(inputs=tuple(map(entry_of, node.inputs))))
            moved.append(len(self.nodes) - 1)
        return [entry_of(head) for head in graph.heads]

    # ------------------------------------------------------------------ the end

    def finish(self, heads: Sequence[Value]) -> RandomModel:
        """Return the model with these outputs.

        Raises
        ------
        NothingFitsError
            When MXNet does not run it as a whole, or not on the second set of data.
        """
        attrs: dict[str, Any] = {"mxnet_version": ["int", 10901]}
        if self.numpy_mode:
            attrs["is_np_shape"] = ["int", 1]
        graph = Graph(tuple(self.nodes), tuple(head.entry for head in heads), attrs)
        data = tuple({name: both[number] for name, both in self.inputs.items()} for number in range(2))
        model = RandomModel(graph, self.args, self.auxs, data, frozenset(self.positions))
        model = model.with_graph(graph)
        # As MXNet would store it.
        text = to_symbol(model.graph).tojson(remove_amp_cast=False)
        return model.with_graph(parse_symbol(text, is_from_mxnet=True))


def _check_values(values: NDArray[Any], most: int) -> None:
    if not 0 < values.size <= most or values.ndim > 6:
        raise NothingFitsError
    if values.dtype.kind == "f" and not (np.isfinite(values).all() and np.abs(values).max() <= _LARGEST):
        raise NothingFitsError
