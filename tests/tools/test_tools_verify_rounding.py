from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.dtypes import DType
from mxamp.ops.formats import FORMATS
from mxamp.ops.kernels import Kernels, kernels
from tools.verify_rounding import main, verify

# Of 2048: subnormal in both, subnormal in float16, around 1, float16's overflow, infinity and NaN, negative.
BLOCKS = (0, 451, 508, 571, 1020, 1532)


@pytest.fixture
def native() -> Kernels:
    found = kernels()
    if found is None:
        pytest.skip("the kernels are not built")
    return found


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_successive_values_are_rounded_as_the_reference_rounds_them(native: Kernels, format: DType) -> None:
    level = native.instructions()
    blocks = BLOCKS if format is DType.BFLOAT16 else BLOCKS[2:4]
    assert verify(native, format, blocks=blocks) == (0, [])
    assert native.instructions() == level


def test_differences_are_counted_and_described(native: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    cast = native.cast

    def wrong(*arguments: Any, **keywords: Any) -> Any:
        result = cast(*arguments, **keywords)
        result.view(np.uint16)[7] += 1
        return result

    monkeypatch.setattr(native, "cast", wrong)
    seen = []
    differences, shown = verify(
        native, DType.BFLOAT16, blocks=[508], progress=lambda done, found: seen.append((done, found))
    )
    levels = native.instructions() + 1
    # In each instruction set: both casts, and what is widened from the first.
    assert differences == 3 * levels
    assert shown[0] == "cast, inf, instructions 0: 0x3f800007 becomes 0x3f81, not 0x3f80"
    assert len(shown) <= 5
    assert seen == [(1 << 21, differences)]


def test_without_kernels_the_command_says_how_to_build_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MXAMP_NATIVE", "0")
    assert main([]) == 2
    assert "python -m mxamp.ops.build kernels" in capsys.readouterr().err
