"""Express a converted graph in float32, rounding where it would store a value in low precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Sequence

import numpy as np

from mxamp.dtypes import DType
from mxamp.errors import PassError, PolicyError
from mxamp.graph.graph import VARIABLE, Entry, Graph, Node
from mxamp.graph.infer import EntryDtypes, infer_dtypes, undeclared_inputs
from mxamp.ops import FACTS
from mxamp.ops.formats import Overflow
from mxamp.ops.rounding import ROUND_BOTH_WAYS
from mxamp.passes.base import Pass
from mxamp.passes.edit import Edited
from mxamp.passes.emulated_graph import Expression, widened
from mxamp.passes.state import Done, State
from mxamp.targets import Target, fusion_groups

_IDENTITY = Graph((Node(VARIABLE, "data"), Node("_copy", "identity", {}, (Entry(0),))), (Entry(1),))
"""The subgraph of every rounding: what MXNet infers its shape through."""


@dataclass(frozen=True)
class Emulation:
    """How to emulate.

    Attributes
    ----------
    fusion
        Whether values inside the target's fused chains stay unrounded, as when deployed; with False every
        operator rounds its result, as with ``MXNET_SUBGRAPH_BACKEND=NONE``.
    overflow
        ``"inf"`` or ``"saturate"``: what becomes of magnitudes beyond the format's largest value.
    """

    fusion: bool = True
    overflow: str = "inf"

    def __post_init__(self) -> None:
        Overflow.parse(self.overflow)
        if not isinstance(self.fusion, (bool, np.bool_)):
            raise PolicyError(f"Emulation: fusion must be True or False, not {self.fusion!r:.80}.")


@dataclass(frozen=True)
class RoundedOnce:
    """A chain whose inner values stay unrounded.

    Attributes
    ----------
    nodes
        The names of its nodes.
    """

    nodes: tuple[str, ...]


class EmulateLowPrecision(Pass):
    """Express every low dtype of a converted graph as float32 values on that dtype's grid.

    Before::

        x (float32) -> amp_cast float16 -> conv (float16, weight float16) -> relu -> amp_cast float32 -> y

    After::

        x -> round float16 -> conv (float32, weight rounded) -> round float16 -> relu -> y

    Refuses: nothing; a graph without low dtypes is returned as it is. Operators without facts are left alone.

    Parameters
    ----------
    variables
        The dtype of every variable of the graph the pass will run on.
    target
        The machine: what it fuses is rounded once.
    inputs
        The variables that are no parameters: where they are low, the values that arrive are rounded.
    emulation
        How to emulate.

    Notes
    -----
    A low cast becomes a rounding, a cast back nothing, for the values are float32 already. A node that
    computes low has its results rounded, except where they are on the grid already, which rounding would not
    change: results of operators that only move or choose values that are (:func:`mxamp.ops.grid.keeps_grid`).
    Rounding to nearest is idempotent, so leaving it out there is exact.

    Every value then equals that of an operator that reads low precision, computes and accumulates in float32,
    and rounds its result once. What an operator rounds inside itself cannot be seen from outside.

    Names of inputs, outputs and nodes are kept. A rounding is called ``conv0_round_float16``, or what the
    cast was called that it takes the place of. Linear in nodes and inputs.
    """

    def __init__(
        self,
        variables: Mapping[str, DType],
        target: Target,
        *,
        inputs: Sequence[str] = (),
        emulation: Emulation | None = None,
    ) -> None:
        self.inputs = frozenset(inputs)
        self._variables = variables
        self._target = target
        self._emulation = emulation or Emulation()

    def run(self, state: State) -> Done | None:
        """Return the graph in float32, the roundings, and the chains that are rounded once."""
        graph = state.graph
        assumed = [name for name in self.inputs if self._variables.get(name) is DType.FLOAT32]
        undeclared = undeclared_inputs(graph, assumed)
        expression = Expression(self, graph, self._variables, undeclared=undeclared)
        after = expression.express()
        records = (*expression.rounds, *[RoundedOnce(chain) for chain in expression.chains])
        edited = Edited(after, expression.nodes, shapes=None) if expression.changed else None
        return Done(edited, records)

    def ensures(self, before: State, after: State) -> None:
        """Check that nothing low is left, and that inputs and outputs kept their names."""
        super().ensures(before, after)
        if list(after.graph.variables) != list(before.graph.variables):
            raise PassError("The names of the graph's inputs or parameters changed.")
        variables = {name: widened(dtype) for name, dtype in self._variables.items()}
        for node, dtypes in zip(after.graph.nodes, infer_dtypes(after.graph, variables)):
            if any(dtype is not None and dtype.is_low_precision for dtype in dtypes):
                raise PassError(f"{node} still hands on low precision.")

    def chains_in(self, graph: Graph, dtypes: EntryDtypes) -> Sequence[tuple[int, ...]]:
        """Return the chains of low nodes whose inner values stay unrounded."""
        if not self._emulation.fusion:
            return ()
        low = {
            position
            for position, node in enumerate(graph.nodes)
            if not node.is_variable and dtypes[position][0] is self._target.dtype
        }
        names = [FACTS.canonical(node.op) for node in graph.nodes]
        return fusion_groups(graph, names, self._target, among=low, patterns=self._target.rounds_once)

    def round_node(self, name: str, source: Entry, dtype: DType) -> Node:
        """Return a node that rounds ``source`` to ``dtype``."""
        attrs = {"format": dtype.label, "overflow": self._emulation.overflow}
        return Node(ROUND_BOTH_WAYS, name, attrs, (source,), 1, (_IDENTITY,))
