"""Inputs that a record calls unread (LIKE, LIKE_SAME) do not change what the operator returns."""

from __future__ import annotations

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="operators are run")

from mxamp.graph import write_symbol
from mxamp.ops import FACTS, InputRole
from tests.contract.calls import all_calls
from tests.ops.record_checks import Call
from tools.document_operators import not_exercised
from tools.registered_operators import listed_operators

UNREAD = frozenset({InputRole.LIKE, InputRole.LIKE_SAME})
SHAPES = {
    "SVMOutput": [(2, 2), (2,)],
    "_contrib_BilinearResize2D": [(1, 1, 2, 2), (1, 1, 4, 4)],
}
"""Operator -> shapes of inputs with which it runs; two rows and two columns where nothing is said."""

NOT_RUN = {"_contrib_getnnz": "takes sparse arrays alone"}


def operators() -> list[str]:
    """Return the operators with an input that is not read."""
    found = []
    for name in listed_operators():
        facts = FACTS.get(name)
        if facts is not None and UNREAD.intersection(facts.roles):
            found.append(name)
    return [name for name in found if name not in not_exercised() and name not in NOT_RUN]


def forward(call: Call, added: float) -> list[object]:
    """Run a call with something added to the values of its unread inputs."""
    mx.random.seed(1)
    arrays = {}
    shapes = SHAPES.get(call.given.op, [(2, 2)] * len(call.names))
    for name, role, shape in zip(call.names, call.roles, shapes):
        values = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
        arrays[name] = mx.nd.array(values + added * (role in UNREAD))
    sym = mx.sym.load_json(write_symbol(call.graph))
    return [output.asnumpy().tolist() for output in sym.bind(mx.cpu(), arrays).forward()]


@pytest.mark.parametrize("op", operators())
def test_values_of_unread_inputs_are_of_no_consequence(op: str) -> None:
    call = next(call for call in all_calls(op) if UNREAD.intersection(call.roles))
    with mx.util.np_shape(op.startswith("_np")):
        assert forward(call, 0.0) == forward(call, 7.0)
