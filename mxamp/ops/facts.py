"""What an MXNet operator is: the role of each input, the dtype of each output, what it does to values.

One :class:`OperatorFacts` record describes one operator. Facts say nothing about what is wise (that is
the policy's business) nor about what a machine can run (the target's); they say what is true of the
operator in MXNet 1.9.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Callable, Mapping, Sequence

from mxamp.dtypes import DType
from mxamp.errors import OperatorError, TargetError
from mxamp.ops.promotion import promoted
from mxamp.ops.roles import (
    OF_FIRST_INPUT,
    Averaging,
    FromAttribute,
    FromData,
    InputRole,
    OutputRule,
    SameAsData,
    ValueKind,
)


@dataclass(frozen=True)
class OperatorFacts:
    """Everything mxamp knows about one operator.

    Attributes
    ----------
    name
        MXNet's canonical name, the one ``symbol.json`` holds.
    roles
        The role of each input by position.
    rest
        The role of inputs beyond ``roles``; None where there are none.
    outputs
        The dtype rule of each output; the last one holds for all further outputs.
    kind
        How values come about.
    outputs_by_attributes
        Gives the rules from the attributes where they decide more than a dtype (``topk``'s ``ret_typ``);
        replaces ``outputs``.
    seeds
        Outputs that hold indices or coordinates: exactness spreads forward from them.
    output_names
        What MXNet appends to a node's name to name its outputs (``FListOutputNames``); empty where MXNet's
        default holds. See :meth:`output_name`.
    multiplies
        Whether it is made of multiply-adds, counted in the report.
    is_dense
        Whether it uses each of its weights once a sample, as no layer over images does.
    averaging
        What an output value is the mean of; ``averaging_by_attributes`` replaces it where attributes decide.
    aliases
        Other names MXNet registers for it, those of its NumPy mode (``_np_``, ``_npi_``, ``_npx_``) included.
    roles_by_attributes
        Gives the roles from the attributes where they move (``RNN`` has a cell state only with
        ``mode=lstm``); replaces ``roles``.
    seeds_by_attributes
        Gives the seeds from the attributes where they differ; replaces ``seeds``.
    promotes
        Whether DATA inputs of different dtypes are brought to one (:mod:`mxamp.ops.promotion`), not refused.
    refuses
        The dtypes of data that MXNet has no such operator for.
    refuses_by_attributes
        Gives them from the attributes where they differ; replaces ``refuses``.
    never_in_inference
        Why no inference graph holds the operator (it updates weights, it is a gradient ...); empty for all
        others. Such an operator stays FP32 and what it returns has no known dtype.
    apart
        Why the record says nothing of dtypes: casts and control flow, which the converter has code for, and
        operators that run code of the user's (``Custom``). :meth:`FactsTable.of` leaves these out.
    """

    name: str
    roles: tuple[InputRole, ...]
    rest: InputRole | None = None
    outputs: tuple[OutputRule, ...] = (SameAsData.SAME,)
    kind: ValueKind = ValueKind.COMPUTE
    seeds: tuple[int, ...] = ()
    output_names: tuple[str, ...] = ()
    multiplies: bool = False
    is_dense: bool = False
    averaging: Averaging = Averaging.NOTHING
    aliases: tuple[str, ...] = ()
    outputs_by_attributes: Callable[[Mapping[str, str]], tuple[OutputRule, ...]] | None = None
    roles_by_attributes: Callable[[Mapping[str, str]], tuple[InputRole, ...]] | None = None
    seeds_by_attributes: Callable[[Mapping[str, str]], tuple[int, ...]] | None = None
    averaging_by_attributes: Callable[[Mapping[str, str]], Averaging] | None = None
    promotes: bool = False
    refuses: frozenset[DType] = frozenset()
    refuses_by_attributes: Callable[[Mapping[str, str]], frozenset[DType]] | None = None
    never_in_inference: str = ""
    apart: str = ""

    @cached_property
    def only_float32(self) -> bool:
        """Whether MXNet implements the operator in FP32 (or FP64) alone, on every device."""
        roles = self.roles if self.rest is None else (*self.roles, self.rest)
        return InputRole.PARAM_FP32 in roles and not any(
            role.shares_dtype or role is InputRole.KEPT for role in roles
        )

    def role(self, position: int, attrs: Mapping[str, str] | None = None) -> InputRole:
        """Return the role of input ``position``; inputs MXNet never had are FREE.

        Parameters
        ----------
        position
            The number of the input.
        attrs
            The node's attributes, which move the roles of a few operators.
        """
        roles = self.roles
        if attrs is not None and self.roles_by_attributes is not None:
            roles = self.roles_by_attributes(attrs)
        if position < len(roles):
            return roles[position]
        return self.rest if self.rest is not None else InputRole.FREE

    def all_roles(self, count: int, attrs: Mapping[str, str]) -> Sequence[InputRole]:
        """Return the roles of the first ``count`` inputs, as :meth:`role` gives them one by one.

        Parameters
        ----------
        count
            How many inputs the node has.
        attrs
            Its attributes.
        """
        roles = self.roles if self.roles_by_attributes is None else self.roles_by_attributes(attrs)
        if count <= len(roles):
            return roles[:count]
        rest = InputRole.FREE if self.rest is None else self.rest
        return (*roles, *[rest] * (count - len(roles)))

    def data_dtype(self, attrs: Mapping[str, str], inputs: Sequence[DType | None]) -> DType | None:
        """Return the dtype that the DATA inputs share or are promoted to; None when it is not known.

        Parameters
        ----------
        attrs
            The node's attributes.
        inputs
            The dtype of every input, None where it is not known.
        """
        if self.promotes:
            sharing = [dtype for number, dtype in enumerate(inputs) if self.role(number, attrs).shares_dtype]
            known = [dtype for dtype in sharing if dtype is not None]
            return promoted(known) if known and len(known) == len(sharing) else None
        for dtype, role in zip(inputs, self.all_roles(len(inputs), attrs)):
            if dtype is not None and role.shares_dtype:
                return dtype
        return inputs[0] if inputs and self.outputs[0] in OF_FIRST_INPUT else None

    def seed_outputs(self, attrs: Mapping[str, str]) -> tuple[int, ...]:
        """Return the outputs that hold indices or coordinates, for a node with these attributes."""
        return self.seeds if self.seeds_by_attributes is None else self.seeds_by_attributes(attrs)

    def averages(self, attrs: Mapping[str, str]) -> Averaging:
        """Return what an output value is the mean of, for a node with these attributes."""
        by_attributes = self.averaging_by_attributes
        return self.averaging if by_attributes is None else by_attributes(attrs)

    def refused(self, attrs: Mapping[str, str]) -> frozenset[DType]:
        """Return the dtypes of data that MXNet has no such operator for, of a node with these attributes."""
        by_attributes = self.refuses_by_attributes
        return self.refuses if by_attributes is None else by_attributes(attrs)

    def output_name(self, index: int, count: int) -> str:
        """Return what MXNet appends, after an underscore, to a node's name to name one of its outputs.

        Parameters
        ----------
        index
            The number of the output.
        count
            How many outputs the node has, hidden ones included.
        """
        if index < len(self.output_names):
            return self.output_names[index]
        return "output" if count == 1 else f"output{index}"

    def output_dtypes(
        self, attrs: Mapping[str, str], data: DType | None, count: int
    ) -> tuple[DType | None, ...]:
        """Return the dtype of each output.

        Parameters
        ----------
        attrs
            The node's attributes.
        data
            The dtype the DATA inputs share, or the first input's where there are none and the rule asks for
            it; None when it is not known.
        count
            How many outputs the node has.

        Raises
        ------
        OperatorError
            When a dtype attribute holds something that is not a dtype.
        """
        rules = self.outputs
        if self.outputs_by_attributes is not None:
            rules = self.outputs_by_attributes(attrs)
        resolved = [self._resolve(rule, attrs, data) for rule in rules[:count]]
        return tuple(resolved + resolved[-1:] * (count - len(resolved)))

    def _resolve(self, rule: OutputRule, attrs: Mapping[str, str], data: DType | None) -> DType | None:
        if isinstance(rule, FromAttribute):
            value = attrs.get(rule.key, "None")
            if value != "None":
                try:
                    return DType.parse(value, aliases=False)
                except TargetError as error:
                    raise OperatorError(
                        f"{self.name} has the attribute {rule.key}={value!r}: {error}"
                    ) from None
            rule = rule.default
        if isinstance(rule, FromData):
            return None if data is None else rule.exceptions.get(data, data)
        if rule is SameAsData.AT_LEAST_FLOAT32:
            return DType.FLOAT32 if data is not None and data.is_low_precision else data
        if rule is SameAsData.FLOAT32_OR_FLOAT64:
            return data if data is DType.FLOAT64 else DType.FLOAT32
        return data if isinstance(rule, SameAsData) else rule
