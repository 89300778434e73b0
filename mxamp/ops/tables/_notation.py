"""The short notation in which the tables are written."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from mxamp.dtypes import DType
from mxamp.ops.facts import OperatorFacts
from mxamp.ops.roles import FromAttribute, FromData, InputRole, OutputRule, SameAsData, ValueKind

SAME = SameAsData.SAME

_ROLES = {
    "data": InputRole.DATA,
    "fp32": InputRole.PARAM_FP32,
    "index": InputRole.INDEX,
    "coord": InputRole.COORDINATE,
    "like": InputRole.LIKE,
    "like_same": InputRole.LIKE_SAME,
    "free": InputRole.FREE,
    "kept": InputRole.KEPT,
}


def roles(inputs: str) -> tuple[InputRole, ...]:
    """Return the roles that ``inputs`` names, one word a position."""
    return tuple(_ROLES[word] for word in inputs.split())


def record(
    names: str,
    inputs: str,
    kind: ValueKind,
    *,
    out: OutputRule | tuple[OutputRule, ...] = SAME,
    seeds: tuple[int, ...] = (),
    named: str = "",
    out_by: Callable[[Mapping[str, str]], tuple[OutputRule, ...]] | None = None,
    inputs_by: Callable[[Mapping[str, str]], tuple[InputRole, ...]] | None = None,
    seeds_by: Callable[[Mapping[str, str]], tuple[int, ...]] | None = None,
    **facts: Any,
) -> OperatorFacts:
    """Write one record.

    Parameters
    ----------
    names
        The canonical name, then aliases, separated by spaces.
    inputs
        One role a position, separated by spaces; a trailing ``*`` on the last one repeats it.
    kind
        How values come about.
    named
        The names of the outputs, separated by spaces, where they are not MXNet's default.
    out, seeds, facts
        See :class:`mxamp.ops.facts.OperatorFacts`.
    out_by, inputs_by, seeds_by
        Its ``outputs_by_attributes``, ``roles_by_attributes`` and ``seeds_by_attributes``.
    """
    name, *aliases = names.split()
    words = inputs.split()
    rest: InputRole | None = None
    if words and words[-1].endswith("*"):
        rest = _ROLES[words.pop()[:-1]]
    return OperatorFacts(
        name=name,
        roles=roles(" ".join(words)),
        rest=rest,
        outputs=out if isinstance(out, tuple) else (out,),
        kind=kind,
        seeds=seeds,
        output_names=tuple(named.split()),
        aliases=tuple(aliases),
        outputs_by_attributes=out_by,
        roles_by_attributes=inputs_by,
        seeds_by_attributes=seeds_by,
        **facts,
    )


def attribute(key: str, default: DType | SameAsData | FromData) -> FromAttribute:
    """Return the rule "the dtype that attribute ``key`` names, or ``default``"."""
    return FromAttribute(key, default)
