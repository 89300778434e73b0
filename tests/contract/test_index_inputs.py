"""INDEX inputs hold integers beyond FP16's 2048 while the data beside them are FP16.

Each operator is run with FP32 indices beside FP16 data, and must give what it gives in FP32; with the indices
rounded to FP16 it must not, or the test would show nothing.
"""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

mx = pytest.importorskip("mxnet", reason="operators are run")

from mxamp.dtypes import DType
from mxamp.graph import write_symbol
from mxamp.ops import FACTS, InputRole
from tests.contract.calls import all_calls
from tests.ops.operator_cases import Case, build, case, input_names
from tests.ops.record_checks import possible_call
from tools.registered_operators import listed_operators

ROWS = 4096
INDICES = np.array([2049.0, 4093.0])
ROUNDED = INDICES.astype(np.float16).astype(np.float64)
VALUES = (np.arange(ROWS) * 7.0) % 1999  # integers that FP16 holds, neighbours far apart

VECTOR = VALUES
COLUMN = VALUES.reshape(ROWS, 1)
SEQUENCE = VALUES.reshape(ROWS, 1, 1)
TWO = np.array([3.0, 5.0])
LENGTHS = {"use_sequence_length": True}

CALLS: list[tuple[Case, Mapping[str, NDArray[Any] | None]]] = [
    (case("Embedding", "data weight", input_dim=ROWS, output_dim=1), {"data": None, "weight": COLUMN}),
    (
        case("_contrib_SparseEmbedding", "data weight", input_dim=ROWS, output_dim=1),
        {"data": None, "weight": COLUMN},
    ),
    (case("take", "a indices"), {"a": VECTOR, "indices": None}),
    (case("pick", "data index", axis=1), {"data": np.stack([VECTOR, VECTOR]), "index": None}),
    (case("gather_nd", "data indices"), {"data": VECTOR, "indices": None}),
    (case("scatter_nd", "data indices", shape=(ROWS,)), {"data": TWO, "indices": None}),
    (case("one_hot", "indices", depth=ROWS), {"indices": None}),
    (
        case("_contrib_index_copy", "old_tensor index_vector new_tensor"),
        {"old_tensor": COLUMN, "index_vector": None, "new_tensor": TWO.reshape(2, 1)},
    ),
    *(
        (
            case(op, "data sequence_length", use_sequence_length=True),
            {"data": np.concatenate([SEQUENCE, SEQUENCE], axis=1), "sequence_length": None},
        )
        for op in ("SequenceMask", "SequenceLast", "SequenceReverse")
    ),
]
"""The call, and its arrays; None is an INDEX input."""

LISTS = ("gather_nd", "scatter_nd")
"""Operators whose indices have one more dimension, over the axes."""

NOT_RUN = {
    "CTCLoss": "its data are FP32 always",
    "RNN": "takes lengths of sequences on GPUs alone",
    "_contrib_boolean_mask": "reads whether a value is zero, which FP16 does not change",
    "_contrib_edge_id": "takes sparse arrays alone",
    "_contrib_quantized_embedding": "its data are integers",
    "_contrib_quantized_rnn": "its data are integers",
    "_npi_bincount": "type inference takes FP32, but the operator does not run with it",
    "_npi_delete": "the shape of what it returns is not known before it runs",
    "_scatter_set_nd": "writes into its first input, which no graph can ask for",
    "_sparse_retain": "takes sparse arrays alone",
    "softmax": "type inference takes FP32 lengths, but the operator does not run with them",
}


def index_operators() -> set[str]:
    return {
        name
        for name in listed_operators()
        for facts in [FACTS.get(name)]
        if facts is not None and InputRole.INDEX in facts.roles
    }


def forward(given: Case, arrays: Mapping[str, NDArray[Any] | None], indices: NDArray[Any], data: str) -> Any:
    graph = build(given)
    if given.op in LISTS:
        indices = indices.reshape(1, -1)
    bound = {
        f"n_{name}": mx.nd.array(indices, dtype="float32")
        if array is None
        else mx.nd.array(array, dtype=data)
        for name, array in arrays.items()
    }
    assert set(bound) == set(input_names(graph))
    output = mx.sym.load_json(write_symbol(graph))[0].bind(mx.cpu(), bound).forward()[0]
    return output.asnumpy().astype(np.float64)


@pytest.mark.parametrize(("given", "arrays"), CALLS, ids=[given.op for given, _ in CALLS])
def test_indices_stay_exact_beside_float16_data(
    given: Case, arrays: Mapping[str, NDArray[Any] | None]
) -> None:
    facts = FACTS.get(given.op)
    assert facts is not None
    assert [role is InputRole.INDEX for role in facts.roles] == [array is None for array in arrays.values()]
    expected = forward(given, arrays, INDICES, "float32")
    np.testing.assert_array_equal(forward(given, arrays, INDICES, "float16"), expected)
    assert not np.array_equal(forward(given, arrays, ROUNDED, "float16"), expected)


def test_every_operator_that_takes_float_indices_was_run_or_has_a_reason() -> None:
    run = {given.op for given, _ in CALLS}
    takes_floats = {
        op
        for op in index_operators() - run
        for calls in [[possible_call(call.given) for call in all_calls(op)]]
        if any(call is not None and DType.FLOAT32 in call.index_dtypes for call in calls)
    }
    assert takes_floats == set(NOT_RUN)
