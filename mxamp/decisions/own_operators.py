"""Operators of the user's own: facts, colors and support, registered in one call."""

from __future__ import annotations

from typing import Any, Mapping, Sequence, Tuple, Union

from mxamp.dtypes import LOW_PRECISION, DType, GivenDType
from mxamp.errors import MxampError, OperatorError, TargetError, nearest_names
from mxamp.messages.arguments import check_flag, items
from mxamp.ops import FACTS, InputRole, OperatorFacts, Registration, SameAsData, ValueKind
from mxamp.ops.facts_table import CUSTOM, custom_name
from mxamp.ops.roles import FromAttribute, OutputRule
from mxamp.policy.color import Color
from mxamp.policy.entries import REGISTERED_COLORS
from mxamp.policy.parts import OperatorPolicy
from mxamp.targets import OperatorSupport, Support, Target
from mxamp.targets.target import REGISTERED_SUPPORT

ColorWithReason = Tuple[Union[Color, str], str]
"""A color, and why: ``("gray", "bounded, and no steeper than its input")``."""


def register_operator(
    name: str,
    *,
    op_type: str | None = None,
    inputs: Sequence[InputRole | str],
    more_inputs: InputRole | str | None = None,
    outputs: Sequence[GivenDType | OutputRule | Mapping[str, str]] = ("same",),
    kind: ValueKind | str = ValueKind.COMPUTE,
    colors: Mapping[GivenDType, ColorWithReason] | None = None,
    support: Mapping[str, Support | str] | None = None,
    accumulation: GivenDType | None = None,
    exact_outputs: Sequence[int] = (),
    output_names: Sequence[str] = (),
    multiplies: bool = False,
    replace: bool = False,
) -> Registration:
    """Tell mxamp what an operator of your own is, so that it can compute in low precision.

    Parameters
    ----------
    name
        The operator's name in ``symbol.json``: that of a library operator, or ``"Custom"`` for one in Python.
    op_type
        For ``name="Custom"``: the name it was given to ``mx.operator.register``.
    inputs
        What the operator does with each input: ``"data"`` (computes with it, in one dtype with the other data
        inputs and parameters), ``"param_fp32"`` (float32 always), ``"index"`` (integers in a float array,
        never cast), ``"coordinate"``, ``"like"``, ``"like_same"``, ``"free"`` or ``"kept"``; see
        :class:`mxamp.ops.InputRole`.
    more_inputs
        The same for all inputs after those, of an operator that takes any number.
    outputs
        The dtype of each output, the last one standing for all further ones: ``"same"`` as the data, a dtype
        such as ``"float32"`` or ``"int64"``, or ``{"attribute": "dtype", "default": "float32"}``.
    kind
        How values come about: ``"compute"``, ``"affine"`` (a position stays a position), ``"move"``,
        ``"compare"`` or ``"generate"``; see :class:`mxamp.ops.ValueKind`.
    colors
        Low dtype -> color and reason: ``{"bfloat16": ("gray", "bounded, one rounding")}``. For a dtype that
        is not there the operator stays float32.
    support
        Name of a built-in target -> how well the operator runs there: ``{"cpu-bf16": "works"}``. On a target
        that is not there it stays float32. A target of your own lists its operators itself.
    accumulation
        The dtype in which it adds up when it computes in low precision; by default the low dtype.
    exact_outputs
        Numbers of the outputs that hold indices or coordinates.
    output_names
        What MXNet appends to a node's name to name the outputs, where the operator names them itself.
    multiplies
        Whether it is made of multiply-adds.
    replace
        Whether facts that are there already, built in or registered, may be replaced.

    Returns
    -------
    Registration
        To be ignored, or to undo what was done: ``with mxamp.register_operator(...):``.

    Raises
    ------
    OperatorError
        When the operator has facts already, or an argument is not what it must be.

    Examples
    --------
    >>> with mxamp.register_operator(
    ...     "Custom",
    ...     op_type="swish",
    ...     inputs=["data"],
    ...     colors={"bfloat16": ("gray", "no steeper than 1.1 times its input; one rounding")},
    ...     support={"cpu-bf16": "works"},
    ... ):
    ...     model = mxamp.convert_model(sym, args, auxs, "bfloat16")  # doctest: +SKIP
    """
    where = _checked_name(name, op_type)
    check_flag(multiplies, f"{where}: multiplies", OperatorError)
    check_flag(replace, f"{where}: replace", OperatorError)
    facts = OperatorFacts(
        name=where,
        roles=tuple(
            _member(InputRole, role, f"{where}: inputs") for role in _listed(inputs, where, "inputs")
        ),
        rest=None if more_inputs is None else _member(InputRole, more_inputs, f"{where}: more_inputs"),
        outputs=_output_rules(outputs, where),
        kind=_member(ValueKind, kind, f"{where}: kind"),
        seeds=_numbers(exact_outputs, where),
        output_names=_names(output_names, where),
        multiplies=bool(multiplies),
    )
    _check_outputs_known(facts)
    carried = None if accumulation is None else _dtype(accumulation, f"{where}: accumulation")
    entries = {}
    for dtype, entry in _mapping(colors, where, "colors").items():
        low = _dtype(dtype, f"{where}: colors")
        if low not in LOW_PRECISION:
            raise OperatorError(f"{where}: colors are for 'float16' and 'bfloat16', not for {str(low)!r}.")
        entries[low] = _color(entry, where, low, carried)
    supported = {
        _target_name(target, where): OperatorSupport(_member(Support, value, f"{where}: support"))
        for target, value in _mapping(support, where, "support").items()
    }
    known = {key: None for key in REGISTERED_SUPPORT if key[0] == where}
    return Registration(
        where,
        facts,
        (FACTS.by_name, FACTS.entries(facts, replace=bool(replace))),
        (REGISTERED_COLORS, {(where, dtype): entries.get(dtype) for dtype in LOW_PRECISION}),
        (REGISTERED_SUPPORT, {**known, **{(where, target): entry for target, entry in supported.items()}}),
    )


def _checked_name(name: object, op_type: object) -> str:
    """Return the name under which the facts are kept."""
    if not isinstance(name, str) or not name:
        raise OperatorError(f"An operator is registered by its name, not by {name!r}.")
    if name != CUSTOM:
        if op_type is not None:
            raise OperatorError(
                f"op_type={op_type!r} tells Python operators apart, which are all called {CUSTOM!r}; "
                f"{name!r} is registered without it."
            )
        return name
    if not isinstance(op_type, str) or not op_type:
        raise OperatorError(
            f"Every operator written in Python is called {CUSTOM!r}. Say which one with op_type=, the name "
            f"given to mx.operator.register, not {op_type!r}."
        )
    return custom_name(op_type)


def _listed(given: object, where: str, label: str) -> tuple[Any, ...]:
    listed = None if isinstance(given, Mapping) else items(given)
    if listed is None:
        raise OperatorError(f"{where}: {label} must be a list, not {given!r:.80}.")
    return tuple(listed)


def _mapping(given: object, where: str, label: str) -> Mapping[Any, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise OperatorError(f"{where}: {label} must be a dict, not {given!r}.")
    return given


def _member(kind: type[Any], value: object, where: str) -> Any:
    """Return a member of an enumeration, given it or its name."""
    if isinstance(value, kind):
        return value
    known = [member.value for member in kind]
    if isinstance(value, str) and value.strip().lower() in known:
        return kind(value.strip().lower())
    raise OperatorError(
        f"{where}: {value!r} is not one of them.{nearest_names(value, known)} Use {', '.join(known)}."
    )


def _dtype(value: object, where: str) -> DType:
    try:
        return DType.parse(value)
    except TargetError as error:
        raise OperatorError(f"{where}: {error}") from None


def _output_rules(outputs: object, where: str) -> tuple[OutputRule, ...]:
    rules = tuple(_output_rule(value, where) for value in _listed(outputs, where, "outputs"))
    if not rules:
        raise OperatorError(f"{where}: outputs must say the dtype of at least one output.")
    return rules


def _output_rule(value: object, where: str) -> OutputRule:
    if isinstance(value, (SameAsData, FromAttribute)):
        return value
    if isinstance(value, str) and value == SameAsData.SAME.value:
        return SameAsData.SAME
    if isinstance(value, Mapping):
        if set(value) != {"attribute", "default"} or not isinstance(value["attribute"], str):
            raise OperatorError(
                f"{where}: outputs: a dtype that comes from an attribute is written "
                f"{{'attribute': 'dtype', 'default': 'float32'}}, not {dict(value)!r}."
            )
        default = _output_rule(value["default"], where)
        if not isinstance(default, (DType, SameAsData)):
            raise OperatorError(
                f"{where}: outputs: the default is a dtype or 'same', not {value['default']!r}."
            )
        return FromAttribute(value["attribute"], default)
    return _dtype(value, f"{where}: outputs")


def _check_outputs_known(facts: OperatorFacts) -> None:
    """Check that an output that has the dtype of the data has data to get it from."""
    roles = facts.roles if facts.rest is None else (*facts.roles, facts.rest)
    if any(role.shares_dtype for role in roles):
        return
    for rule in facts.outputs:
        if isinstance(rule.default if isinstance(rule, FromAttribute) else rule, SameAsData):
            raise OperatorError(
                f"{facts.name}: an output has the dtype of the data, but no input is 'data'. "
                "Give outputs a dtype, such as outputs=['float32']."
            )


def _numbers(given: object, where: str) -> tuple[int, ...]:
    numbers = _listed(given, where, "exact_outputs")
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise OperatorError(f"{where}: exact_outputs are numbers of outputs, from 0, not {given!r}.")
    return numbers


def _names(given: object, where: str) -> tuple[str, ...]:
    names = _listed(given, where, "output_names")
    if not all(isinstance(name, str) and name for name in names):
        raise OperatorError(f"{where}: output_names are strings, not {given!r}.")
    return names


def _color(entry: object, where: str, low: DType, accumulation: DType | None) -> OperatorPolicy:
    """Return the entry for a low dtype."""
    well_formed = isinstance(entry, (tuple, list)) and len(entry) == 2 and isinstance(entry[1], str)
    if not well_formed or not entry[1].strip():  # type: ignore[index]
        raise OperatorError(
            f"{where}: colors[{str(low)!r}] must be a color and the reason for it, such as "
            f"('gray', 'bounded, one rounding'), not {entry!r}."
        )
    try:
        color = Color.parse(entry[0])  # type: ignore[index]
    except MxampError as error:
        raise OperatorError(f"{where}: colors[{str(low)!r}]: {error}") from None
    return OperatorPolicy(color, entry[1], accumulation)  # type: ignore[index]


def _target_name(target: object, where: str) -> str:
    try:
        return Target.builtin(target).name  # type: ignore[arg-type]
    except TargetError as error:
        raise OperatorError(
            f"{where}: support: {error} A target of your own lists the operator itself, in its operators."
        ) from None
