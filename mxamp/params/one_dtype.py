"""Parameters of another dtype than what they meet: read as float32, as Module reads them."""

from __future__ import annotations

from typing import Mapping, Sequence

import numpy as np

from mxamp.dtypes import DType
from mxamp.graph.graph import Graph
from mxamp.graph.infer import infer_dtypes, variable_dtypes
from mxamp.messages.counts import some_of
from mxamp.ops import FACTS
from mxamp.params.parameter import ArrayParameter, Parameter


def in_one_dtype(
    graph: Graph, params: Mapping[str, Parameter]
) -> tuple[Mapping[str, Parameter], Sequence[str]]:
    """Return parameters that operators which take one dtype can read together.

    Parameters
    ----------
    graph, params
        The user's model.

    Returns
    -------
    tuple of (mapping, sequence of str)
        The parameters, those of another dtype that meet float32 rounded to it, and a note that names these.

    Notes
    -----
    An array that NumPy made is float64 unless it is told otherwise. ``Module.set_params`` and
    ``Executor.copy_params_from`` of MXNet 1.9.1 copy it into an array of the dtype that the executor was
    bound with, so that a float64 bias beside a float32 weight runs there, while ``bind`` refuses it ("This
    layer requires uniform type"). What meets no float32 stays: a network of float64 is one. One inference of
    dtypes for each round in which a parameter is found; none where all are float32.
    """
    stored = {name: value.dtype for name, value in params.items() if not value.is_sparse}
    odd: dict[str, str] = {}
    while any(dtype is not DType.FLOAT32 for dtype in stored.values()):
        found = _beside_float32(graph, stored)
        if not found:
            break
        odd.update(found)
        stored.update(dict.fromkeys(found, DType.FLOAT32))
    if not odd:
        return params, ()
    which = some_of([f"{name} ({params[name].dtype})" for name in odd])
    note = (
        f"{which}: read as float32, as Module reads parameters, for there is float32 beside them where all "
        f"inputs must be of one dtype ({some_of(list(dict.fromkeys(odd.values())))})."
    )
    with np.errstate(over="ignore"):  # infinite then, which is looked for anyway
        cast = {name: ArrayParameter(params[name].numpy().astype(np.float32)) for name in odd}
    return {**params, **cast}, (note,)


def _beside_float32(graph: Graph, stored: Mapping[str, DType]) -> dict[str, str]:
    """Return the parameters that meet float32 where all inputs must be of one dtype -> the node's name."""
    dtypes = infer_dtypes(graph, variable_dtypes(graph, stored))
    found: dict[str, str] = {}
    for node in graph.nodes:
        facts = None if node.is_variable else FACTS.of(node.op, node.attrs)
        if facts is None or facts.promotes:
            continue
        roles = facts.all_roles(len(node.inputs), node.attrs)
        sharing = [entry for entry, role in zip(node.inputs, roles) if role.shares_dtype]
        if not any(dtypes[entry.node][entry.output] is DType.FLOAT32 for entry in sharing):
            continue
        for entry in sharing:
            name = graph.nodes[entry.node].name
            is_stored = graph.nodes[entry.node].is_variable and name in stored
            if is_stored and stored[name] is not DType.FLOAT32:
                found.setdefault(name, node.name)
    return found
