"""What the passes between the decisions and the casts have in common: they carry the plan over."""

from __future__ import annotations

from typing import Mapping, Sequence

from mxamp.decisions import Plan
from mxamp.dtypes import DType
from mxamp.errors import PassError
from mxamp.graph.graph import Graph
from mxamp.graph.output_names import output_names
from mxamp.params.parameter import Parameter
from mxamp.passes.base import GraphPass

__all__ = ["PlannedPass"]


class PlannedPass(GraphPass):
    """A pass over a graph that has been decided about, which changes the graph, the plan and the parameters.

    Parameters
    ----------
    plan
        The decisions for the graph the pass will run on.
    arg_params, aux_params
        Its parameters.
    dtype
        The low dtype.
    """

    def __init__(
        self,
        plan: Plan,
        arg_params: Mapping[str, Parameter],
        aux_params: Mapping[str, Parameter],
        dtype: DType,
    ) -> None:
        self._before = plan
        self._params = {**arg_params, **aux_params}
        self._dtype = dtype
        self.plan = plan
        """The plan for the graph after. Set by :meth:`run`."""
        self.arg_params = arg_params
        """The parameters after. Set by :meth:`run`."""
        self.aux_params = aux_params
        """The auxiliary states after. Set by :meth:`run`."""
        self.positions: Sequence[int] = ()
        """For every node its position after; -1 for variables that are gone. Set by :meth:`run`."""

    def requires(self, graph: Graph) -> None:
        """Check that the plan was made for this graph."""
        if len(self._before.decisions) != len(graph.nodes):
            raise PassError("The plan was made for another graph: it has other nodes.")

    def ensures(self, before: Graph, after: Graph) -> None:
        """Check that outputs kept their names."""
        if output_names(before) != output_names(after):
            raise PassError("The names of the graph's outputs changed.")
