"""Read ``.params`` files: all at once, or an index first and tensors on demand."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any, Collection, Union

import numpy as np

from mxamp.errors import ParamsError, nearest_names
from mxamp.files import existing_file, why_unreadable
from mxamp.params.format import ParamsIndex, StorageType, TensorHeader
from mxamp.params.index import parse_index
from mxamp.params.sparse import SparseTensor

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

Stored = Union["NDArray[Any]", SparseTensor]
"""A tensor of a file: an array, or what stands for a sparse one."""


def read_params(
    path: str | PathLike[str], *, aux_names: Collection[str] = ()
) -> tuple[dict[str, Stored], dict[str, Stored]]:
    """Read a ``.params`` file into memory.

    Parameters
    ----------
    path
        What ``mx.nd.save``, ``save_checkpoint``, ``HybridBlock.export`` or ``save_parameters`` wrote.
    aux_names
        The names of auxiliary states, for tensors that are stored without an ``arg:`` or ``aux:`` prefix.

    Returns
    -------
    tuple of dict
        Arguments and auxiliary states by bare name, in the order of the file. The arrays belong to the
        caller; bfloat16 is that of ml_dtypes. A sparse tensor is a :class:`SparseTensor`, which the writer
        writes back as it is.

    Raises
    ------
    ModelFileNotFoundError
        When there is no such file.
    ParamsError
        When the file is damaged, is something else, or its tensors have no names.
    """
    with open_params(path) as file:
        args, auxs = file.index.split(aux_names)
        # Copies: a later writer that truncates the file in place would pull mapped pages from under us.
        return (
            {name: _owned(file.tensor(header.name)) for name, header in args.items()},
            {name: _owned(file.tensor(header.name)) for name, header in auxs.items()},
        )


def _owned(tensor: Stored) -> Stored:
    if isinstance(tensor, SparseTensor):
        return SparseTensor(tensor.header, np.array(tensor.record))
    return np.array(tensor)


def open_params(path: str | PathLike[str]) -> ParamsFile:
    """Open a ``.params`` file: read and check its index, and leave the tensors on disk.

    Returns
    -------
    ParamsFile
        To be used in a ``with`` statement.

    Raises
    ------
    ModelFileNotFoundError
        When there is no such file.
    ParamsError
        When the file is damaged or is something else.
    """
    path = existing_file(path, "parameter file")
    try:
        with open(path, "rb") as file:
            # An empty file cannot be mapped; the parser says that it is empty.
            size = file.seek(0, 2)
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    except OSError as error:
        raise ParamsError(f"{path} cannot be read: {why_unreadable(error)}") from error
    return ParamsFile(parse_index(path, data), data)


class ParamsFile:
    """An open ``.params`` file; made by `open_params`.

    Notes
    -----
    Arrays that `load` returned stay valid after `close`: the mapping lives as long as any of them. They
    show the file itself, so nobody may truncate it meanwhile; a file that `write_params` replaces is safe.
    """

    def __init__(self, index: ParamsIndex, data: mmap.mmap | bytes) -> None:
        self._index = index
        self._bytes: NDArray[np.uint8] | None = np.frombuffer(data, np.uint8)

    @property
    def index(self) -> ParamsIndex:
        """The headers of all tensors."""
        return self._index

    def load(self, name: str) -> NDArray[Any]:
        """Return one tensor, read-only.

        Parameters
        ----------
        name
            Its stored name, prefix included.

        Returns
        -------
        numpy.ndarray
            A view of the memory-mapped file; pages are read when they are used. Where the file does not
            align the data for its dtype (after an int8 tensor of odd length, say) it is a copy.

        Raises
        ------
        ParamsError
            When there is no such tensor, when it is sparse, or when the file is closed.
        """
        header = self._header(name)
        if header.storage is not StorageType.DENSE:
            raise ParamsError(
                f"{self._index.path}, byte {header.start}: parameter {name!r} is stored as "
                f"{header.storage.name.lower()}, and has no array of values. Make it dense with "
                "tostype('default') in MXNet and save the model again."
            )
        raw = self._span(header.offset, header.offset + header.nbytes)
        array = raw.view(header.dtype.numpy).reshape(header.shape)
        if not array.flags.aligned:
            array = array.copy()
            array.flags.writeable = False
        return array

    def tensor(self, name: str) -> Stored:
        """Return one tensor, dense or sparse.

        Parameters
        ----------
        name
            Its stored name, prefix included.

        Returns
        -------
        numpy.ndarray or SparseTensor
            As :meth:`load` returns it, or the checked record of a sparse tensor.

        Raises
        ------
        ParamsError
            When there is no such tensor, when a sparse one's index arrays point outside it, or when the file
            is closed.
        """
        if self._header(name).storage is StorageType.DENSE:
            return self.load(name)
        return SparseTensor.from_record(name, self.record(name))

    def record(self, name: str) -> NDArray[np.uint8]:
        """Return the bytes of one tensor's whole record, to copy it into another file untouched.

        Parameters
        ----------
        name
            Its stored name, prefix included.
        """
        header = self._header(name)
        return self._span(header.start, header.stop)

    def close(self) -> None:
        """Let go of the file; closing twice is harmless."""
        self._bytes = None

    def __enter__(self) -> ParamsFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._bytes is None else f"{len(self._index.tensors)} tensors"
        return f"ParamsFile({str(self._index.path)!r}, {state})"

    def _header(self, name: str) -> TensorHeader:
        header = self._index.tensors.get(name)
        if header is None:
            raise ParamsError(
                f"{self._index.path} has no parameter {name!r}.{nearest_names(name, self._index.tensors)} "
                "Names include their prefix, 'arg:' or 'aux:', if the file has one."
            )
        return header

    def _span(self, start: int, stop: int) -> NDArray[np.uint8]:
        if self._bytes is None:
            raise ParamsError(f"{self._index.path} was closed. Load its tensors inside the 'with' statement.")
        return self._bytes[start:stop]
