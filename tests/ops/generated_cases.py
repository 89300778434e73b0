"""Calls of an operator, made up from what MXNet's registry says of its parameters."""

from __future__ import annotations

import ast
import re
from typing import Any, Iterator, Sequence

from tests.ops.operator_cases import Case
from tools.registered_operators import RegisteredOperator

__all__ = ["generated_cases"]

_VALUES = {
    "boolean": False,
    "int": 1,
    "int (non-negative)": 1,
    "long": 1,
    "long (non-negative)": 1,
    "float": 1.0,
    "double": 1.0,
    "float or None": 1.0,
    "int or None": 1,
    "string": "text",
    "Shape(tuple)": (1, 1),
    "Shape or None": (1, 1),
    "tuple of <float>": (1.0,),
    "tuple of <long>": (1,),
    "tuple of <int>": (1,),
    "tuple of <Shape(tuple)>": ((1, 1),),
}
"""The registry's word for a type -> a value that type inference is content with."""


def generated_cases(operator: RegisteredOperator, written: Sequence[Case] = ()) -> Iterator[Case]:
    """Yield calls that differ from a plain one, or from those written by hand, in one attribute each.

    Every enumeration takes each of its values and every truth value both. The plain call gives what is
    required and nothing else, and comes first; there is none where a required parameter is of a kind that no
    text can give, such as a pointer.
    """
    seen = {str(given) for given in written}
    for base in written or _plain(operator):
        if str(base) not in seen:
            seen.add(str(base))
            yield base
        for name, kind in operator.parameters.items():
            if name == operator.count_key or not kind.startswith(("{", "boolean")):
                continue
            for value in _choices(kind):
                if value is not None and name not in base.saved:
                    varied = base._replace(attrs={**base.attrs, name: value})
                    if str(varied) not in seen:
                        seen.add(str(varied))
                        yield varied


def _plain(operator: RegisteredOperator) -> Iterator[Case]:
    attrs = {}
    for name, kind in operator.required.items():
        values = _choices(kind)
        if not values:
            return
        attrs[name] = values[0]
    inputs = ("v0", "v1") if operator.variadic else operator.inputs
    counts = {"num_outputs", "num_arrays"} & attrs.keys()
    if operator.variadic and not operator.count_key and counts:
        attrs.update(dict.fromkeys(counts, len(inputs)))
    yield Case(operator.name, inputs, attrs)


def _choices(kind: str) -> tuple[Any, ...]:
    """Return values for a parameter: all of an enumeration, both truth values, one of anything else."""
    enumeration = re.match(r"\{.*?\}", kind)
    if enumeration:
        return tuple(ast.literal_eval(f"[{enumeration.group()[1:-1]}]"))
    word = kind.split(",")[0].strip()
    if word == "boolean":
        return (False, True)
    return (_VALUES[word],) if word in _VALUES else ()
