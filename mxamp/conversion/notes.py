"""What the user should know of a conversion, one sentence each."""

from __future__ import annotations

from typing import Mapping, Sequence

from mxamp.calibration import Calibration, ModelRecord
from mxamp.calibration.ranges import knows_some_of
from mxamp.dtypes import DType
from mxamp.graph.control_flow import graphs_within, is_control_flow
from mxamp.graph.graph import VARIABLE, Graph, Node
from mxamp.messages.counts import some_of
from mxamp.ops import FACTS
from mxamp.ops.casts import AMP_CAST, AMP_MULTICAST, CAST
from mxamp.ops.facts_table import operator_label
from mxamp.params.parameter import Parameter
from mxamp.passes import State
from mxamp.policy.policy import Policy


def _is_unknown(node: Node) -> bool:
    return not (
        FACTS.of(node.op, node.attrs) is not None
        or node.op in (AMP_CAST, AMP_MULTICAST)
        or is_control_flow(node)
    )


def graph_notes(graph: Graph, policy: Policy, cast_op: str) -> tuple[str, ...]:
    """Return what the user should be warned about."""
    notes = []
    unknown: dict[str, str] = {}
    for top in graphs_within(graph):
        for node in top.nodes:
            if node.op != VARIABLE and _is_unknown(node):
                unknown.setdefault(operator_label(node.op, node.attrs), node.name)
    for op, name in unknown.items():
        notes.append(
            f"mxamp knows nothing about the operator {op} (node {name!r}): it computes in float32, and what "
            "it returns is cast to float32. mxamp.register_operator tells mxamp what it is."
        )
    if cast_op == CAST and policy.target_dtype.label == "bfloat16":
        notes.append(
            "cast_op='Cast': MXNet's Cast truncates to bfloat16 instead of rounding to nearest even, so "
            "every cast at run time is biased by half an ulp. Use amp_cast wherever the consumer knows it."
        )
    return tuple(notes)


def unfused_notes(layers: Sequence[str]) -> tuple[str, ...]:
    """Return what the user should know of nodes that were taken apart (:mod:`mxamp.graph.unfused`)."""
    if not layers:
        return ()
    return (
        f"Nodes that had been fused for oneDNN ({some_of(layers)}) are taken apart: what is inside cannot be "
        "converted otherwise. MXNet fuses what comes of it anew.",
    )


def calibration_notes(
    calibration: Calibration, graph: Graph, params: Mapping[str, Parameter]
) -> tuple[str, ...]:
    """Return what the user should know of a calibration for a model.

    Parameters
    ----------
    calibration
        The calibration.
    graph, params
        The user's model.
    """
    record = ModelRecord.of(graph, params)
    if not knows_some_of(graph, calibration):
        return (
            "The calibration is of another model: it knows none of this one's nodes, and nothing comes of "
            "it.",
        )
    if record.graph != calibration.model.graph:
        return (
            "The calibration was made of another graph. Nodes are looked up by their names; where another "
            "computation has the name, what it says is wrong.",
        )
    if record.params != calibration.model.params:
        return (
            "The calibration was made with other parameters, and so of other values. Calibrate this model.",
        )
    return ()


def kept_weight_notes(state: State) -> tuple[str, ...]:
    """Return a warning for weights that MXNet's fusion keeps, though the graph computes them anew."""
    graph = state.graph
    layers = state.target.backend.layers_of_computed_weights(graph, state.params)
    if not layers or not state.params:  # of a Symbol alone nobody knows what is an input
        return ()
    kept = some_of([graph.nodes[position].name for position in layers])
    return (
        "MXNet's oneDNN fusion, which Module and bind use, computes every forward pass but the first wrongly "
        f"on CPUs, in float32 as well: it keeps the weights of {kept}, which the model computes from its "
        "inputs or draws anew. Set MXNET_SUBGRAPH_BACKEND=NONE in the environment before a model is bound. A "
        "block that convert_block returns is not fused, and right.",
    )


def misread_order_notes(user: State) -> tuple[str, ...]:
    """Return a warning for what MXNet misreads in the float32 model, and not in the converted one."""

    def is_plain(position: int) -> bool:
        return user.dtypes[position][0] is not DType.FLOAT32

    misread = user.target.backend.misread_orders(user.graph, is_plain)
    if not misread:
        return ()
    which = some_of([user.graph.nodes[position].name for position in misread])
    return (
        "On CPUs MXNet may raise or be wrong in the float32 model: a convolution leaves values in blocks of "
        f"channels, which {which} cannot read, or hands on as if they had another shape. This model reads a "
        "copy in plain order there.",
    )


def lost_branch_notes(user: State, prepared: State) -> list[str]:
    """Return a warning for what MXNet's fusion computes wrongly, at the least before conversion."""
    if not user.lost_branches:
        return []
    first, nodes = user.lost_branches[0], user.graph.nodes
    if first.fault:
        what = f"although {first.fault}, and that comes out wrong"
    elif first.reader is None:
        what = "although that is an output of the model, so that one of the two results is lost"
    elif first.reader == first.fused:
        what = "which reads it twice, and fails"
    else:
        what = (
            f"although {nodes[first.reader].name!r} reads it as well, so that one of the two results is lost"
        )
    more = f" There are {len(user.lost_branches)} such places." if len(user.lost_branches) > 1 else ""
    is_kept = not prepared.lost_branches
    which = "that model is bound; this one is guarded" if is_kept else "that model or this one is bound"
    return [
        "MXNet's oneDNN fusion computes the float32 model wrongly on CPUs: it fuses "
        f"{nodes[first.value].name!r} with {nodes[first.fused].name!r}, {what}.{more} Set "
        f"MXNET_SUBGRAPH_BACKEND=NONE in the environment before {which}."
    ]
