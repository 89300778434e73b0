"""Parameters that live in MXNet's NDArrays."""

from __future__ import annotations

import ctypes
import math
from functools import cached_property, lru_cache
from typing import Any, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.errors import ParamsError
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.params.sparse import SparseParameter, SparseTensor
from mxamp.runtime.mxnet import import_mxnet

__all__ = [
    "MXNET_BFLOAT16",
    "NDArrayParameter",
    "ndarray_from_numpy",
    "ndarray_from_parameter",
    "parameters_from_ndarrays",
]

MXNET_BFLOAT16 = np.dtype([("bfloat16", np.uint16)])
"""How MXNet 1.9.1 shows bfloat16 to NumPy."""


_mxnet = lru_cache(maxsize=None)(import_mxnet)
"""Asked for thousands of times in a conversion."""


class NDArrayParameter(Parameter):
    """A parameter held by an NDArray, read in place.

    Parameters
    ----------
    array
        The NDArray; never written to.
    is_borrowed
        Whether it belongs to the caller: it is read, and not handed on.
    form
        Its shape and dtype, from whoever knows them; every question to MXNet takes time.
    """

    def __init__(
        self,
        array: Any,
        *,
        is_borrowed: bool = False,
        form: tuple[tuple[int, ...], DType] | None = None,
    ) -> None:
        self.array = array
        self.is_borrowed = is_borrowed
        self._shape, self._dtype = form or (tuple(array.shape), DType.from_numpy(array.dtype))

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self._shape

    @property
    def dtype(self) -> DType:
        """The dtype it is stored in."""
        return self._dtype

    @cached_property
    def _is_on_host(self) -> bool:
        return _device_type(self.array) in _HOST

    def values(self) -> NDArray[Any]:
        """See :class:`mxamp.params.parameter.Parameter`. In place where the NDArray lies in host memory."""
        if self._is_on_host:
            return _values_in_place(self.array, self._shape, self._dtype)
        return self.numpy()

    def allocate(self, dtype: DType) -> tuple[Parameter, NDArray[Any]]:
        """See :class:`mxamp.params.parameter.Parameter`.

        Casting is done on the host with the same code as for files, so both routes give the same bits.
        (MXNet's own ``Cast`` to bfloat16 truncates, and its ``amp_cast`` flushes subnormals.)
        """
        if 0 in self._shape or not self._is_on_host:
            return ArrayParameter(np.empty(self._shape, dtype.numpy)).allocate(dtype)
        made = _empty(self._shape, self.array.context, dtype)
        result = NDArrayParameter(made, form=(self._shape, dtype))
        result._is_on_host = True
        return result, _values_in_place(made, self._shape, dtype)

    def numpy(self) -> NDArray[Any]:
        """See :class:`mxamp.params.parameter.Parameter`."""
        values: NDArray[Any] = self.array.asnumpy()
        if self._dtype is DType.BFLOAT16:
            values = values.view(DType.BFLOAT16.numpy)
        return values

    def __repr__(self) -> str:
        return f"NDArrayParameter({self._dtype}, shape={self.shape}, ctx={self.array.context})"


_HOST = frozenset({1, 3, 5})
"""The device types of MXNet's ``Context`` that are memory of the host: cpu, cpu_pinned, cpu_shared."""


@lru_cache(maxsize=None)
def _calls() -> tuple[Any, Any, Any, Any]:
    """Return MXNet's calls that are made for every array, and the one that raises when a call has failed."""
    mx = _mxnet()
    library = mx.base._LIB
    return (
        library.MXNDArrayGetContext,
        library.MXNDArrayWaitToRead,
        library.MXNDArrayGetData,
        mx.base.check_call,
    )


def _device_type(array: Any) -> int:
    """Return MXNet's number of an NDArray's device type; ``array.context`` takes three times as long."""
    get_context, _, _, check_call = _calls()
    kind, number = ctypes.c_int(), ctypes.c_int()
    check_call(get_context(array.handle, ctypes.byref(kind), ctypes.byref(number)))
    return kind.value


def _values_in_place(array: Any, shape: tuple[int, ...], dtype: DType) -> NDArray[Any]:
    """Return the values of an NDArray in host memory without a copy.

    The view must not outlive ``array``. Reading goes through ``MXNDArrayGetData``, which also brings a
    oneDNN-blocked array into plain order, as ``asnumpy`` does.
    """
    _, wait_to_read, get_data, check_call = _calls()
    pointer = ctypes.c_void_p()
    check_call(wait_to_read(array.handle) or get_data(array.handle, ctypes.byref(pointer)))
    kind = dtype.numpy
    size = math.prod(shape) * kind.itemsize
    if not pointer.value or not size:
        return np.zeros(shape, kind)
    buffer: Any = (ctypes.c_byte * size).from_address(pointer.value)
    return np.ndarray(shape, kind, buffer)


def _empty(shape: Sequence[int], ctx: Any, dtype: DType) -> Any:
    """Return a new NDArray whose values are not set yet."""
    mx = _mxnet()
    return mx.nd.empty(shape, ctx=ctx, dtype=MXNET_BFLOAT16 if dtype is DType.BFLOAT16 else dtype.numpy)


def parameters_from_ndarrays(arrays: Mapping[str, Any]) -> dict[str, Parameter]:
    """Wrap NDArrays; of a sparse one the record that a parameter file would hold.

    Raises
    ------
    ParamsError
        When a value is not an NDArray.
    """
    mx = _mxnet()
    kind = mx.nd.NDArray
    wrapped: dict[str, Parameter] = {}
    for name, array in arrays.items():
        if not isinstance(array, kind):
            raise ParamsError(
                f"The parameter {name!r} must be an mx.nd.NDArray or a NumPy array, not "
                f"{type(array).__name__}."
            )
        if array.stype == "default":
            wrapped[name] = NDArrayParameter(array, is_borrowed=True)
        else:
            wrapped[name] = SparseParameter(SparseTensor.from_record(name, _record(array)))
    return wrapped


def _record(array: Any) -> NDArray[np.uint8]:
    """Return the bytes of an NDArray as a parameter file holds them."""
    mx = _mxnet()
    array.wait_to_read()
    length, pointer = ctypes.c_size_t(), ctypes.c_char_p()
    mx.base.check_call(
        mx.base._LIB.MXNDArraySaveRawBytes(array.handle, ctypes.byref(length), ctypes.byref(pointer))
    )
    # MXNet reuses the memory for its next answer.
    return np.frombuffer(ctypes.string_at(pointer, length.value), np.uint8)


def _ndarray_from_record(record: NDArray[np.uint8]) -> Any:
    mx = _mxnet()
    handle = mx.base.NDArrayHandle()
    data = record.tobytes()
    mx.base.check_call(
        mx.base._LIB.MXNDArrayLoadFromRawBytes(
            ctypes.c_char_p(data), ctypes.c_size_t(len(data)), ctypes.byref(handle)
        )
    )
    return mx.nd.sparse._ndarray_cls(handle, writable=False)


def ndarray_from_numpy(values: NDArray[Any], ctx: Any = None) -> Any:
    """Return a NumPy array (ml_dtypes' bfloat16 included) as a new NDArray.

    Parameters
    ----------
    values
        Any dtype MXNet has.
    ctx
        Device; the current context by default.
    """
    mx = _mxnet()
    dtype = DType.from_numpy(values.dtype)
    ctx = ctx if ctx is not None else mx.cpu()
    if ctx.device_type == "cpu" and values.size and values.ndim:
        # Many small arrays: written in place this takes a quarter of the time that mx.nd.array needs.
        array = _empty(values.shape, ctx, dtype)
        np.copyto(_values_in_place(array, values.shape, dtype), values)
        return array
    if dtype is not DType.BFLOAT16:
        return mx.nd.array(values, ctx=ctx, dtype=values.dtype)
    array = _empty(values.shape, ctx, dtype)
    bits = np.ascontiguousarray(values).view(np.uint16)
    array._sync_copyfrom(bits.view(MXNET_BFLOAT16).reshape(values.shape))
    return array


def ndarray_from_parameter(parameter: Parameter) -> Any:
    """Return a parameter as an NDArray: the one it wraps, or a new one.

    What belongs to somebody else is copied: whoever writes to one model's parameters, or binds them, which
    lets oneDNN reorder them, must not change another's.
    """
    if isinstance(parameter, NDArrayParameter):
        has_values = 0 not in parameter.shape  # MXNet copies no array of size zero
        return parameter.array.copy() if parameter.is_borrowed and has_values else parameter.array
    if isinstance(parameter, SparseParameter):
        return _ndarray_from_record(parameter.tensor.record)
    return ndarray_from_numpy(parameter.numpy())
