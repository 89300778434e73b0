"""Write ``.params`` files, byte for byte as MXNet writes them."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any, BinaryIO, Iterable, Mapping, Sequence, Union

import numpy as np

from mxamp.dtypes import DType
from mxamp.errors import ParamsError, TargetError
from mxamp.files import atomic_write
from mxamp.params.format import (
    ARG_PREFIX,
    AUX_PREFIX,
    CPU_CONTEXT,
    LIST_MAGIC,
    V2_MAGIC,
    V3_MAGIC,
    StorageType,
    name_fault,
)
from mxamp.params.sparse import SparseTensor

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

_Stored = Union["NDArray[Any]", SparseTensor]


def write_params(
    path: str | PathLike[str],
    args: Mapping[str, _Stored],
    auxs: Mapping[str, _Stored],
    *,
    numpy_shapes: bool = False,
) -> None:
    """Write parameters to a file that appears only when it is complete.

    Parameters
    ----------
    path
        The file; an existing one is replaced.
    args, auxs
        Arguments and auxiliary states by bare name; they are stored as ``arg:`` and ``aux:``, in this order.
    numpy_shapes
        Write for NumPy shape semantics, see `ParamsEncoder`.

    Raises
    ------
    ParamsError
        When a name or an array cannot be stored.
    ExportError
        When the file cannot be written.

    Notes
    -----
    To write symbol and parameters together, open both with `mxamp.files.atomic_write` and use
    `encode_params`.
    """
    with atomic_write(path) as (file,):
        encode_params(file, args, auxs, numpy_shapes=numpy_shapes)


def encode_params(
    file: BinaryIO,
    args: Mapping[str, _Stored],
    auxs: Mapping[str, _Stored],
    *,
    numpy_shapes: bool = False,
) -> None:
    """Write parameters to an open binary file.

    Parameters
    ----------
    file
        Where to write; it stays open.
    args, auxs
        Arguments and auxiliary states by bare name.
    numpy_shapes
        Write for NumPy shape semantics, see `ParamsEncoder`.

    Raises
    ------
    ParamsError
        When a name or an array cannot be stored; part of the list is written then.
    """
    encoder = ParamsEncoder(file, len(args) + len(auxs), numpy_shapes=numpy_shapes)
    for prefix, group in ((ARG_PREFIX, args), (AUX_PREFIX, auxs)):
        for name, tensor in group.items():
            if isinstance(tensor, SparseTensor):
                encoder.add_record(prefix + name, tensor.record)
            else:
                encoder.add(prefix + name, tensor)
    encoder.finish()


class ParamsEncoder:
    """Writes tensors one after the other, so that only one has to be in memory.

    Parameters
    ----------
    file
        An open binary file; the list begins at its current position.
    count
        How many tensors will be added; the format stores it first.
    numpy_shapes
        Write the format of MXNet's NumPy shape semantics, the only one that can hold scalars. MXNet loads
        such a file only under ``mx.util.np_shape(True)``.
    has_names
        With False, write a list without names, as ``mx.nd.save`` writes a list of arrays. Names then only
        tell the tensors apart.
    """

    def __init__(
        self, file: BinaryIO, count: int, *, numpy_shapes: bool = False, has_names: bool = True
    ) -> None:
        self._file = file
        self._count = count
        self._numpy_shapes = numpy_shapes
        self._has_names = has_names
        self._names: dict[str, bytes] = {}
        file.write(struct.pack("<QQQ", LIST_MAGIC, 0, count))

    def add(self, name: str, array: NDArray[Any]) -> None:
        """Write one tensor.

        Parameters
        ----------
        name
            The stored name, with its prefix.
        array
            The values; any memory layout and byte order. It is not changed.

        Raises
        ------
        ParamsError
            When the name or the array cannot be stored.
        """
        header, data = self._encode(name, array)
        self._note(name)
        self._file.write(header)
        self._file.write(data.data)

    def add_parts(self, name: str, dtype: DType, shape: Sequence[int], parts: Iterable[NDArray[Any]]) -> None:
        """Write one tensor whose values come part by part.

        Parameters
        ----------
        name
            The stored name, with its prefix.
        dtype, shape
            Its dtype and shape.
        parts
            Its values in order, C-contiguous and of that dtype. Each part is written before the next is asked
            for.

        Raises
        ------
        ParamsError
            When the name or the shape cannot be stored, or the parts are not the whole tensor.
        """
        header = self._header(name, dtype, tuple(shape))
        self._note(name)
        self._file.write(header)
        left = math.prod(shape)
        for part in parts:
            self._file.write(part.reshape(-1).view(np.uint8).data)
            left -= part.size
        if left:
            raise ParamsError(
                f"Parameter {name!r} of shape {tuple(shape)} came with {abs(left)} values too "
                f"{'few' if left > 0 else 'many'}, so the file would be unreadable."
            )

    def add_record(self, name: str, record: NDArray[np.uint8]) -> None:
        """Write one tensor as the bytes of its record in another file (`ParamsFile.record`).

        Parameters
        ----------
        name
            The stored name, with its prefix.
        record
            Its bytes.

        Raises
        ------
        ParamsError
            When the name cannot be stored, or MXNet could not load the record beside the others.
        """
        magic = int.from_bytes(record[:4].tobytes(), "little")
        if (magic == V3_MAGIC) is not self._numpy_shapes:
            raise ParamsError(
                f"The parameter {name!r} was stored under other shape semantics than this file, and MXNet "
                "cannot load both from one file. A sparse parameter cannot be saved for NumPy shapes: "
                "make it dense with tostype('default') in MXNet."
            )
        self._note(name)
        self._file.write(record.data)

    def finish(self) -> None:
        """Write the names, which end the list.

        Raises
        ------
        ParamsError
            When more or fewer tensors were added than announced.
        """
        if len(self._names) != self._count:
            raise ParamsError(
                f"{self._count} tensors were announced and {len(self._names)} added, so the file would be "
                "unreadable. Count the tensors before the first is written."
            )
        names = list(self._names.values()) if self._has_names else []
        self._file.write(struct.pack("<Q", len(names)))
        for name in names:
            self._file.write(struct.pack("<Q", len(name)) + name)

    def _note(self, name: str) -> None:
        fault = name_fault(name)
        if fault:
            raise ParamsError(
                f"The parameter name {name!r} {fault}; MXNet could not read it back. Rename it."
            )
        if name in self._names:
            raise ParamsError(f"The parameter {name!r} was added twice. Add each once.")
        try:
            self._names[name] = name.encode("utf-8")
        except UnicodeEncodeError:
            raise ParamsError(
                f"The parameter name {name!r} is not valid Unicode text and cannot be stored. Rename it."
            ) from None

    def _encode(self, name: str, array: NDArray[Any]) -> tuple[bytes, NDArray[np.uint8]]:
        """Return the header of a record and its data as bytes, without a copy where the layout allows."""
        if not isinstance(array, np.ndarray):
            raise ParamsError(
                f"Parameter {name!r} is a {type(array).__name__}, not a NumPy array. "
                "Turn it into one first (asnumpy() of an NDArray)."
            )
        try:
            dtype = DType.from_numpy(array.dtype.newbyteorder("="))
        except TargetError as error:
            raise ParamsError(f"Parameter {name!r} cannot be stored: {error}") from None
        flat = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1)
        return self._header(name, dtype, array.shape), flat.view(np.uint8)

    def _header(self, name: str, dtype: DType, shape: tuple[int, ...]) -> bytes:
        if not shape and not self._numpy_shapes:
            raise ParamsError(
                f"Parameter {name!r} has the shape (), which MXNet can write but not read back outside "
                "NumPy shape semantics. Reshape it to (1,), or write with numpy_shapes=True."
            )
        magic = V3_MAGIC if self._numpy_shapes else V2_MAGIC
        return struct.pack(
            f"<Iii{len(shape)}qiii",
            magic,
            StorageType.DENSE.value,
            len(shape),
            *shape,
            *CPU_CONTEXT,
            dtype.value,
        )
