"""The ordered rules that color a node. Each answers one question and gives its reason.

The first rule with an answer decides. The user comes first; then what would make the result wrong whatever
the operator is; the operator tables come last. Rules look at one node; where exactness must spread over a
region is the business of :mod:`mxamp.policy.exactness`.
"""

from __future__ import annotations

from typing import Protocol

from mxamp.errors import PolicyError
from mxamp.graph.control_flow import is_control_flow
from mxamp.ops import InputRole
from mxamp.ops.casts import AMP_CAST, AMP_MULTICAST
from mxamp.policy.color import Color, Verdict
from mxamp.policy.context import ColoringContext

__all__ = ["RULES", "Rule"]


class Rule(Protocol):
    """Judges one node."""

    name: str

    def judge(self, context: ColoringContext, position: int) -> Verdict | None:
        """Return a verdict, or None when the rule has nothing to say about the node."""


class UserRules:
    """The user's selectors: names, globs, regular expressions, operators, attributes."""

    name = "user rule"

    def judge(self, context: ColoringContext, position: int) -> Verdict | None:
        """Return the color of the first user rule that picks the node."""
        if not context.policy.rules:
            return None
        node = context.graph.nodes[position]
        for rule in context.policy.rules:
            if rule.selector.picks(node):
                return Verdict(rule.color, self.name, rule.reason)
        return None


class UserColorFunction:
    """The user's function ``color(node) -> Color | None``."""

    name = "color function"

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
        return Verdict(color, self.name, f"the color function {label!r} says so")


class UnknownOperator:
    """An operator without facts stays FP32: treating the unknown as safe is how models break."""

    name = "unknown operator"

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
            Color.RED, self.name, f"mxamp knows nothing about the operator {op}, so it computes in float32"
        )


class Float32Kernel:
    """Some operators exist in FP32 alone, on every device."""

    name = "float32 kernel"

    def judge(self, context: ColoringContext, position: int) -> Verdict | None:
        """Return RED where MXNet has no low-precision kernel."""
        facts = context.facts[position]
        if facts is None or not facts.only_float32:
            return None
        return Verdict(Color.RED, self.name, f"MXNet implements {facts.name} in float32 alone")


class NamedOutputs:
    """A graph output of a multi-output operator keeps its name only if nothing comes after it."""

    name = "output name"

    def judge(self, context: ColoringContext, position: int) -> Verdict | None:
        """Return RED for a graph output whose name no cast could carry on."""
        outputs = context.head_outputs.get(position)
        if outputs is None:
            return None
        node, facts = context.graph.nodes[position], context.facts[position]
        if facts is None or all(facts.output_name(n, node.num_outputs) == "output" for n in outputs):
            return None
        return Verdict(
            Color.RED,
            self.name,
            "its outputs are graph outputs, and a cast after them would have to change their names",
        )


class ConditionalAttributes:
    """Attribute values that change an operator's color."""

    name = "attribute"

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

    def judge(self, context: ColoringContext, position: int) -> Verdict | None:
        """Return RED when a parameter would overflow, or mostly underflow, once cast."""
        facts = context.facts[position]
        if facts is None or not context.params:
            return None
        dtype = context.policy.target_dtype
        graph = context.graph
        node = graph.nodes[position]
        for number, entry in enumerate(node.inputs):
            parameter = context.parameter(entry.node)
            if parameter is None or facts.role(number, node.attrs) is not InputRole.DATA:
                continue
            loss = parameter.range_loss(dtype)
            if loss is None:
                continue
            name = graph.nodes[entry.node].name
            if loss.largest is not None:
                return Verdict(
                    Color.RED,
                    self.name,
                    f"parameter {name!r} reaches {loss.largest:.4g}, beyond {dtype}'s largest value "
                    f"{dtype.max_finite:.5g}",
                )
            return Verdict(
                Color.RED,
                self.name,
                f"{loss.zeroed:.0%} of parameter {name!r} would become zero in {dtype}, whose smallest value "
                f"is {dtype.smallest_subnormal:.3g}",
            )
        return None


class ScalarRange:
    """Scalar attributes that the dtype turns into infinity or zero: a mask of -1e18, an eps of 1e-12."""

    name = "scalar range"
    attributes: tuple[str, ...] = ("scalar", "a_min", "a_max", "eps", "constant_value", "value")

    def judge(self, context: ColoringContext, position: int) -> Verdict | None:
        """Return RED when a scalar attribute overflows or underflows."""
        node, facts = context.graph.nodes[position], context.facts[position]
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


class OperatorTable:
    """The policy's operator tables; an operator in none of them is RED."""

    name = "operator table"

    def judge(self, context: ColoringContext, position: int) -> Verdict | None:
        """Return what the tables say."""
        op = context.names[position]
        entry = context.policy.operators.get(op)
        if entry is None:
            return Verdict(
                Color.RED, self.name, f"the policy has no entry for {op}, so it computes in float32"
            )
        return Verdict(
            entry.color,
            self.name,
            entry.reason,
            entry.accumulation,
            entry.output,
            op in context.policy.widest_operators,
        )


HARD_RULES: tuple[Rule, ...] = (UnknownOperator(), Float32Kernel(), NamedOutputs(), ParameterRange())
"""Rules that a user's wish for low precision does not override: the result would be wrong, not less exact."""

RULES: tuple[Rule, ...] = (
    UserRules(),
    UserColorFunction(),
    UnknownOperator(),
    Float32Kernel(),
    NamedOutputs(),
    ConditionalAttributes(),
    ParameterRange(),
    ScalarRange(),
    OperatorTable(),
)
"""The rules in the order in which they are asked."""
