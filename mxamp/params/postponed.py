"""Casts of parameters that wait until their result is written or asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Iterator

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.ops.cast_batch import CastBatch, can_batch_casts
from mxamp.params.cast import BLOCK, cast_array
from mxamp.params.parameter import MOST_ZEROED, PART, ArrayParameter, DerivedParameter, Parameter

_MOST_ZEROS = MOST_ZEROED / (1.0 + MOST_ZEROED)
"""With a smaller share of zeros in a result, less than MOST_ZEROED of the non-zero values became zero."""


def may_have_lost_range(infinite: int, zero: int, size: int, dtype: DType, *, scaled: bool) -> bool:
    """Tell from what came out of a cast whether :meth:`Parameter.range_loss` is worth asking.

    Without infinities and with few zeros in the result nothing was lost; with them the values may have held
    them all along.

    Parameters
    ----------
    infinite, zero
        How many results are infinite or NaN, and zero.
    size
        How many there are.
    dtype
        What they were cast to.
    scaled
        Whether they were multiplied first.
    """
    # float32 has bfloat16's exponents: what becomes zero was subnormal already. And folding may scale a
    # channel by zero.
    watched = not scaled and dtype is DType.FLOAT16
    return infinite > 0 or (watched and zero > _MOST_ZEROS * size)


@dataclass
class CastLoss:
    """What came out of a cast, part by part, that tells of values out of range.

    Attributes
    ----------
    infinite, zero
        How many results are infinite or NaN, and zero.
    """

    infinite: int = 0
    zero: int = 0


class PostponedCast(DerivedParameter):
    """A parameter on disk in another dtype: read, multiplied where it is scaled, and rounded on demand.

    Parameters
    ----------
    parameter
        The parameter; it is on disk.
    dtype
        float16 or bfloat16, and not its own.
    """

    def __init__(self, parameter: Parameter, dtype: DType) -> None:
        super().__init__(parameter)
        self._dtype = dtype
        self._factors = parameter.row_factors
        self._size = math.prod(parameter.shape)

    @property
    def dtype(self) -> DType:
        """The dtype it is cast to."""
        return self._dtype

    def values(self) -> NDArray[Any]:
        """See :class:`Parameter`; computed anew each time."""
        out: NDArray[Any] = np.empty(self.shape, self._dtype.numpy)
        self._fill(out.reshape(-1), 0, CastLoss())
        out.flags.writeable = False
        return out

    def part(self, start: int, stop: int, buffer: NDArray[np.uint8] | None = None) -> NDArray[Any]:
        """See :class:`Parameter`."""
        size = (stop - start) * self._dtype.itemsize
        memory = np.empty(size, np.uint8) if buffer is None else buffer[:size]
        out = memory.view(self._dtype.numpy)
        self._fill(out, start, CastLoss())
        return out

    def source_part(self, start: int, stop: int, buffer: NDArray[np.uint8] | None = None) -> NDArray[Any]:
        """Return what :meth:`cast_part` takes."""
        return self._parameter.source_part(start, stop, buffer)

    @property
    def source_itemsize(self) -> int:
        """The bytes of a value of :meth:`source_part`."""
        return self._parameter.dtype.itemsize

    def cast_part(self, source: NDArray[Any], start: int, out: NDArray[Any], loss: CastLoss) -> None:
        """Cast a part.

        Parameters
        ----------
        source
            What :meth:`source_part` returned.
        start
            Its first position.
        out
            As many values of :attr:`dtype`, to be filled.
        loss
            What the results tell is added to it.
        """
        native = can_batch_casts() and source.dtype == np.float32 and source.size > 0
        pieces = list(self._pieces(start, start + source.size, source.size if native else BLOCK))
        if native:
            batch = CastBatch([(source[piece], out[piece], factors) for piece, factors in pieces])
            batch.start()
            for count in batch.finish():
                loss.infinite += count.infinite
                loss.zero += count.zero
            return
        infinity = np.array(np.inf, self._dtype.numpy).view(np.uint16)
        with np.errstate(all="ignore"):
            for piece, factors in pieces:
                values = source[piece]
                if factors is not None:
                    values = (values.reshape(factors.size, -1) * factors[:, np.newaxis]).reshape(-1)
                cast_array(values, self._dtype, out=out[piece])
                magnitudes = out[piece].view(np.uint16) & np.uint16(0x7FFF)
                loss.infinite += int(np.count_nonzero(magnitudes >= infinity))
                loss.zero += magnitudes.size - int(np.count_nonzero(magnitudes))

    def shows_loss(self, loss: CastLoss) -> bool:
        """Tell whether values may be out of the range of the dtype, when all parts have been cast."""
        scaled = self._factors is not None
        return may_have_lost_range(loss.infinite, loss.zero, self._size, self._dtype, scaled=scaled)

    def loses_range(self) -> bool:
        """Tell the same by casting it all, without keeping the result."""
        loss = CastLoss()
        out: NDArray[Any] = np.empty(min(PART, self._size), self._dtype.numpy)
        for start in range(0, self._size, PART):
            self._fill(out[: self._size - start], start, loss)
        return self.shows_loss(loss)

    def _fill(self, out: NDArray[Any], first: int, loss: CastLoss) -> None:
        """Cast the values from position ``first`` on into ``out``."""
        buffer = np.empty(min(PART, out.size) * self.source_itemsize, np.uint8)
        for start in range(0, out.size, PART):
            stop = min(start + PART, out.size)
            source = self.source_part(first + start, first + stop, buffer)
            self.cast_part(source, first + start, out[start:stop], loss)

    def _pieces(
        self, start: int, stop: int, limit: int
    ) -> Iterator[tuple[slice, NDArray[np.float32] | None]]:
        """Divide the values from ``start`` to ``stop`` into pieces of whole rows, or within a row.

        Yields
        ------
        tuple
            The piece, counted from ``start``, and the factors of its rows.
        """
        if self._factors is None:
            for begin in range(start, stop, limit):
                yield slice(begin - start, min(begin + limit, stop) - start), None
            return
        columns = self._size // self._factors.size
        begin = start
        while begin < stop:
            row, column = divmod(begin, columns)
            rows = 1
            end = min(begin + columns - column, begin + limit, stop)
            if not column and columns <= min(limit, stop - begin):
                rows = min(limit, stop - begin) // columns
                end = begin + rows * columns
            yield slice(begin - start, end - start), self._factors[row : row + rows]
            begin = end

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickle may be read where the file is not.
        return ArrayParameter, (self.values(),)

    def __repr__(self) -> str:
        return f"PostponedCast({self._dtype}, shape={self.shape}, of {self._parameter!r})"
