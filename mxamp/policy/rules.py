"""The ordered rules that color a node. Each answers one question and gives its reason.

The first rule with an answer decides. The user comes first; then what would make the result wrong whatever
the operator is; the operator tables come last. Rules look at one node; where exactness must spread over a
region is the business of :mod:`mxamp.policy.exactness`.
"""

from __future__ import annotations

from typing import Protocol

from mxamp.dtypes import DType
from mxamp.errors import PolicyError
from mxamp.graph.control_flow import is_control_flow
from mxamp.graph.graph import VARIABLE, Entry
from mxamp.ops import InputRole
from mxamp.ops.casts import AMP_CAST, AMP_MULTICAST
from mxamp.ops.facts_table import operator_label
from mxamp.policy.color import Color, Verdict
from mxamp.policy.context import ColoringContext
from mxamp.policy.entries import entry_for
from mxamp.policy.exactness import is_made_of_positions
from mxamp.policy.policy import PURE_REASON


class Rule(Protocol):
    """Judges one node."""

    name: str
    is_hard: bool
    """Whether it holds against a user's wish for low precision: the result would be wrong, not less exact."""

    def judge(self, context: ColoringContext, position: int) -> Verdict | None:
        """Return a verdict, or None when the rule has nothing to say about the node."""


class UserRules:
    """The user's selectors: names, globs, regular expressions, operators, attributes."""

    name = "user rule"
    is_hard = False

    def judge(self, context: ColoringContext, position: int) -> Verdict | None:
        """Return the color of the first user rule that picks the node."""
        if not context.policy.rules:
            return None
        node = context.graph.nodes[position]
        for rule in context.policy.rules:
            if rule.selector.picks(node):
                return Verdict(rule.color, self.name, rule.reason, by_user=True)
        return None


class UserColorFunction:
    """The user's function ``color(node) -> Color | None``."""

    name = "color function"
    is_hard = False

    def judge(self, context: ColoringContext, position: int) -> Verdict | None:
        """Return what the function says."""
        function = context.policy.color_function
        if function is None:
            return None
        node = context.graph.nodes[position]
        label = getattr(function, "__name__", type(function).__name__)
        try:
            answer = function(context.view(position))
        except Exception as error:
            raise PolicyError(
                f"The color function {label!r} failed at {node}: {type(error).__name__}: {error}. It is "
                "called with one NodeView for every operator node, and must return a Color or None."
            ) from error
        if answer is None:
            return None
        try:
            color = Color.parse(answer)
        except PolicyError as error:
            raise PolicyError(f"The color function answered {answer!r} for {node}. {error}") from None
        return Verdict(color, self.name, f"the color function {label!r} says so", by_user=True)


class UnknownOperator:
    """An operator without facts stays FP32: treating the unknown as safe is how models break."""

    name = "unknown operator"
    is_hard = True

    def judge(self, context: ColoringContext, position: int) -> Verdict | None:
        """Return RED for an operator that mxamp knows nothing about."""
        if context.facts[position] is not None:
            return None
        node = context.graph.nodes[position]
        op = node.op
        if op in (AMP_CAST, AMP_MULTICAST):
            return None
        if is_control_flow(node):
            return Verdict(
                Color.RED,
                "control flow",
                "its states and results stay float32; its bodies are decided inside",
            )
        return Verdict(
            Color.RED,
            self.name,
            f"mxamp knows nothing about the operator {operator_label(op, node.attrs)}, "
            "so it computes in float32",
            computes_float32=True,
        )


class NeverInInference:
    """Gradients, optimizer steps and the like stay as they are: they are no inference."""

    name = "never in inference"
    is_hard = True

    def judge(self, context: ColoringContext, position: int) -> Verdict | None:
        """Return RED for an operator that no inference graph holds."""
        facts = context.facts[position]
        if facts is None or not facts.never_in_inference:
            return None
        return Verdict(
            Color.RED,
            self.name,
            f"{facts.never_in_inference}; no part of inference, so left in float32",
            of_operator=True,
            computes_float32=True,
        )


class Float32Kernel:
    """Some operators exist in FP32 alone, on every device."""

    name = "float32 kernel"
    is_hard = True

    def judge(self, context: ColoringContext, position: int) -> Verdict | None:
        """Return RED where MXNet has no low-precision kernel."""
        facts = context.facts[position]
        if facts is None or not facts.only_float32:
            return None
        reason = f"MXNet implements {facts.name} in float32 alone"
        return Verdict(Color.RED, self.name, reason, computes_float32=True)


class RefusedDtype:
    """Some operators, most of MXNet's NumPy mode, refuse one low dtype."""

    name = "refused dtype"
    is_hard = True

    def judge(self, context: ColoringContext, position: int) -> Verdict | None:
        """Return RED where MXNet's type inference would refuse the graph."""
        facts, dtype = context.facts[position], context.policy.target_dtype
        attrs = context.graph.nodes[position].attrs
        if facts is None or dtype not in facts.refused(attrs):
            return None
        how = "" if facts.refuses_by_attributes is None else " with such attributes"
        return Verdict(Color.RED, self.name, f"MXNet refuses {dtype} inputs of {facts.name}{how}")


class PromotedInputs:
    """Where dtypes may be mixed, low precision beside integers is not what FP32 beside integers is.

    Features in bfloat16 become integers and lose their fractions; integers in float16 are exact to 2048.
    """

    name = "promotion"
    is_hard = True

    def judge(self, context: ColoringContext, position: int) -> Verdict | None:
        """Return RED where an operator that promotes its inputs reads integers beside floating-point data."""
        facts, low = context.facts[position], context.policy.target_dtype
        if facts is None or not facts.promotes:
            return None
        node = context.graph.nodes[position]
        for number, entry in enumerate(node.inputs):
            dtype = context.dtypes[entry.node][entry.output]
            if dtype is None or dtype.is_float or not facts.role(number, node.attrs).shares_dtype:
                continue
            if low is DType.BFLOAT16:
                loss = f"turns bfloat16 beside {dtype} into integers, and drops the fractions"
            elif dtype is not DType.BOOL:
                loss = f"computes in {low} beside {dtype}, and {low} does not hold all integers"
            else:
                continue
            return Verdict(Color.RED, self.name, f"MXNet {loss}")
        return None


class NamedOutputs:
    """A graph output keeps its name only if nothing comes after it, where no cast can be called so."""

    name = "output name"
    is_hard = True

    def judge(self, context: ColoringContext, position: int) -> Verdict | None:
        """Return RED for a graph output whose name no cast could carry on."""
        outputs = context.head_outputs.get(position)
        if outputs is None or context.facts[position] is None:
            return None
        if all(Entry(position, output) in context.cast_names for output in outputs):
            return None
        return Verdict(
            Color.RED,
            self.name,
            "its outputs are graph outputs, and a cast after them would have to change their names",
        )


class SparseTensors:
    """What reads a sparse parameter or input computes in FP32, for MXNet casts dense tensors alone."""

    name = "sparse input"
    is_hard = True

    def judge(self, context: ColoringContext, position: int) -> Verdict | None:
        """Return RED where an input is stored as row_sparse or csr."""
        if not context.sparse:
            return None
        for entry in context.graph.nodes[position].inputs:
            name = context.sparse.get(entry.node)
            if name in context.params:
                reason = f"the parameter {name!r} is stored sparsely, and is never cast"
                return Verdict(Color.RED, "sparse parameter", reason)
            if name is not None:
                reason = f"the input {name!r} is sparse, and a cast would make it dense"
                return Verdict(Color.RED, self.name, reason)
        return None


class ConditionalAttributes:
    """Attribute values that change an operator's color."""

    name = "attribute"
    is_hard = False

    def judge(self, context: ColoringContext, position: int) -> Verdict | None:
        """Return the color of the first condition that holds."""
        node, op = context.graph.nodes[position], context.names[position]
        for condition in context.policy.conditions:
            if condition.op == op and node.attrs.get(condition.attribute) in condition.values:
                return Verdict(condition.color, self.name, condition.reason)
        return None


class ParameterRange:
    """Parameters that the dtype cannot hold: infinities, or mostly zeros."""

    name = "parameter range"
    is_hard = True

    def judge(self, context: ColoringContext, position: int) -> Verdict | None:
        """Return RED when a parameter would overflow, or mostly underflow, once cast."""
        facts = context.facts[position]
        if facts is None or not context.params:
            return None
        dtype = context.policy.target_dtype
        graph = context.graph
        node = graph.nodes[position]
        for entry, role in zip(node.inputs, facts.all_roles(len(node.inputs), node.attrs)):
            source = graph.nodes[entry.node]
            if role is not InputRole.DATA or source.op != VARIABLE:
                continue
            name = source.name
            parameter = context.params.get(name)
            if parameter is None:
                continue
            loss = parameter.range_loss(dtype)
            if loss is None or (loss.zeroed is None and name in context.saturated):
                continue
            if loss.largest is not None and name not in context.saturated:
                return Verdict(
                    Color.RED,
                    self.name,
                    f"parameter {name!r} reaches {loss.largest:.4g}, beyond {dtype}'s largest value "
                    f"{dtype.max_finite:.5g}",
                    of_range=True,
                )
            return Verdict(
                Color.RED,
                self.name,
                f"{loss.zeroed:.0%} of parameter {name!r} would become zero in {dtype}, whose smallest value "
                f"is {dtype.smallest_subnormal:.3g}",
                of_range=True,
            )
        return None


class ScalarRange:
    """Scalar attributes that the dtype turns into infinity or zero: a mask of -1e18, an eps of 1e-12."""

    name = "scalar range"
    is_hard = False
    attributes: tuple[str, ...] = (
        *("scalar", "a_min", "a_max", "eps", "constant_value", "value", "fill_value", "val"),
    )

    def judge(self, context: ColoringContext, position: int) -> Verdict | None:
        """Return RED when a scalar attribute overflows or underflows."""
        node, facts = context.graph.nodes[position], context.facts[position]
        if context.policy.is_pure:
            return None
        if facts is None or InputRole.PARAM_FP32 in facts.roles:
            return None  # BatchNorm adds eps to its FP32 variance
        dtype = context.policy.target_dtype
        for attribute in self.attributes:
            text = node.attrs.get(attribute)
            if text is None:
                continue
            try:
                magnitude = abs(float(text))
            except ValueError:
                continue
            if magnitude > dtype.max_finite:
                trouble = f"overflows {dtype}, whose largest value is {dtype.max_finite:.5g}"
            elif 0.0 < magnitude < dtype.smallest_normal:
                trouble = f"is too small for {dtype}, which is precise from {dtype.smallest_normal:.3g}"
            else:
                continue
            return Verdict(Color.RED, self.name, f"{attribute}={text} {trouble}")
        return None


class WeightsOfPositions:
    """A product with weights that are made of positions interpolates: rounded weights move what it reads."""

    name = "weights of positions"
    is_hard = False

    def judge(self, context: ColoringContext, position: int) -> Verdict | None:
        """Return RED for a sum of products with values that are made of nothing but positions."""
        facts = context.facts[position]
        if facts is None or not facts.multiplies:
            return None
        for entry in context.graph.nodes[position].inputs:
            if is_made_of_positions(context.graph, entry):
                name = context.graph.nodes[entry.node].name
                reason = f"{name!r}, which it multiplies by, is made of positions alone, and they are exact"
                return Verdict(Color.RED, self.name, reason)
        return None


class OperatorTable:
    """The policy's operator tables; an operator in none of them is RED."""

    name = "operator table"
    is_hard = False

    def judge(self, context: ColoringContext, position: int) -> Verdict | None:
        """Return what the tables say."""
        op = context.names[position]
        known = context.table_verdicts.get(op)
        if known is None:
            known = context.table_verdicts[op] = self._verdict(context, op)
        return known

    def _verdict(self, context: ColoringContext, op: str) -> Verdict:
        entry = entry_for(context.policy, op)
        if entry is None and context.policy.is_pure:
            return Verdict(Color.GREEN, self.name, PURE_REASON)
        if entry is None:
            reason = f"the policy has no entry for {op}, so it computes in float32"
            return Verdict(Color.RED, self.name, reason, of_operator=True)
        return Verdict(
            entry.color,
            self.name,
            entry.reason,
            entry.accumulation,
            entry.output,
            widest=op in context.policy.widest_operators,
            of_operator=True,
        )


RULES: tuple[Rule, ...] = (
    UserRules(),
    UserColorFunction(),
    UnknownOperator(),
    NeverInInference(),
    Float32Kernel(),
    RefusedDtype(),
    PromotedInputs(),
    NamedOutputs(),
    SparseTensors(),
    ConditionalAttributes(),
    ParameterRange(),
    ScalarRange(),
    WeightsOfPositions(),
    OperatorTable(),
)
"""The rules in the order in which they are asked; the last always answers."""
