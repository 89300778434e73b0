"""Operators whose records say nothing of dtypes, because code does: the converter's own, or the user's."""

from __future__ import annotations

from mxamp.ops.facts import OperatorFacts
from mxamp.ops.facts_table import CUSTOM
from mxamp.ops.roles import InputRole, ValueKind

_CAST = "a cast: what it hands on is decided by rules of its own (mxamp.ops.casts)"
_CONTROL_FLOW = "control flow: its bodies are converted inside"
_USER_CODE = "runs code of the user's, of which nothing is known"

RECORDS = (
    OperatorFacts("amp_cast", (InputRole.FREE,), kind=ValueKind.MOVE, apart=_CAST),
    OperatorFacts("amp_multicast", (), rest=InputRole.FREE, kind=ValueKind.MOVE, apart=_CAST),
    *(
        OperatorFacts(name, (), rest=InputRole.KEPT, apart=_CONTROL_FLOW)
        for name in ("_foreach", "_while_loop", "_cond")
    ),
    OperatorFacts(CUSTOM, (), rest=InputRole.KEPT, apart=_USER_CODE, aliases=("_npi_Custom",)),
    *(
        OperatorFacts(name, (), rest=InputRole.KEPT, apart=_USER_CODE)
        for name in ("_CustomFunction", "_Native", "_NDArray", "_CachedOp", "_CachedOpThreadSafe")
    ),
)
