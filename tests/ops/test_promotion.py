"""Promotion: the dtype in which NumPy mode computes where inputs differ in dtype."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mxamp.dtypes import EMULATED_ONLY, DType
from mxamp.errors import OperatorError
from mxamp.graph.infer import check_dtypes, infer_dtypes
from mxamp.ops import FACTS
from mxamp.ops.promotion import promoted
from tests.building import BF16, F16, F32, Net

MXNET_DTYPES = tuple(DType)
PROMOTING = tuple(record.name for record in FACTS.records() if record.promotes)


@pytest.mark.parametrize("op", PROMOTING)
def test_every_pair_of_dtypes_is_promoted_as_mxnet_does(op: str) -> None:
    pytest.importorskip("mxnet", reason="the rule is compared with MXNet's own type inference")
    from tests.ops.operator_cases import build, case, infer_with_mxnet

    graph = build(case(op, "lhs rhs"))
    for left, right in itertools.product(MXNET_DTYPES, repeat=2):
        variables = {"n_lhs": left, "n_rhs": right}
        found = infer_with_mxnet(graph, variables)
        assert found is not None
        assert infer_dtypes(graph, variables)[-1] == found.outputs, (left, right)


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        ([F32], F32),
        ([F16, F32], F32),
        ([BF16, F16], F16),
        ([F16, DType.INT64], F16),
        ([DType.INT8, DType.UINT8], DType.INT32),
        # Unlike NumPy: bfloat16 counts for less than an integer.
        ([BF16, DType.INT32], DType.INT32),
        ([BF16, DType.BOOL], DType.INT8),
        ([DType.BOOL, DType.UINT8, F16], F16),
    ],
    ids=lambda value: str(value) if isinstance(value, DType) else "+".join(map(str, value)),
)
def test_promotion(dtypes: list[DType], expected: DType) -> None:
    assert promoted(dtypes) is expected


def test_promotion_of_what_numpy_knows_is_numpys_up_to_the_width_of_floats() -> None:
    """NumPy widens a float beside an integer that it cannot hold; MXNet keeps the float's dtype."""
    floats, integers = (F16, F32, DType.FLOAT64), (DType.BOOL, DType.INT8, DType.UINT8, DType.INT32)
    for left, right in itertools.product(floats, repeat=2):
        assert promoted([left, right]).numpy == np.promote_types(left.numpy, right.numpy)
    for left, right in itertools.product(floats, integers):
        assert promoted([left, right]) is promoted([right, left]) is left


def test_formats_of_emulation_are_promoted_like_floats() -> None:
    for low in EMULATED_ONLY:
        assert promoted([low, low]) is low
        assert promoted([low, DType.INT64]) is low
        assert promoted([DType.FLOAT32, low]) is DType.FLOAT32


def test_one_unknown_dtype_makes_the_result_unknown() -> None:
    add = FACTS.get("_npi_add")
    assert add is not None
    assert add.data_dtype({}, [F16, None]) is None
    assert add.data_dtype({}, [F16, F32]) is F32
    concat = FACTS.get("Concat")
    assert concat is not None
    assert concat.data_dtype({}, [None, F16, F32]) is F16


def mixed(op: str, left: DType, right: DType) -> None:
    net = Net()
    graph = net.graph(net.op(op, net.var("left"), net.var("right")))
    check_dtypes(graph, infer_dtypes(graph, {"left": left, "right": right}))


def test_mixed_inputs_are_no_clash_where_mxnet_promotes_them() -> None:
    mixed("_npi_add", F16, F32)
    mixed("_npi_add", F32, DType.INT32)
    with pytest.raises(OperatorError, match="must have one dtype"):
        mixed("elemwise_add", F16, F32)


def test_bfloat16_beside_another_dtype_is_a_clash_always() -> None:
    """MXNet 1.9.1 raises, or turns the features into integers."""
    for other in (F32, F16, DType.INT32):
        with pytest.raises(OperatorError, match="must have one dtype"):
            mixed("_npi_multiply", BF16, other)
