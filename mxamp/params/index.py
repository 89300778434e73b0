"""Read the index of a ``.params`` file, believing none of its numbers before checking them."""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from mxamp.dtypes import DType
from mxamp.errors import ParamsError, TargetError
from mxamp.files.names import MAX_NAME_LENGTH, short
from mxamp.params.format import (
    DEVICE_TYPES,
    LIST_MAGIC,
    MAX_DIMENSIONS,
    V1_MAGIC,
    V2_MAGIC,
    V3_MAGIC,
    ParamsIndex,
    StorageType,
    TensorHeader,
    name_fault,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_UINT32 = struct.Struct("<I")
_UINT64 = struct.Struct("<Q")
_INT32 = struct.Struct("<i")
_CONTEXT = struct.Struct("<ii")

_SMALLEST_RECORD = 20
"""Bytes of the shortest record: the oldest format, one dimension of size zero."""

_MOST_BYTES = 2**62
"""No tensor's size may exceed this, not even one with an empty axis: 64-bit arithmetic would overflow."""

_INDEX_DTYPES = (DType.INT64, DType.INT32)

_DAMAGED = "The file is damaged or was cut short: copy, download or save it again."

_FOREIGN = (
    (b"PK\x03\x04", "It is a zip archive (.npz, PyTorch or a packed download?); unpack or export it first."),
    (b"\x1f\x8b", "It is gzip-compressed; unpack it first."),
    (b"\x89HDF", "It is an HDF5 file (Keras?); mxamp reads MXNet parameters only."),
    (b"version https://git-lfs", "It is a Git LFS pointer; run 'git lfs pull' to get the real file."),
    (b"<", "It looks like a web page or XML, as a failed download leaves behind; download it again."),
    (b"{", "It looks like JSON; was the symbol file given in place of the parameter file?"),
)


_AT_A_TIME = 16
"""Tensors whose headers are looked at before their pages are unmapped."""


def parse_index(path: Path, data: mmap.mmap | bytes) -> ParamsIndex:
    """Read every header of a ``.params`` file; no tensor's data is touched.

    Parameters
    ----------
    path
        The file, for messages.
    data
        Its bytes, usually a memory map.

    Raises
    ------
    ParamsError
        When the bytes are not an intact NDArray list with names. The message gives the byte offset.

    Notes
    -----
    Sizes are compared with the length of the file before anything is allocated for them, so time and memory
    are bounded by the length of the file, whatever it claims.
    """
    return _Parser(path, data).parse()


def parse_record(name: str, record: NDArray[np.uint8]) -> TensorHeader:
    """Read the header of one tensor's record, as `ParamsFile.record` returns it.

    Raises
    ------
    ParamsError
        When the bytes are not one intact record.
    """
    return _Parser(f"the record of parameter {name!r}", record.tobytes()).parse_record(name)


class _Record(NamedTuple):
    """The fields of a `TensorHeader` after its name; the file stores all names at its end."""

    dtype: DType
    shape: tuple[int, ...]
    storage: StorageType
    offset: int
    nbytes: int
    start: int
    stop: int
    indices: tuple[tuple[DType, int], ...]


class _Parser:
    """One walk over the file; ``_position`` is the next byte to read."""

    def __init__(self, path: Path | str, data: mmap.mmap | bytes) -> None:
        self._path = path
        self._data = data
        self._size = len(data)
        self._position = 0

    def parse(self) -> ParamsIndex:
        self._check_magic()
        (count,) = self._take(_UINT64, "the number of tensors")
        left = self._size - self._position
        if count * _SMALLEST_RECORD > left:
            self._fail(
                self._position - _UINT64.size,
                f"the file claims {count} tensors, and {left} bytes have no room for them. {_DAMAGED}",
            )
        records = []
        numpy_shapes = False
        for number in range(1, count + 1):
            tensor = f"tensor {number} of {count}"
            record, is_v3 = self._record(tensor)
            if number % _AT_A_TIME == 0 or number == count:
                self._let_go()
            if number > 1 and is_v3 is not numpy_shapes:
                self._fail(
                    record.start,
                    f"{tensor} was not saved under the same shape semantics as those before it, and MXNet "
                    f"cannot load both from one file. {_DAMAGED}",
                )
            records.append(record)
            numpy_shapes = is_v3
        names = self._names(count)
        has_names = bool(names) or not count
        if not has_names:
            names = [str(number) for number in range(count)]
        if self._position != self._size:
            self._fail(
                self._position,
                f"the parameters end here, but {self._size - self._position} more bytes follow. Something "
                "was appended, or two files were joined; save or copy the file again.",
            )
        tensors = {name: TensorHeader(name, *record) for name, record in zip(names, records)}
        path = Path(self._path)
        return ParamsIndex(path, self._size, MappingProxyType(tensors), numpy_shapes, has_names)

    def parse_record(self, name: str) -> TensorHeader:
        record, _ = self._record("the tensor")
        if self._position != self._size:
            self._fail(self._position, f"{self._size - self._position} more bytes follow. {_DAMAGED}")
        return TensorHeader(name, *record)

    def _check_magic(self) -> None:
        if not self._size:
            self._fail(0, f"the file is empty. {_DAMAGED}")
        (magic,) = self._take(_UINT64, "the magic number")
        if magic != LIST_MAGIC:
            head = bytes(self._data[:32]).lstrip()
            hint = next((hint for start, hint in _FOREIGN if head.startswith(start)), None)
            self._fail(
                0,
                f"this is not a parameter file of MXNet: it begins with 0x{magic:x}, not 0x{LIST_MAGIC:x}. "
                + (hint or "Give the file that mx.nd.save, save_checkpoint or save_parameters wrote."),
            )
        self._take(_UINT64, "the reserved field")

    def _record(self, tensor: str) -> tuple[_Record, bool]:
        start = self._position
        (magic,) = self._take(_UINT32, f"the header of {tensor}")
        storage = StorageType.DENSE
        stored_shape: tuple[int, ...] | None = None
        if magic in (V2_MAGIC, V3_MAGIC):
            storage = self._storage(tensor, allow_sparse=magic == V2_MAGIC)
            if storage is not StorageType.DENSE:
                stored_shape = self._shape(tensor, allow_scalar=False)
            shape = self._shape(tensor, allow_scalar=magic == V3_MAGIC)
        elif magic == V1_MAGIC:
            shape = self._shape(tensor, allow_scalar=False)
        elif magic <= MAX_DIMENSIONS:
            shape = self._sizes(tensor, magic, "I", allow_scalar=False)
        else:
            self._fail(start, f"{tensor} begins with 0x{magic:x}, which starts no NDArray. {_DAMAGED}")
        self._context(tensor)
        dtype = self._dtype(tensor)
        self._check_extent(tensor, dtype, shape)
        values_shape = shape
        indices: tuple[tuple[DType, int], ...] = ()
        if stored_shape is not None:
            values_shape, indices = self._index_arrays(tensor, storage, shape, stored_shape)
        offset = self._position
        nbytes = self._data_bytes(tensor, dtype, values_shape)
        self._skip(nbytes, tensor)
        for index_dtype, length in indices:
            self._skip(index_dtype.itemsize * length, f"an index array of {tensor}")
        record = _Record(dtype, shape, storage, offset, nbytes, start, self._position, indices)
        return record, magic == V3_MAGIC

    def _check_extent(self, tensor: str, dtype: DType, shape: tuple[int, ...]) -> None:
        if dtype.itemsize * math.prod(size or 1 for size in shape) > _MOST_BYTES:
            self._fail(
                self._position,
                f"{tensor}, {dtype} of shape {shape}, is larger than any memory. {_DAMAGED}",
            )

    def _storage(self, tensor: str, *, allow_sparse: bool) -> StorageType:
        at = self._position
        (code,) = self._take(_INT32, f"the storage type of {tensor}")
        try:
            storage = StorageType(code)
        except ValueError:
            self._fail(at, f"{tensor} has storage type {code}, which MXNet never writes. {_DAMAGED}")
        if storage is not StorageType.DENSE and not allow_sparse:
            self._fail(at, f"{tensor} is sparse, which its format version does not allow. {_DAMAGED}")
        return storage

    def _shape(self, tensor: str, *, allow_scalar: bool) -> tuple[int, ...]:
        at = self._position
        (dimensions,) = self._take(_INT32, f"the shape of {tensor}")
        if not 0 <= dimensions <= MAX_DIMENSIONS:
            self._fail(
                at,
                f"{tensor} claims {dimensions} dimensions; 0 to {MAX_DIMENSIONS} are possible. {_DAMAGED}",
            )
        return self._sizes(tensor, dimensions, "q", allow_scalar=allow_scalar)

    def _sizes(self, tensor: str, dimensions: int, code: str, *, allow_scalar: bool) -> tuple[int, ...]:
        at = self._position
        if not dimensions and not allow_scalar:
            # MXNet writes a scalar like this outside NumPy shape semantics, and then cannot read it back.
            self._fail(
                at,
                f"{tensor} has no dimensions: MXNet wrote a scalar, which MXNet itself cannot load from such "
                "a file, or an array without a value. Give the tensor the shape (1,), or save it under "
                "mx.util.np_shape(True).",
            )
        shape: tuple[int, ...] = self._take(struct.Struct(f"<{dimensions}{code}"), f"the shape of {tensor}")
        if any(size < 0 for size in shape):
            self._fail(at, f"{tensor} claims the shape {shape}, with a negative size. {_DAMAGED}")
        return shape

    def _context(self, tensor: str) -> None:
        at = self._position
        device, _ = self._take(_CONTEXT, f"the context of {tensor}")
        # The number of the device says nothing: a file may come from a machine with any number of them.
        if device not in DEVICE_TYPES:
            self._fail(at, f"{tensor} comes from device type {device}, which MXNet does not have. {_DAMAGED}")

    def _dtype(self, tensor: str) -> DType:
        at = self._position
        (code,) = self._take(_INT32, f"the dtype of {tensor}")
        try:
            return DType.from_code(code)
        except TargetError as error:
            self._fail(at, f"{tensor} has an unknown dtype: {error} {_DAMAGED}")

    def _index_arrays(
        self, tensor: str, storage: StorageType, shape: tuple[int, ...], stored_shape: tuple[int, ...]
    ) -> tuple[tuple[int, ...], tuple[tuple[DType, int], ...]]:
        """Read the headers of a sparse tensor's index arrays.

        Returns
        -------
        tuple
            The shape of the values that follow, and dtype and length of each index array.
        """
        at = self._position
        indices = []
        dimensions = set()
        for _ in range(storage.index_arrays):
            here = self._position
            dtype = self._dtype(f"an index array of {tensor}")
            if dtype not in _INDEX_DTYPES:
                self._fail(here, f"an index array of {tensor} is {dtype}; MXNet counts in int64. {_DAMAGED}")
            index_shape = self._shape(f"an index array of {tensor}", allow_scalar=False)
            self._check_extent(f"an index array of {tensor}", dtype, index_shape)
            dimensions.add(len(index_shape))
            indices.append((dtype, index_shape[0]))
        stored = indices[-1][1]
        # One index, in the last index array, for each stored row or value, and rows are whole.
        expected = (stored, *shape[1:]) if storage is StorageType.ROW_SPARSE else (stored,)
        # MXNet saves the stored shape without waiting for the operator that fills the array, so it can be
        # out of date and empty; its reader then goes by the index array, as we do.
        out_of_date = math.prod(stored_shape) == 0
        fits = dimensions == {1} and (stored_shape == expected or out_of_date)
        if storage is StorageType.CSR:
            # Of a matrix without values MXNet may never have made the array that says where rows begin.
            rows = shape[0] + 1
            fits = fits and len(shape) == 2 and (indices[0][1] == rows or indices[0][1] == stored == 0)
        if not fits:
            self._fail(
                at,
                f"{tensor} is sparse and contradicts itself: shape {shape}, stored shape {stored_shape}, "
                f"index arrays of {' and '.join(str(length) for _, length in indices)} elements. {_DAMAGED}",
            )
        return expected, tuple(indices)

    def _data_bytes(self, tensor: str, dtype: DType, shape: tuple[int, ...]) -> int:
        nbytes = dtype.itemsize * math.prod(shape)
        left = self._size - self._position
        if nbytes > left:
            self._fail(
                self._position,
                f"{tensor}, {dtype} of shape {shape}, needs {nbytes} bytes and {left} are left. {_DAMAGED}",
            )
        return nbytes

    def _names(self, count: int) -> list[str]:
        at = self._position
        (named,) = self._take(_UINT64, "the number of names")
        if not named:
            return []
        if named != count:
            self._fail(at, f"there are {named} names for {count} tensors. {_DAMAGED}")
        seen: dict[str, None] = {}
        for number in range(1, count + 1):
            at = self._position
            name = self._name(number)
            if name in seen:
                self._fail(
                    at,
                    f"the name {short(name)} occurs twice, and nothing says which tensor is meant. "
                    "Save the model again.",
                )
            seen[name] = None
        return list(seen)

    def _name(self, number: int) -> str:
        at = self._position
        (length,) = self._take(_UINT64, f"name {number}")
        begin = self._position
        if length > 4 * MAX_NAME_LENGTH:
            self._fail(
                at,
                f"name {number} claims {length} bytes, and a name has at most {MAX_NAME_LENGTH} characters. "
                f"{_DAMAGED}",
            )
        self._skip(length, f"name {number}")
        try:
            name = bytes(self._data[begin : self._position]).decode("utf-8")
        except UnicodeDecodeError:
            self._fail(at, f"name {number} is not UTF-8 text. {_DAMAGED}")
        fault = name_fault(name)
        if fault:
            self._fail(at, f"name {number}, {short(name)}, {fault}. {_DAMAGED}")
        return name

    def _take(self, layout: struct.Struct, what: str) -> tuple[Any, ...]:
        at = self._position
        self._skip(layout.size, what)
        return layout.unpack_from(self._data, at)

    def _skip(self, length: int, what: str) -> None:
        left = self._size - self._position
        if length > left:
            self._fail(
                self._position, f"the file ends inside {what}: {length} bytes needed, {left} left. {_DAMAGED}"
            )
        self._position += length

    def _let_go(self) -> None:
        """Unmap the pages that were looked at: the system maps up to 2 MiB around each byte."""
        if hasattr(self._data, "madvise") and hasattr(mmap, "MADV_DONTNEED"):
            self._data.madvise(mmap.MADV_DONTNEED)

    def _fail(self, offset: int, message: str) -> NoReturn:
        raise ParamsError(f"{self._path}, byte {offset}: {message}")
