"""Turn a converted model into one that emulates it, in float32 throughout."""

from __future__ import annotations

import dataclasses
from typing import Mapping, Sequence

import numpy as np

from mxamp.dtypes import DType
from mxamp.graph.graph import Graph
from mxamp.graph.infer import infer_dtypes, variable_dtypes
from mxamp.messages.counts import count_of, some_of
from mxamp.model import Model
from mxamp.ops import FACTS
from mxamp.ops.casts import CAST
from mxamp.ops.reference import round_to
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.passes import EmulateLowPrecision, Emulation, KeepBranches, RoundedOnce, State, run_passes
from mxamp.policy.policy import Policy
from mxamp.report.model import Report
from mxamp.targets import MXNET, Support, Target

_SUMS = frozenset(
    {
        *("GroupNorm", "InstanceNorm", "L2Normalization", "LRN", "LayerNorm", "_np_cumsum", "_square_sum"),
        *("_contrib_AdaptiveAvgPooling2D", "_contrib_count_sketch", "add_n", "col2im", "khatri_rao"),
        *("log_softmax", "mean", "moments", "nansum", "norm", "softmax", "softmin", "sum"),
        *("SoftmaxActivation", "SoftmaxOutput", "softmax_cross_entropy", "_npi_mean", "_np_sum", "_npi_norm"),
    }
)
"""Operators that add many values up; in which dtype they carry the sum, no graph can say."""


def emulation_target(policy: Policy, target: Target | None) -> Target | None:
    """Return the target to decide for; None for the built-in one of the policy's dtype.

    Without a target of the user's, pure low precision is that of a machine that runs every operator: what the
    numbers do is asked then, not what MXNet has kernels for. Where values are rounded is still the built-in
    target's. MXNet runs what emulates, so parameters are rounded beforehand, in the form that a runtime which
    rounds them itself rounds them in: BatchNorms folded.
    """
    if target is not None and target.backend.rounds_parameters:
        return dataclasses.replace(target, runtime=MXNET)
    if target is not None or not policy.is_pure:
        return target
    built_in = Target.for_dtype(policy.target_dtype)
    return dataclasses.replace(
        built_in,
        name=f"{built_in.name}, were it to run every operator",
        operators={},
        default=Support.WORKS,
        fusion=(),
    )


def emulate_model(model: Model, target: Target, emulation: Emulation) -> Model:
    """Return the model that computes in float32 what a converted model computes in low precision.

    Parameters
    ----------
    model
        The converted model; not changed.
    target
        The machine it was converted for.
    emulation
        How to emulate.

    Returns
    -------
    Model
        Its parameters and its graph are float32. Its report is that of the conversion, and says what is
        emulated.
    """
    variables = _variables(model)
    inputs = [
        name
        for name in model.graph.variables
        if name not in model.arg_params and name not in model.aux_params
    ]
    emulate = EmulateLowPrecision(variables, target, inputs=inputs, emulation=emulation)
    # Whatever machine is emulated, the graph runs on a CPU, where fusion must not lose a value.
    here = dataclasses.replace(target, device="cpu")
    state = run_passes(
        [emulate, KeepBranches()], State.of(model.graph, {}, Policy.default(target.dtype), here)
    )
    report = model.report
    if report is not None:
        chains = [chain.nodes for chain in state.record(RoundedOnce)]
        approximations = _approximations(model.graph, variables, target, chains, report)
        report = dataclasses.replace(report, emulated=report.target_dtype, approximations=approximations)
    return Model(
        state.graph,
        {name: _on_grid(value, variables.get(name)) for name, value in model.arg_params.items()},
        {name: _on_grid(value, variables.get(name)) for name, value in model.aux_params.items()},
        report,
    )


def _variables(model: Model) -> dict[str, DType]:
    """Return the dtype of every variable; the report knows of formats that no parameter is stored in."""
    known = {name: value.dtype for name, value in {**model.arg_params, **model.aux_params}.items()}
    report = model.report
    if report is not None:
        stated = {**report.inputs}
        for parameter in report.parameters:
            stated.update(parameter.stored)
        known.update({name: DType.parse(label, emulated=True) for name, label in stated.items()})
    return variable_dtypes(model.graph, known)


def _on_grid(parameter: Parameter, dtype: DType | None) -> Parameter:
    """Return a parameter as float32: widened, which is exact, or rounded to what MXNet cannot store."""
    if dtype is None or not dtype.is_low_precision:
        return parameter
    widened = parameter.cast(DType.FLOAT32)
    if not dtype.is_emulated_only:
        return widened
    return ArrayParameter(round_to(np.asarray(widened.numpy(), np.float32), dtype.label))


# ---------------------------------------------------------------------- what emulation cannot show


def _approximations(
    graph: Graph,
    variables: Mapping[str, DType],
    target: Target,
    chains: Sequence[tuple[str, ...]],
    report: Report,
) -> tuple[str, ...]:
    """Return where the real low precision differs from what is emulated, one sentence each."""
    low = target.dtype
    fused = {name for chain in chains for name in chain}
    sums: dict[str, list[str]] = {}
    for decided in report.nodes:
        op = FACTS.canonical(decided.op)
        if op in _SUMS and decided.compute == low.label and decided.accumulation == low.label:
            sums.setdefault(op, []).append(decided.name)
    found = [
        f"{op} may carry its sum in {low} (in {_some_nodes(names)}); emulation carries it in float32."
        for op, names in sums.items()
    ]
    recurrent = [node.name for node in report.nodes if node.op == "RNN" and node.compute == low.label]
    if recurrent:
        found.append(
            f"RNN rounds its states to {low} after every step (in {_some_nodes(recurrent)}), and only its "
            "results when emulated."
        )
    if target.device == "cpu" and low is DType.BFLOAT16:
        found += _bfloat16_differences(graph, variables, chains)
    biased: dict[str, list[str]] = {}
    dtypes = infer_dtypes(graph, variables)
    for position, node in enumerate(graph.nodes):
        facts = None if node.is_variable else FACTS.of(node.op, node.attrs)
        if facts is None or facts.name == CAST or node.name in fused or dtypes[position][0] is not low:
            continue
        if target.support(facts.name, node.attrs).support in (Support.BIASED, Support.WRONG):
            biased.setdefault(facts.name, []).append(node.name)
    for op, names in biased.items():
        note = target.operators[op].note
        found.append(f"{op} on {target.name} {note} (in {_some_nodes(names)}); emulation rounds to nearest.")
    return tuple(found)


def _bfloat16_differences(
    graph: Graph, variables: Mapping[str, DType], chains: Sequence[tuple[str, ...]]
) -> list[str]:
    """Return what MXNet's bfloat16 on CPUs does otherwise than round to nearest."""
    norms = {node.name for node in graph.nodes if node.op == "BatchNorm"}
    folded = [chain[0] for chain in chains if norms.intersection(chain)]
    found = []
    if folded:
        found.append(
            "MXNet's fused Convolution+BatchNorm truncates the weights it scales (in "
            f"{_some_nodes(folded)}); emulation scales them in float32."
        )
    dtypes = infer_dtypes(graph, variables)
    truncating = [
        node.name
        for position, node in enumerate(graph.nodes)
        if not node.is_variable and FACTS.canonical(node.op) == CAST and dtypes[position][0] is DType.BFLOAT16
    ]
    if truncating:
        found.append(
            f"MXNet's Cast truncates to bfloat16 (in {_some_nodes(truncating)}); emulation rounds to nearest."
        )
    return found


def _some_nodes(names: Sequence[str]) -> str:
    return f"{count_of(len(names), 'node')}: {some_of(names)}" if len(names) > 1 else repr(names[0])
