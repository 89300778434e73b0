"""Parameters whose values stay in their file until something asks for them."""

from __future__ import annotations

import itertools
import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.errors import ParamsError
from mxamp.files import existing_file
from mxamp.params.format import StorageType, TensorHeader
from mxamp.params.parameter import MOST_ZEROED, ArrayParameter, Parameter, RangeLoss
from mxamp.params.positioned import PositionedFile
from mxamp.params.ranges import magnitude_bound, magnitude_range, overflow_limit, underflow_counts
from mxamp.params.reader import open_params
from mxamp.params.sparse import SparseParameter, SparseTensor

if TYPE_CHECKING:
    from os import PathLike


def open_parameters(
    path: str | PathLike[str], *, aux_names: Collection[str] = ()
) -> tuple[dict[str, Parameter], dict[str, Parameter]]:
    """Read the index of a ``.params`` file, and leave the values in it.

    Parameters
    ----------
    path
        The file.
    aux_names
        The names of auxiliary states, for tensors that are stored without an ``arg:`` or ``aux:`` prefix.

    Returns
    -------
    tuple of dict
        Arguments and auxiliary states by bare name, in the order of the file. They keep the file open. Sparse
        tensors, which are handed on as they are, are in memory.

    Raises
    ------
    ModelFileNotFoundError
        When there is no such file.
    ParamsError
        When the file is damaged, is something else, or its tensors have no names.
    """
    path = existing_file(path, "parameter file")
    positioned = PositionedFile(path)
    with open_params(path) as file:
        if not positioned.is_at(path):
            raise ParamsError(f"{path} was changed while it was read. Try again when nothing writes to it.")

        def parameter(header: TensorHeader) -> Parameter:
            if header.storage is StorageType.DENSE:
                return FileParameter(positioned, header)
            # A copy, for the file will be closed.
            return SparseParameter(SparseTensor.from_record(header.name, np.array(file.record(header.name))))

        args, auxs = file.index.split(aux_names)
        return (
            {name: parameter(header) for name, header in args.items()},
            {name: parameter(header) for name, header in auxs.items()},
        )


class _OnDisk(Parameter):
    """What parameters in files have in common: they are gone through part by part."""

    def __init__(self) -> None:
        self._losses: dict[DType, RangeLoss | None] = {}

    @property
    def is_on_disk(self) -> bool:
        """Always true."""
        return True

    def allocate(self, dtype: DType) -> tuple[Parameter, NDArray[Any]]:
        """See :class:`Parameter`; in memory."""
        out: NDArray[Any] = np.empty(self.shape, dtype.numpy)
        return ArrayParameter(out), out

    @cached_property
    def magnitude_bound(self) -> float:
        """See :class:`Parameter`."""
        return max((magnitude_bound(part) for part in self.parts()), default=0.0)

    def range_loss(self, dtype: DType) -> RangeLoss | None:
        """See :class:`Parameter`; one pass over the file, which is remembered."""
        if dtype not in self._losses:
            self._losses[dtype] = self._measure(dtype) if self.dtype.is_float else None
        return self._losses[dtype]

    def _measure(self, dtype: DType) -> RangeLoss | None:
        limit, narrower = overflow_limit(dtype), dtype.smallest_normal > self.dtype.smallest_normal
        largest = 0.0
        nonzero = lost = 0
        for part in self.parts():
            if magnitude_bound(part) >= limit:
                largest = max(largest, magnitude_range(part).largest)
            if narrower:
                counts = underflow_counts(part, dtype)
                nonzero, lost = nonzero + counts[0], lost + counts[1]
        zeroed = lost / nonzero if nonzero else 0.0
        overflowing = largest if largest >= limit else None
        underflowing = zeroed if zeroed > MOST_ZEROED else None
        return None if overflowing is None and underflowing is None else RangeLoss(overflowing, underflowing)

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickle may be read where the file is not.
        return ArrayParameter, (self.values(),)


class FileParameter(_OnDisk):
    """A dense tensor of a ``.params`` file.

    Parameters
    ----------
    file
        The file.
    header
        What its index says of the tensor.
    """

    def __init__(self, file: PositionedFile, header: TensorHeader) -> None:
        super().__init__()
        self._file = file
        self._header = header

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self._header.shape

    @property
    def dtype(self) -> DType:
        """The dtype it is stored in."""
        return self._header.dtype

    def values(self) -> NDArray[Any]:
        """See :class:`Parameter`; read anew each time."""
        out: NDArray[Any] = np.empty(self.shape, self.dtype.numpy)
        self._file.read_into(out, self._header.offset)
        out.flags.writeable = False
        return out

    def part(self, start: int, stop: int, buffer: NDArray[np.uint8] | None = None) -> NDArray[Any]:
        """See :class:`Parameter`."""
        dtype = self.dtype.numpy
        size = (stop - start) * dtype.itemsize
        out = np.empty(size, np.uint8) if buffer is None else buffer[:size]
        self._file.read_into(out, self._header.offset + start * dtype.itemsize)
        return out.view(dtype)

    def __repr__(self) -> str:
        return f"FileParameter({self.dtype}, shape={self.shape}, {str(self._file.path)!r})"


class JoinedParameter(_OnDisk):
    """Tensors one after the other, as one tensor: what joining them along the first axis makes.

    Nothing is read before it is asked for, and of tensors in files no more than is asked for.

    Parameters
    ----------
    pieces
        The tensors, of one dtype, in order; at least one.
    shape
        The shape of the result; it has as many values as they have.
    """

    def __init__(self, pieces: Sequence[Parameter], shape: tuple[int, ...]) -> None:
        super().__init__()
        self._shape = shape
        # What was joined already is taken apart: however long a chain, a value is read through one of these.
        apart: list[Parameter] = []
        for piece in pieces:
            apart += piece._pieces if isinstance(piece, JoinedParameter) else (piece,)
        self._pieces: tuple[Parameter, ...] = tuple(apart)
        sizes = [math.prod(piece.shape) for piece in self._pieces]
        self._starts = [0, *itertools.accumulate(sizes)]

    @property
    def is_on_disk(self) -> bool:
        """Whether any of them is."""
        return any(piece.is_on_disk for piece in self._pieces)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self._shape

    @property
    def dtype(self) -> DType:
        """The dtype it is stored in."""
        return self._pieces[0].dtype

    def values(self) -> NDArray[Any]:
        """See :class:`Parameter`; read anew each time."""
        out = self.part(0, self._starts[-1]).reshape(self._shape)
        out.flags.writeable = False
        return out

    def part(self, start: int, stop: int, buffer: NDArray[np.uint8] | None = None) -> NDArray[Any]:
        """See :class:`Parameter`."""
        dtype = self.dtype.numpy
        size = (stop - start) * dtype.itemsize
        memory = np.empty(size, np.uint8) if buffer is None else buffer[:size]
        for piece, first, last in zip(self._pieces, self._starts, self._starts[1:]):
            begin, end = max(start, first), min(stop, last)
            if begin < end:
                own = memory[(begin - start) * dtype.itemsize : (end - start) * dtype.itemsize]
                values = piece.part(begin - first, end - first, own)
                if values.__array_interface__["data"] != own.__array_interface__["data"]:
                    own.view(dtype)[:] = values
        return memory.view(dtype)

    def __repr__(self) -> str:
        return f"JoinedParameter({self.dtype}, shape={self.shape}, of {len(self._pieces)})"
