"""Sparse tensors, carried from file to file untouched.

MXNet has no sparse operators in low precision, so nothing here is ever computed with or cast: a sparse tensor
is the bytes of its record (:mod:`mxamp.params.format`) and what its header says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from mxamp.errors import ParamsError
from mxamp.params.format import StorageType, TensorHeader
from mxamp.params.index import parse_record
from mxamp.params.parameter import Parameter, RangeLoss

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mxamp.dtypes import DType


@dataclass(frozen=True, eq=False)
class SparseTensor:
    """A row-sparse or CSR tensor as MXNet stores it.

    Attributes
    ----------
    header
        What the record says of itself; offsets count from its first byte.
    record
        The bytes of the record.
    """

    header: TensorHeader
    record: NDArray[np.uint8]

    @classmethod
    def from_record(cls, name: str, record: NDArray[np.uint8]) -> SparseTensor:
        """Check a record and wrap it.

        Parameters
        ----------
        name
            The tensor's name, for messages.
        record
            Its bytes.

        Raises
        ------
        ParamsError
            When it is damaged, or its index arrays point outside it; MXNet would use them unchecked.
        """
        header = parse_record(name, record)
        fault = sparse_fault(header, record)
        if fault:
            raise ParamsError(
                f"The sparse parameter {name!r} {fault}, and MXNet would read or write memory that is not "
                "its own. The file is damaged: copy, download or save it again."
            )
        return cls(header, record)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, zeros included."""
        return self.header.shape

    @property
    def dtype(self) -> DType:
        """The dtype of its values."""
        return self.header.dtype


def sparse_fault(header: TensorHeader, record: NDArray[np.uint8]) -> str | None:
    """Say what is wrong with the index arrays of a sparse record, or return None.

    Parameters
    ----------
    header
        Its header.
    record
        Its bytes.
    """
    arrays = []
    place = header.offset - header.start + header.nbytes
    for dtype, count in header.indices:
        stop = place + count * dtype.itemsize
        arrays.append(record[place:stop].view(dtype.numpy.newbyteorder("<")).astype(np.int64))
        place = stop
    if header.storage is StorageType.ROW_SPARSE:
        rows = arrays[0]
        if np.any(rows[1:] <= rows[:-1]):
            return "has row numbers out of order"
        return _range_fault("row number", rows, header.shape[0])
    starts, columns = arrays
    if not len(starts):
        return None  # an empty matrix, whose arrays were never made
    if starts[0] != 0 or starts[-1] != len(columns) or np.any(starts[1:] < starts[:-1]):
        return f"says that its rows begin at places that are no places among its {len(columns)} values"
    within = np.ones(len(columns), bool)
    within[starts[:-1][starts[:-1] < len(columns)]] = False  # the first of a row follows nothing
    if np.any((columns[1:] <= columns[:-1]) & within[1:]):
        return "has columns out of order"
    return _range_fault("column", columns, header.shape[1])


def _range_fault(what: str, numbers: NDArray[np.int64], size: int) -> str | None:
    outside = numbers[(numbers < 0) | (numbers >= size)]
    return f"has the {what} {outside[0]}, outside 0 to {size - 1}" if len(outside) else None


class SparseParameter(Parameter):
    """A sparse tensor as a parameter: it is handed on as it is, and what reads it stays FP32."""

    def __init__(self, tensor: SparseTensor) -> None:
        self.tensor = tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, zeros included."""
        return self.tensor.shape

    @property
    def dtype(self) -> DType:
        """The dtype of its values."""
        return self.tensor.dtype

    @property
    def is_sparse(self) -> bool:
        """Always true."""
        return True

    def values(self) -> NDArray[Any]:
        """Raise: there is no array to read."""
        self._refuse("has no array of values")

    def allocate(self, dtype: DType) -> tuple[Parameter, NDArray[Any]]:
        """Raise: a sparse parameter is never cast."""
        self._refuse(f"cannot be cast to {dtype}")

    def stored(self) -> SparseTensor:
        """Return the tensor, to be written as it is."""
        return self.tensor

    def range_loss(self, dtype: DType) -> RangeLoss | None:
        """Return None: it is never cast, so it loses nothing."""
        return None

    def _refuse(self, why: str) -> NoReturn:
        name = self.tensor.header.name
        raise ParamsError(
            f"The parameter {name!r} is stored as {self.tensor.header.storage.name.lower()} and {why}. "
            "Make it dense with tostype('default') in MXNet."
        )

    def __repr__(self) -> str:
        return f"SparseParameter({self.dtype}, shape={self.shape}, {self.tensor.header.storage.name.lower()})"
