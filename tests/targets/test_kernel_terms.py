"""What the time of a kernel depends on."""

from __future__ import annotations

import pytest

from mxamp.targets import Work
from mxamp.targets.kernel_terms import amounts_and_traits


def image_layer(
    data: tuple[int, ...], weight: tuple[int, ...], output: tuple[int, ...], **attributes: str
) -> Work:
    return Work(1, 1, rank=len(data), inputs=(data, weight), output=output, attributes=attributes)


@pytest.mark.parametrize(
    ("before", "after", "stride", "fits"),
    [
        ((14, 14), (7, 7), "(2, 2)", True),
        ((15, 15), (8, 8), "(2, 2)", False),
        ((14, 15), (7, 8), "(2, 2)", False),
        ((14, 15), (7, 15), "(2, 1)", True),
        ((15, 15), (15, 15), "(1, 1)", True),
        ((15, 15), (15, 15), "", True),
        ((9,), (5,), "(2,)", False),
    ],
)
def test_a_stride_may_leave_places_over(
    before: tuple[int, ...], after: tuple[int, ...], stride: str, fits: bool
) -> None:
    ones = (1,) * len(before)
    given = {"stride": stride} if stride else {}
    work = image_layer((1, 8, *before), (16, 8, *ones), (1, 16, *after), **given)
    assert amounts_and_traits("Convolution", work, low=False)[1]["stride_fits"] == fits


def test_only_a_convolution_skips_places() -> None:
    work = image_layer((3, 4, 5), (7, 5), (3, 4, 7))
    assert amounts_and_traits("FullyConnected", work, low=False)[1]["stride_fits"] == 1
    work = image_layer((1, 8, 4, 4), (8, 6, 3, 3), (1, 6, 9, 9), stride="(2, 2)")
    assert amounts_and_traits("Deconvolution", work, low=False)[1]["stride_fits"] == 1


@pytest.mark.parametrize(("low", "itemsize"), [(False, 4), (True, 2)])
def test_a_deconvolution_writes_a_value_for_each_tap(low: bool, itemsize: int) -> None:
    work = image_layer((2, 8, 5, 5), (8, 6, 3, 3), (2, 6, 11, 11), stride="(2, 2)")
    assert amounts_and_traits("Deconvolution", work, low=low)[0]["scattered"] == itemsize * 2 * 25 * 9 * 6
    work = image_layer((2, 8, 11, 11), (6, 8, 3, 3), (2, 6, 5, 5), stride="(2, 2)")
    assert amounts_and_traits("Convolution", work, low=low)[0]["scattered"] == 0
