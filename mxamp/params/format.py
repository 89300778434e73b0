"""MXNet's NDArray list file, the format behind ``.params``: its constants and what an index of it holds.

All numbers are little-endian and nothing is padded::

    list      uint64 magic 0x112, uint64 reserved (0)
              uint64 count, then that many records
              uint64 count of names (0: the arrays have no names), then for each uint64 length, UTF-8 bytes
    record    uint32 magic; what follows depends on it:
    V2        int32 storage type, [sparse: storage shape,] shape, context, int32 dtype code,
              [sparse, for each index array: int32 dtype code, shape,] data[, index arrays]
    V3        as V2, dense only, written under NumPy shape semantics: only there does a shape () mean a scalar
    V1        shape, context, int32 dtype code, data
    oldest    no magic: it is the number of dimensions, and uint32 sizes follow; then as V1
    shape     int32 number of dimensions, int64 sizes
    context   int32 device type, int32 device number (where the array lived; the data is always here)

References
----------
``NDArray::Save``, ``NDArray::Load`` and ``NDArray::LegacyLoad`` in ``src/ndarray/ndarray.cc``,
``Tuple::Save`` in ``include/mxnet/tuple.h``, ``Context::Save`` in ``include/mxnet/base.h``, MXNet 1.9.1.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Collection, Mapping

from mxamp.errors import ParamsError
from mxamp.files.names import name_fault as any_name_fault

if TYPE_CHECKING:
    from pathlib import Path

    from mxamp.dtypes import DType

LIST_MAGIC = 0x112
V1_MAGIC = 0xF993FAC8
V2_MAGIC = 0xF993FAC9
V3_MAGIC = 0xF993FACA

MAX_DIMENSIONS = 32
"""The most dimensions of a NumPy array (before NumPy 2); no MXNet operator takes more than six or so."""

CPU_CONTEXT = (1, 0)
"""Device type and number of ``mx.cpu(0)``."""

DEVICE_TYPES = {1: "cpu", 2: "gpu", 3: "cpu_pinned", 5: "cpu_shared"}

ARG_PREFIX = "arg:"
AUX_PREFIX = "aux:"


class StorageType(enum.Enum):
    """How an NDArray is stored (``NDArrayStorageType`` in ``include/mxnet/ndarray.h``)."""

    DENSE = 0
    ROW_SPARSE = 1
    CSR = 2

    @property
    def index_arrays(self) -> int:
        """How many index arrays follow the data."""
        return self.value


@dataclass(frozen=True)
class TensorHeader:
    """What a ``.params`` file says about one tensor.

    Attributes
    ----------
    name
        The name as stored, prefix included.
    dtype
        Its dtype.
    shape
        Its shape.
    storage
        Dense, or one of the sparse kinds.
    offset
        The byte of the file where its data begins.
    nbytes
        The length of its data; of a sparse tensor, of the stored values alone.
    start, stop
        The bytes of its whole record, header and index arrays included.
    indices
        Of a sparse tensor, dtype and length of each index array; they follow the data.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    storage: StorageType
    offset: int
    nbytes: int
    start: int
    stop: int
    indices: tuple[tuple[DType, int], ...] = ()


@dataclass(frozen=True)
class ParamsIndex:
    """What a ``.params`` file holds, without the data.

    Attributes
    ----------
    path
        The file.
    size
        Its length in bytes.
    tensors
        The headers by stored name, in the order of the file.
    numpy_shapes
        Whether it was written under MXNet's NumPy shape semantics; MXNet then loads it only under
        ``mx.util.np_shape(True)``.
    has_names
        Whether the tensors have names; those of a list (``mx.nd.save`` of a list) have none, and are called
        ``"0"``, ``"1"`` and so on here.
    """

    path: Path
    size: int
    tensors: Mapping[str, TensorHeader]
    numpy_shapes: bool
    has_names: bool = True

    def split(
        self, aux_names: Collection[str] = ()
    ) -> tuple[dict[str, TensorHeader], dict[str, TensorHeader]]:
        """Separate arguments from auxiliary states and drop the prefixes.

        Parameters
        ----------
        aux_names
            The names of auxiliary states, for tensors stored without a prefix, as Gluon's
            ``save_parameters`` writes them. A prefix in the file has the last word.

        Returns
        -------
        tuple of dict
            Headers of arguments and of auxiliary states by bare name, in the order of the file.

        Raises
        ------
        ParamsError
            When a tensor is stored twice, with and without prefix, or when none has a name.
        """
        if not self.has_names:
            raise ParamsError(
                f"{self.path}, byte {max((t.stop for t in self.tensors.values()), default=0)}: the "
                f"{len(self.tensors)} tensors have no names, so nothing says which parameters they are. "
                "Save a dict of arrays, not a list."
            )
        aux_names = frozenset(aux_names)
        args: dict[str, TensorHeader] = {}
        auxs: dict[str, TensorHeader] = {}
        for header in self.tensors.values():
            prefix, name = split_prefix(header.name)
            group = auxs if prefix == AUX_PREFIX or (not prefix and name in aux_names) else args
            if name in group:
                raise ParamsError(
                    f"{self.path}: parameter {name!r} is stored twice, as {group[name].name!r} and as "
                    f"{header.name!r}, and nothing says which one is meant. Save the model with one of them."
                )
            group[name] = header
        return args, auxs


def split_prefix(stored_name: str) -> tuple[str, str]:
    """Return the prefix, ``"arg:"``, ``"aux:"`` or ``""``, and the bare name."""
    for prefix in (ARG_PREFIX, AUX_PREFIX):
        if stored_name.startswith(prefix):
            return prefix, stored_name[len(prefix) :]
    return "", stored_name


def name_fault(stored_name: str) -> str | None:
    """Say what makes a name unusable for a tensor, or return None; see :mod:`mxamp.files.names`."""
    bare = split_prefix(stored_name)[1]
    return any_name_fault(bare) if bare else "is empty"
