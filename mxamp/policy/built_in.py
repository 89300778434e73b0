"""The built-in policy: one table for all low dtypes, which says what differs between them."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, Mapping

from mxamp.dtypes import DType

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = Path(__file__).parent / "tables" / "operators.toml"
"""The table; its head explains the format."""

_BASED_ON = {"tfloat32": "bfloat16", "float8_e4m3fn": "float16", "float8_e5m2": "float16"}
"""What is only emulated -> the dtype whose hazards it shares: tfloat32 has bfloat16's range, float8 less than
any."""


def based_on(dtype: DType) -> DType:
    """Return the low dtype of MXNet whose hazards a dtype shares: itself, if MXNet has it."""
    return DType.parse(_BASED_ON.get(dtype.label, dtype.label))


def built_in_document(dtype: DType) -> dict[str, Any]:
    """Return the built-in policy for a dtype, as a policy's TOML file would say it.

    Parameters
    ----------
    dtype
        A low dtype, or one that is only emulated.
    """
    base = based_on(dtype).label
    table = _table()
    facts = {**table["facts"][base], "dtype": base}
    document: dict[str, Any] = {"target_dtype": dtype.label}
    for group in table["group"]:
        stated = _for_dtype(group, base, facts)
        operators, color = stated.pop("operators"), stated.pop("color")
        document.setdefault(color, {}).update(dict.fromkeys(operators, stated))
    document["condition"] = [_for_dtype(condition, base, facts) for condition in table["condition"]]
    return document


@lru_cache(maxsize=1)
def _table() -> Mapping[str, Any]:
    return tomllib.loads(TABLE.read_text("utf-8"))


def _for_dtype(entry: Mapping[str, Any], base: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of the table with what it says under the dtype's name, which goes first."""
    stated = {key: value for key, value in entry.items() if not isinstance(value, dict)}
    stated.update(entry.get(base, {}))
    stated["reason"] = stated["reason"].format_map(facts)
    return stated
