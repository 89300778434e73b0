"""In which order oneDNN 2.4 keeps images: channels last, in blocks of channels, or plain.

A convolution picks an implementation, and that reads and writes one order only. Most are batches of small
matrix products (`brgconv`, `brdgmm`), which want the channels of a place side by side; others are generated
for blocks of 16 channels or 8 (`jit`); what fits neither is one plain matrix product (`gemm`). Between two
that differ somebody brings the whole image into another order first.

Matrix products cut filters into pieces of 64, 48, 32 or 16, pick the width that promises most, and are not
taken where a piece is left over. Without AVX-512 there are none of them, and no blocks but of 8 channels.
What is said here was compared with what oneDNN says that it runs (`DNNL_VERBOSE=1`), on CPUs of both kinds.
"""

from __future__ import annotations

import math
from typing import Mapping, Sequence

from mxamp.measuring.machine import has_avx512
from mxamp.ops.attributes import integers

PLAIN, BLOCKS, CHANNELS_LAST = 0, 1, 2
"""The orders."""

WIDEST_BLOCK = 16
"""Channels in a block where a vector register holds 16 values of float32, as with AVX-512."""

NARROW_BLOCK = 8
"""Where it holds eight, as with AVX2; and the half of a wide one."""

BLOCKS_OF = (NARROW_BLOCK, WIDEST_BLOCK)
"""The sizes that the widest block of a machine may have."""

_BLOCK, _HALF_BLOCK = WIDEST_BLOCK, NARROW_BLOCK

_WIDE, _MIDDLE, _NARROW = 64, 48, 32
"""Pieces of filters."""

_NEARLY_WHOLE = 0.95
"""The share of filters that pieces must hold to be considered, of 1x1 convolutions."""

_WIDE_PAYS = {128: 0, 256: 512, 1 << 40: 1024}
"""Places of an image up to -> channels from which on pieces of 64 filters are taken in FP32."""

_MOST_BYTES = 1536
"""What one value of each filter takes at most where pieces of 48 are considered, of larger kernels, ..."""

_LARGE_IMAGE = 81
"""... and how many places are read more than for each that is skipped."""


def block_here() -> int:
    """Return the channels in the widest block of images that MXNet's oneDNN has on this machine."""
    return NARROW_BLOCK if has_avx512() is False else WIDEST_BLOCK


def layer_layout(
    op: str,
    attributes: Mapping[str, str],
    data: Sequence[int],
    weight: Sequence[int],
    output: Sequence[int],
    *,
    low: bool,
    block: int = WIDEST_BLOCK,
) -> int:
    """Return the order in which a layer reads and writes images.

    Parameters
    ----------
    op
        ``Convolution`` or ``Deconvolution``.
    attributes
        The node's.
    data, weight, output
        Shapes of what it reads, its weight and what it writes: (batch, channels, height, width), (filters,
        channels of a group, height, width), of a Deconvolution (channels, filters of a group, ...).
    low
        Whether it computes in bfloat16.
    block
        The channels in the widest block on the machine that it runs on.
    """
    groups = max(1, (integers(attributes.get("num_group", "")) or (1,))[0])
    channels, filters = data[1] // groups, output[1] // groups
    if block < WIDEST_BLOCK:
        is_depthwise = channels == filters == 1 < groups
        if op == "Convolution" and not pads_by_itself(attributes, is_depthwise=is_depthwise):
            return PLAIN
        return _of_one_block(op, channels, filters, groups, block)
    if groups > 1 and channels == filters == 1:
        if output[1] % _BLOCK:
            return _by_blocks(output[1], output[1], low=low)
        dilated = max(integers(attributes.get("dilate", "")) or (1,)) > 1
        return BLOCKS if dilated else CHANNELS_LAST
    if op == "Deconvolution":
        return _by_blocks(data[1], output[1], low=low)
    if groups > 1 and (channels <= _BLOCK or filters % _BLOCK):
        return BLOCKS
    if groups == 1 and (filters % _BLOCK or (low and channels % 2)):
        return _by_blocks(data[1], output[1], low=low)
    skipped = math.prod(integers(attributes.get("stride", "")) or (1,))
    is_pointwise = math.prod(weight[2:]) == 1 and not any(integers(attributes.get("pad", "")) or ())
    if is_pointwise:
        places = math.prod(output[2:])
        is_wide = places >= _WIDE * skipped and (low or _are_worth_it_in_float32(channels, places))
        fits = _fit_pointwise(filters, is_wide=is_wide)
    else:
        is_large = math.prod(data[2:]) > _LARGE_IMAGE * skipped
        fits = _fit(filters, is_large=is_large and filters * (2 if low else 4) <= _MOST_BYTES)
    return CHANNELS_LAST if fits else _by_blocks(data[1], output[1], low=low)


def stride_fits(strides: tuple[int, ...], places: Sequence[int], written: Sequence[int]) -> bool:
    """Return whether a stride leaves no place over.

    oneDNN asks for that where it brings together what a 1x1 layer does not skip; without, the layer takes two
    to four times as long.

    Parameters
    ----------
    strides
        One for each axis, or one for all.
    places, written
        The sizes of these axes, of what is read and of what is written.
    """
    each = strides if len(strides) == len(places) else strides[:1] * len(places)
    return all(after * step == before for after, step, before in zip(written, each, places))


def _of_one_block(op: str, channels: int, filters: int, groups: int, block: int) -> int:
    """Return the order where there are blocks of one size, and no batches of matrix products.

    A Convolution reads an image of fewer channels than fill a block as it is.
    """
    if groups > 1 and channels == filters == 1:
        return PLAIN if groups % block else BLOCKS
    reads = channels % block == 0 or (op == "Convolution" and groups == 1 and channels < block)
    return BLOCKS if reads and filters % block == 0 else PLAIN


_WIDEST_PADDING, _WIDEST_OF_DEPTHWISE = 3, 4
"""Places that oneDNN's kernels of one block add to either end of a row at most, and those for depthwise
layers. To columns they add any number that a window does not fit into."""

_LONG_ROW = 7
"""Where a row of a window is longer and places are skipped, nothing is padded."""


def pads_by_itself(attributes: Mapping[str, str], *, is_depthwise: bool) -> bool:
    """Return whether a Convolution of blocks of eight channels can add the padding that it is told.

    Parameters
    ----------
    attributes
        The node's.
    is_depthwise
        Whether each channel is a group of its own.

    Notes
    -----
    Where it cannot, it is a plain matrix product. Seen with ``DNNL_VERBOSE=1``.
    """
    window = integers(attributes.get("kernel", "")) or ()
    each = [integers(attributes.get(name, "")) or (1,) * len(window) for name in ("dilate", "stride")]
    padding = integers(attributes.get("pad", "")) or (0,) * len(window)
    if not 0 < len(window) == len(padding) == len(each[0]) == len(each[1]) or not any(padding):
        return True
    if padding[-1] > (_WIDEST_OF_DEPTHWISE if is_depthwise else _WIDEST_PADDING):
        return False
    if not is_depthwise and window[-1] > _LONG_ROW and max(each[1]) > 1:
        return False
    return all(width <= (size - 1) * apart for size, width, apart in zip(window, padding, each[0]))


def _are_worth_it_in_float32(channels: int, places: int) -> bool:
    """Return whether pieces of 64 filters promise more than nearly whole ones of 48, in FP32."""
    return any(places <= most and channels >= least for most, least in _WIDE_PAYS.items())


def _fit_pointwise(filters: int, *, is_wide: bool) -> bool:
    """Return whether filters of a 1x1 convolution can be cut into the pieces that promise most."""
    if filters % _MIDDLE and filters / (-(-filters // _MIDDLE) * _MIDDLE) >= _NEARLY_WHOLE:
        return is_wide and filters % _WIDE == 0
    return filters % _MIDDLE == 0 or filters % _NARROW == 0 or filters == _BLOCK


def _fit(filters: int, *, is_large: bool) -> bool:
    return filters % _NARROW == 0 or filters == _BLOCK or (is_large and filters % _MIDDLE == 0)


def _by_blocks(channels: int, filters: int, *, low: bool) -> int:
    """Return the order where no matrix products are taken: there are no blocks of 8 in bfloat16."""
    block = _BLOCK if low else _HALF_BLOCK
    reads = channels % block == 0 or (channels < _BLOCK and not (low and channels % 2))
    return BLOCKS if reads and filters % block == 0 else PLAIN
