"""What an MXNet operator is: the role of each input, the dtype of each output, what it does to values.

One :class:`OperatorFacts` record describes one operator. Facts say nothing about what is wise (that is
the policy's business) nor about what a machine can run (the target's); they say what is true of the
operator in MXNet 1.9.1.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Callable, Iterable, Mapping, Sequence, Union

from mxamp.dtypes import DType
from mxamp.errors import OperatorError, TargetError
from mxamp.ops.promotion import promoted

__all__ = [
    "CUSTOM",
    "FactsTable",
    "FromAttribute",
    "FromData",
    "InputRole",
    "OperatorFacts",
    "OperatorFamily",
    "OutputRule",
    "SameAsData",
    "ValueKind",
    "custom_name",
    "operator_label",
]


class InputRole(enum.Enum):
    """What an operator does with one of its inputs, as far as casting is concerned."""

    DATA = "data"
    """Values to compute with; shares its dtype with the other DATA inputs."""

    PARAM_FP32 = "param_fp32"
    """FP32 whatever the target: a parameter (BatchNorm's gamma, beta and statistics; FP64 only beside FP64
    data), or any input of an operator that MXNet implements in FP32 alone (Crop, InstanceNorm)."""

    INDEX = "index"
    """Integers in a float array. Never cast: FP16 is exact only to 2048, BF16 to 256."""

    COORDINATE = "coordinate"
    """Shares its dtype with DATA, but holds positions, so the operator belongs in FP32."""

    LIKE = "like"
    """Its values are not read, at most its shape; any dtype will do (``slice_like``)."""

    LIKE_SAME = "like_same"
    """Its values are not read, yet MXNet ties its dtype to the data's or the output's (``zeros_like``, the
    label of ``SoftmaxOutput``)."""

    FREE = "free"
    """Its values are read, in whatever dtype they come (the condition of ``where``)."""

    KEPT = "kept"
    """Arrives in the dtype it had before conversion: int8 data, and the inputs of operators of whose code or
    use nothing is known."""

    __hash__ = object.__hash__

    shares_dtype: bool
    """Whether the input must have the dtype the operator computes in."""


for _role in InputRole:  # an attribute, for it is asked of every input of every node several times
    _role.shares_dtype = _role in (InputRole.DATA, InputRole.COORDINATE, InputRole.LIKE_SAME)


class ValueKind(enum.Enum):
    """How output values come from input values; decides where exactness must spread."""

    MOVE = "move"
    """Every output value is an input value (Reshape, Concat, slice): nothing is rounded."""

    AFFINE = "affine"
    """Arithmetic under which a coordinate stays a coordinate (add, scale, floor, minimum)."""

    COMPUTE = "compute"
    """Any other arithmetic: features in, features out."""

    COMPARE = "compare"
    """Zeros and ones, exact in every dtype, decided by comparing input values."""

    GENERATE = "generate"
    """Makes values out of attributes alone."""

    __hash__ = object.__hash__


class SameAsData(enum.Enum):
    """The output's dtype follows from the one that the DATA inputs share."""

    SAME = "same"

    AT_LEAST_FLOAT32 = "at least float32"
    """FP32 where the data is FP16 or BF16, otherwise the dtype of the data (BatchNorm's statistics)."""

    FLOAT32_OR_FLOAT64 = "float32 or float64"
    """For operators that MXNet implements in these two alone (linear algebra): FP64 where their input is."""

    FIRST_INPUT = "as the first input"
    """The dtype of the first input, though it is no DATA (quantized integers)."""

    __hash__ = object.__hash__


@dataclass(frozen=True)
class FromData:
    """The output has the dtype of the data, with exceptions.

    Attributes
    ----------
    exceptions
        Dtype of the data -> dtype of the output (``mean`` of integers is FP32).
    """

    exceptions: Mapping[DType, DType] = field(hash=False)


_USUAL_COUNT = 64
"""Of nodes with more inputs or outputs their roles and dtypes are not remembered: there are few of them."""

OF_FIRST_INPUT = frozenset({SameAsData.FLOAT32_OR_FLOAT64, SameAsData.FIRST_INPUT})
"""The rules for outputs that follow an input which shares its dtype with no other."""


@dataclass(frozen=True)
class FromAttribute:
    """The output dtype is the value of an attribute.

    Attributes
    ----------
    key
        Attribute name, such as ``dtype`` or ``out_type``.
    default
        What holds when the attribute is absent or ``None``.
    """

    key: str
    default: DType | SameAsData | FromData


OutputRule = Union[DType, SameAsData, FromData, FromAttribute]


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
    aliases: tuple[str, ...] = ()
    outputs_by_attributes: Callable[[Mapping[str, str]], tuple[OutputRule, ...]] | None = None
    roles_by_attributes: Callable[[Mapping[str, str]], tuple[InputRole, ...]] | None = None
    seeds_by_attributes: Callable[[Mapping[str, str]], tuple[int, ...]] | None = None
    promotes: bool = False
    refuses: frozenset[DType] = frozenset()
    never_in_inference: str = ""
    apart: str = ""
    _roles_of_so_many: dict[int, Sequence[InputRole]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _outputs_of_data: dict[tuple[DType | None, int], tuple[DType | None, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

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
        known = self._roles_of_so_many.get(count)
        if known is not None:
            return known
        roles = tuple([self.role(position, attrs) for position in range(count)])
        if self.roles_by_attributes is None and count <= _USUAL_COUNT:
            self._roles_of_so_many[count] = roles
        return roles

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
        if count == 1 and rules[0] is SameAsData.SAME:
            return (data,)
        if self._has_fixed_outputs and count <= _USUAL_COUNT:
            known = self._outputs_of_data.get((data, count))
            if known is None:
                known = self._outputs_of_data[data, count] = self._output_dtypes(rules, attrs, data, count)
            return known
        return self._output_dtypes(rules, attrs, data, count)

    @cached_property
    def _has_fixed_outputs(self) -> bool:
        """Whether the dtypes of the outputs follow from that of the data, whatever the attributes."""
        return self.outputs_by_attributes is None and not any(
            isinstance(rule, FromAttribute) for rule in self.outputs
        )

    def _output_dtypes(
        self, rules: Sequence[OutputRule], attrs: Mapping[str, str], data: DType | None, count: int
    ) -> tuple[DType | None, ...]:
        resolved = [self._resolve(rule, attrs, data) for rule in rules[:count]]
        while len(resolved) < count:
            resolved.append(resolved[-1])
        return tuple(resolved)

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


@dataclass(frozen=True)
class OperatorFamily:
    """Many operators that no inference graph holds, known by what their names have in common.

    Attributes
    ----------
    pattern
        Regular expression that the whole name must match.
    never_in_inference
        Why; see :class:`OperatorFacts`.
    """

    pattern: str
    never_in_inference: str

    def record(self, op: str) -> OperatorFacts | None:
        """Return the record of an operator of this family; None for an operator that is not of it."""
        if re.fullmatch(self.pattern, op) is None:
            return None
        return OperatorFacts(op, (), rest=InputRole.KEPT, never_in_inference=self.never_in_inference)


CUSTOM = "Custom"
"""The operator that runs Python: every ``mx.operator.register``ed class is called by this one name."""


def custom_name(op_type: str) -> str:
    """Return the name under which facts of a Python operator are kept."""
    return f"{CUSTOM}:{op_type}"


def operator_label(op: str, attrs: Mapping[str, str]) -> str:
    """Return what messages call a node's operator: its name, and for a Python operator which one it is."""
    return f"{op} with op_type={attrs.get('op_type', '')!r}" if op == CUSTOM else op


class FactsTable:
    """The records of many operators, looked up by any of their names.

    Parameters
    ----------
    records
        The records.
    families
        What is known of operators that have no record of their own; the first family that fits holds.

    Raises
    ------
    OperatorError
        When two records claim one name.
    """

    def __init__(self, records: Iterable[OperatorFacts], families: Iterable[OperatorFamily] = ()) -> None:
        self._by_name: dict[str, OperatorFacts] = {}
        self._families = tuple(families)
        for record in records:
            self.register(record)

    def register(self, record: OperatorFacts, *, replace: bool = False) -> Mapping[str, OperatorFacts | None]:
        """Add a record. The aliases of a record that is replaced lead to the new one.

        Returns
        -------
        mapping
            Every name that changed -> what it led to before, as :meth:`restore` takes it.

        Raises
        ------
        OperatorError
            When one of its names is taken and ``replace`` is false.
        """
        for name in (record.name, *record.aliases):
            if name in self._by_name and not replace:
                raise OperatorError(
                    f"The operator {name!r} has facts already, under {self._by_name[name].name!r}. "
                    "Register with replace=True to put yours in their place."
                )
        replaced = self._by_name.get(record.name)
        inherited = replaced.aliases if replaced is not None and replaced.name == record.name else ()
        names = (record.name, *inherited, *record.aliases)
        before = {name: self._by_name.get(name) for name in names}
        self._by_name.update(dict.fromkeys(names, record))
        return before

    def restore(self, before: Mapping[str, OperatorFacts | None]) -> None:
        """Undo :meth:`register`, given what it returned."""
        for name, record in before.items():
            if record is None:
                self._by_name.pop(name, None)
            else:
                self._by_name[name] = record

    def get(self, op: str) -> OperatorFacts | None:
        """Return the record of an operator by name or alias; None when nothing is known of it."""
        return self._by_name.get(op) or self._of_family(op)

    def of(self, op: str, attrs: Mapping[str, str]) -> OperatorFacts | None:
        """Return the record by which a node is converted.

        Parameters
        ----------
        op
            The node's operator.
        attrs
            Its attributes; a ``Custom`` node is known by its ``op_type``.

        Returns
        -------
        OperatorFacts or None
            None where there is none, or one that says nothing of dtypes: casts and control flow, which are
            converted by code of their own, and ``Custom`` operators that nobody registered facts for.
        """
        record = self._by_name.get(op)
        if record is None:
            return self._of_family(op)
        if not record.apart:
            return record
        if record.name == CUSTOM:
            return self._by_name.get(custom_name(attrs.get("op_type", "")))
        return None

    def _of_family(self, op: str) -> OperatorFacts | None:
        for family in self._families:
            record = family.record(op)
            if record is not None:
                return record
        return None

    def canonical(self, op: str) -> str:
        """Return the canonical name of an operator; an unknown name is its own."""
        record = self._by_name.get(op)
        return op if record is None else record.name

    def canonical_of(self, op: str, attrs: Mapping[str, str]) -> str:
        """Return the name under which policies and targets know a node's operator."""
        record = self.of(op, attrs)
        return self.canonical(op) if record is None else record.name

    def names(self) -> Sequence[str]:
        """Return every known name, aliases included, families not, sorted."""
        return sorted(self._by_name)

    def records(self) -> Sequence[OperatorFacts]:
        """Return every record once, in the order of registration; families are not among them."""
        return list({id(record): record for record in self._by_name.values()}.values())

    @property
    def families(self) -> Sequence[OperatorFamily]:
        """What is known of operators without a record of their own."""
        return self._families
