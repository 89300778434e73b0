"""Graphs for tests, built node by node, and conversions of them that depend on no measured target."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import numpy as np

from mxamp.conversion import Options, Source, convert_graph
from mxamp.decisions import DecisionInputs, Plan, decide
from mxamp.dtypes import DType
from mxamp.graph import VARIABLE, Entry, Graph, Node, verify_graph
from mxamp.graph.infer import check_dtypes, infer_dtypes, variable_dtypes
from mxamp.graph.output_names import output_names
from mxamp.model import Model
from mxamp.params.parameter import ArrayParameter
from mxamp.passes import Done, State
from mxamp.policy import Policy, Verdict
from mxamp.policy.coloring import color_graph
from mxamp.policy.context import ColoringContext
from mxamp.targets import Support, Target

F32, F16, BF16 = DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16
LOW = (F16, BF16)


class Net:
    """Writes a graph; every method returns the entry that later nodes read."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.params: dict[str, np.ndarray[Any, Any]] = {}

    def var(self, name: str, **attrs: str) -> Entry:
        """Add a graph input."""
        return self._add(Node(VARIABLE, name, attrs))

    def param(self, name: str, *shape: int, value: float | None = None) -> Entry:
        """Add a parameter of small values, the same in every run."""
        values = np.random.default_rng(len(self.nodes)).uniform(-0.5, 0.5, shape)
        self.params[name] = (values if value is None else np.full(shape, value)).astype(np.float32)
        return self.var(name)

    def op(self, op: str, *inputs: Entry, name: str = "", outputs: int = 1, **attrs: Any) -> Entry:
        """Add an operator; it is called ``exp3`` where no name is given."""
        texts = {key: str(value) for key, value in attrs.items()}
        return self._add(
            Node(op, name or f"{op.strip('_').lower()}{len(self.nodes)}", texts, inputs, outputs)
        )

    def fc(self, data: Entry, name: str = "", hidden: int = 4) -> Entry:
        """Add a FullyConnected layer of 4 inputs with a weight of its own: GREEN."""
        name = name or f"fc{len(self.nodes)}"
        weight = self.param(f"{name}_weight", hidden, 4)
        return self.op("FullyConnected", data, weight, name=name, num_hidden=hidden, no_bias=True)

    def conv(self, data: Entry, name: str = "", filters: int = 4) -> Entry:
        """Add a 1x1 Convolution of 4 channels with a weight of its own: GREEN."""
        name = name or f"conv{len(self.nodes)}"
        weight = self.param(f"{name}_weight", filters, 4, 1, 1)
        return self.op(
            "Convolution", data, weight, name=name, num_filter=filters, kernel="(1, 1)", no_bias=True
        )

    def bn(self, data: Entry, name: str) -> Entry:
        """Add a BatchNorm with its four FP32 parameters."""
        values = {"gamma": 1.0, "beta": 0.0, "moving_mean": 0.0, "moving_var": 1.0}
        parameters = [self.param(f"{name}_{part}", 4, value=value) for part, value in values.items()]
        return self.op("BatchNorm", data, *parameters, name=name, outputs=3, fix_gamma=False)

    def graph(self, *heads: Entry) -> Graph:
        """Return the graph with these outputs, verified."""
        graph = Graph(tuple(self.nodes), heads, {"mxnet_version": ["int", 10901]})
        verify_graph(graph)
        return graph

    def _add(self, node: Node) -> Entry:
        self.nodes.append(node)
        return Entry(len(self.nodes) - 1)


def capable(dtype: DType) -> Target:
    """Return a target that runs every operator in ``dtype`` and fuses nothing."""
    return Target(f"capable-{dtype}", dtype, "cpu", "runs everything", {}, Support.WORKS)


def parameters(arrays: Mapping[str, Any]) -> dict[str, ArrayParameter]:
    return {name: ArrayParameter(values) for name, values in arrays.items()}


AUXILIARY = ("moving_mean", "moving_var")


def convert(
    graph: Graph, params: Mapping[str, Any] | None = None, dtype: DType = BF16, **options: Any
) -> Model:
    """Convert on a target that can do everything, prepare and fold nothing: only numerics decide."""
    params = params or {}
    options.setdefault("policy", Policy.default(dtype))
    options.setdefault("target", capable(dtype))
    options.setdefault("fold_batch_norm", False)
    options.setdefault("prepare", ())
    args = {name: value for name, value in params.items() if not name.endswith(AUXILIARY)}
    auxs = {name: value for name, value in params.items() if name.endswith(AUXILIARY)}
    return converted(graph, parameters(args), parameters(auxs), **options)


_OF_SOURCE = ("inputs", "shapes")
_OF_CALL = ("build_symbol", "warn", "observe")


def converted(graph: Graph, args: Mapping[str, Any], auxs: Mapping[str, Any], **given: Any) -> Model:
    """Convert a graph with parameters; ``given`` are options, and what else a conversion takes."""
    source = Source(graph, args, auxs, **{key: given.pop(key) for key in _OF_SOURCE if key in given})
    call = {key: given.pop(key) for key in _OF_CALL if key in given}
    return convert_graph(source, Options(**given), **call)


def reconvert(model: Model, dtype: DType = BF16, **options: Any) -> Model:
    """Convert what a conversion returned."""
    options.setdefault("policy", Policy.default(dtype))
    options.setdefault("target", capable(dtype))
    options.setdefault("fold_batch_norm", False)
    options.setdefault("prepare", ())
    return converted(model.graph, model.arg_params, model.aux_params, **options)


def plan_for(
    graph: Graph, params: Mapping[str, Any] | None = None, dtype: DType = BF16, **options: Any
) -> Plan:
    """Return the decisions for a graph, on a target that can do everything."""
    wrapped = parameters(params or {})
    options.setdefault("policy", Policy.default(dtype))
    options.setdefault("target", capable(dtype))
    offline = options.pop("offline", True)
    return decide(
        DecisionInputs(
            graph=graph,
            variables=variable_dtypes(graph, {name: value.dtype for name, value in wrapped.items()}),
            params=wrapped,
            castable=frozenset(wrapped) if offline else frozenset(),
            **options,
        )
    )


def state_for(
    graph: Graph, params: Mapping[str, Any] | None = None, dtype: DType = BF16, **known: Any
) -> State:
    """Return the state in which a conversion begins, on a target that can do everything."""
    policy = known.pop("policy", None) or Policy.default(dtype)
    target = known.pop("target", None) or capable(dtype)
    auxiliary = frozenset(name for name in params or {} if name.endswith(AUXILIARY))
    return State.of(graph, parameters(params or {}), policy, target, auxiliary=auxiliary, **known)


def planned_state(
    graph: Graph, params: Mapping[str, Any] | None = None, dtype: DType = BF16, **options: Any
) -> State:
    """Return the state behind the decisions of :func:`plan_for`."""
    start = state_for(graph, params, dtype, policy=options.get("policy"))
    return start.after(Done(None, plan=plan_for(graph, params, dtype, **options)))


def colors(
    graph: Graph, params: Mapping[str, Any] | None = None, dtype: DType = BF16, policy: Policy | None = None
) -> dict[str, Verdict]:
    """Return the verdict of every operator node by name."""
    wrapped = parameters(params or {})
    known = variable_dtypes(graph, {name: value.dtype for name, value in wrapped.items()})
    context = ColoringContext(graph, infer_dtypes(graph, known), policy or Policy.default(dtype), wrapped)
    return {
        node.name: verdict for node, verdict in zip(graph.nodes, color_graph(context)) if not node.is_variable
    }


def red(verdicts: Mapping[str, Verdict]) -> set[str]:
    """Return the names of the RED nodes."""
    return {name for name, verdict in verdicts.items() if verdict.color.value == "red"}


def dtypes_of(model: Model) -> dict[str, tuple[DType | None, ...]]:
    """Return the dtypes of every node's outputs in a converted model, by name."""
    found = infer_dtypes(model.graph, variables_of(model))
    return {node.name: dtypes for node, dtypes in zip(model.graph.nodes, found)}


def variables_of(model: Model) -> dict[str, DType]:
    stored = {
        name: parameter.dtype
        for params in (model.arg_params, model.aux_params)
        for name, parameter in params.items()
    }
    return variable_dtypes(model.graph, stored)


def named(graph: Graph, name: str) -> Node:
    """Return the one node of that name."""
    (node,) = [node for node in graph.nodes if node.name == name]
    return node


def reads(graph: Graph, name: str) -> list[str]:
    """Return the names of what a node reads."""
    return [graph.describe(entry) for entry in named(graph, name).inputs]


def casts(graph: Graph) -> list[str]:
    """Return every cast of a graph as ``source -> dtype``, in graph order."""
    return [
        f"{graph.describe(node.inputs[0])} -> {node.attrs['dtype']}"
        for node in graph.nodes
        if node.op in ("amp_cast", "Cast")
    ]


def assert_sound(before: Graph, model: Model, *, low_inputs: Sequence[str] = ()) -> None:
    """Check what must hold after every conversion."""
    verify_graph(model.graph)
    variables = variables_of(model)
    found = infer_dtypes(model.graph, variables)
    check_dtypes(model.graph, found)
    assert output_names(model.graph) == output_names(before)
    assert set(before.variables) <= set(model.graph.variables) | folded_away(model)
    names, original = _input_names(model.graph, model), _input_names(before, model)
    assert names == [name for name in original if name not in folded_away(model)]
    operators = [node.name for node in model.graph.nodes if not node.is_variable]
    assert len(set(operators)) == len(operators) or _duplicates(before)
    for name in low_inputs:
        assert variables[name].is_low_precision


def folded_away(model: Model) -> set[str]:
    """Return the parameters that live on in others only."""
    assert model.report is not None
    return {parameter.name for parameter in model.report.parameters if not parameter.stored}


def _input_names(graph: Graph, model: Model) -> list[str]:
    """Return the variables in MXNet's order, without parameters that are stored under two names or new."""
    assert model.report is not None
    moved = {
        name
        for parameter in model.report.parameters
        if len(parameter.stored) > 1
        for name in (parameter.name, *parameter.stored)
    }
    names = [graph.nodes[position].name for position in graph.input_order()]
    return [name for name in names if name not in moved]


def _duplicates(graph: Graph) -> bool:
    operators = [node.name for node in graph.nodes if not node.is_variable]
    return len(set(operators)) < len(operators)
