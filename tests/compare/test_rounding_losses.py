from __future__ import annotations

import numpy as np
import pytest

from mxamp.compare.candidates import compare_candidates
from mxamp.compare.rounding_losses import LossCounter, RoundingLoss
from mxamp.compare.text import loss_lines
from mxamp.dtypes import EMULATED_ONLY, DType
from mxamp.errors import DataError
from mxamp.ops.reference import round_to

FORMATS = (DType.FLOAT16, DType.BFLOAT16, *EMULATED_ONLY)


def loss(node: str = "conv0", overflowed: int = 0, underflowed: int = 0) -> RoundingLoss:
    return RoundingLoss(node, "Convolution", f"{node}_r", "float16", 1000, overflowed, underflowed, 7e4, 1e-9)


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_what_is_counted_is_what_rounding_does(dtype: DType) -> None:
    random = np.random.default_rng(0)
    exponents = random.uniform(-45, 38, 4000)
    values = (random.choice([-1.0, 1.0], 4000) * 10.0**exponents).astype(np.float32)
    edges = [dtype.max_finite, dtype.smallest_subnormal, dtype.smallest_subnormal / 2, 0.0, np.inf, np.nan]
    values = np.concatenate([values, np.array(edges, np.float32)])
    rounded = round_to(values, dtype.label)
    counter = LossCounter(dtype)
    counter.add(values)
    assert counter.elements == values.size
    assert counter.overflowed == np.count_nonzero(np.isfinite(values) & ~np.isfinite(rounded))
    assert counter.underflowed == np.count_nonzero((values != 0) & (rounded == 0))


def test_the_worst_nodes_come_first() -> None:
    lines = loss_lines([loss("mild", underflowed=5), loss("fine"), loss("worst", overflowed=20)], 100)
    assert lines[0] == "Range: of 3 roundings 1 overflowed, and 1 made values zero:"
    rows = [line.split() for line in lines[3:]]
    assert [row[0] for row in rows] == ["worst", "mild"]
    assert "20 (2 %)" in lines[3]
    assert "5 (0.5 %)" in lines[4]


@pytest.mark.parametrize(
    ("count", "shown"), [(1000, "1,000 (100 %)"), (999, "999 (99 %)"), (126, "126 (12 %)"), (4, "4 (0.4 %)")]
)
def test_shares_are_percentages_as_people_write_them(count: int, shown: str) -> None:
    assert shown in loss_lines([loss("node", overflowed=count)], 100)[3]


def test_a_long_list_says_how_much_it_leaves_out() -> None:
    lines = loss_lines([loss(f"conv{number}", overflowed=1) for number in range(14)], 100)
    assert lines[-1].strip() == "and 4 more."


def test_nothing_lost_is_one_line() -> None:
    assert loss_lines([loss()], 100) == ["Range: none of 1 rounding overflowed, and none made a value zero."]


@pytest.mark.parametrize(
    ("candidates", "message"),
    [({}, "candidates must map names to models"), ({"FP32": None}, "cannot be called 'FP32'")],
    ids=["none", "reserved name"],
)
def test_candidates_have_names_of_their_own(conv_net, candidates: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        compare_candidates(conv_net(), candidates, np.zeros((1, 3, 8, 8), np.float32))
