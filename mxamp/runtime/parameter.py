"""Parameters that live in MXNet's NDArrays."""

from __future__ import annotations

import ctypes
import math
from functools import lru_cache
from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.errors import ParamsError
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.params.sparse import SparseParameter, SparseTensor
from mxamp.runtime.mxnet import import_mxnet

MXNET_BFLOAT16 = np.dtype([("bfloat16", np.uint16)])
"""How MXNet 1.9.1 shows bfloat16 to NumPy."""


_mxnet = lru_cache(maxsize=None)(import_mxnet)
"""Asked for thousands of times in a conversion."""


class _Form(NamedTuple):
    """What MXNet says of an NDArray; every question takes time, so each is asked once."""

    shape: tuple[int, ...]
    dtype: DType
    device: tuple[int, int]
    """MXNet's number of the device's type, and the number of the device."""


class NDArrayParameter(Parameter):
    """A parameter held by an NDArray, read in place.

    Parameters
    ----------
    array
        The NDArray; never written to.
    is_borrowed
        Whether it belongs to the caller: it is read, and not handed on.
    form
        Its form, from whoever knows it.
    """

    def __init__(self, array: Any, *, is_borrowed: bool = False, form: _Form | None = None) -> None:
        self.array = array
        self.is_borrowed = is_borrowed
        self._shape, self._dtype, self._device = form or _Form(
            tuple(array.shape), DType.from_numpy(array.dtype), _device(array)
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self._shape

    @property
    def dtype(self) -> DType:
        """The dtype it is stored in."""
        return self._dtype

    def values(self) -> NDArray[Any]:
        """See :class:`mxamp.params.parameter.Parameter`. In place where the NDArray lies in host memory."""
        if self._device[0] in _HOST:
            return _values_in_place(self.array, self._shape, self._dtype)
        return self.numpy()

    def allocate(self, dtype: DType) -> tuple[Parameter, NDArray[Any]]:
        """See :class:`mxamp.params.parameter.Parameter`.

        Casting is done on the host with the same code as for files, so both routes give the same bits.
        (MXNet's own ``Cast`` to bfloat16 truncates, and its ``amp_cast`` flushes subnormals.) Values of a
        format that MXNet does not have are held as float32.
        """
        if dtype.is_emulated_only:
            dtype = DType.FLOAT32
        if 0 in self._shape or self._device[0] not in _HOST:
            return ArrayParameter(np.empty(self._shape, dtype.numpy)).allocate(dtype)
        made = _empty(self._shape, self._device, dtype)
        result = NDArrayParameter(made, form=_Form(self._shape, dtype, self._device))
        return result, _values_in_place(made, self._shape, dtype, is_new=True)

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


_DTYPES = {dtype.value: dtype for dtype in DType}
"""MXNet's number of a dtype -> the dtype."""

_DENSE = 0
"""MXNet's number of the storage type of dense arrays."""

_MOST_ELEMENTS = 2**31 - 1
"""More elements need a build of MXNet with 64-bit sizes."""


_memory = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)(
    ("PyMemoryView_FromMemory", ctypes.pythonapi)
)
"""Makes a buffer of memory; a ctypes array would do, but every size of those is a new class."""

_WRITABLE = 0x200
"""CPython's ``PyBUF_WRITE``."""


class _Calls(NamedTuple):
    """MXNet's calls that are made for every array; its Python properties take several times as long."""

    get_storage_type: Any
    get_shape: Any
    size_pointer: Any
    """The type of what ``get_shape`` points to."""
    get_dtype: Any
    get_context: Any
    wait_to_read: Any
    get_data: Any
    create: Any
    new_handle: Any
    check: Any
    """Raises when a call has failed."""


@lru_cache(maxsize=None)
def _calls() -> _Calls:
    mx = _mxnet()
    library = mx.base._LIB
    has_long_sizes = mx.runtime.Features().is_enabled("INT64_TENSOR_SIZE")
    return _Calls(
        get_storage_type=library.MXNDArrayGetStorageType,
        get_shape=library.MXNDArrayGetShapeEx64 if has_long_sizes else library.MXNDArrayGetShapeEx,
        size_pointer=ctypes.POINTER(ctypes.c_int64 if has_long_sizes else ctypes.c_int),
        get_dtype=library.MXNDArrayGetDType,
        get_context=library.MXNDArrayGetContext,
        wait_to_read=library.MXNDArrayWaitToRead,
        get_data=library.MXNDArrayGetData,
        create=library.MXNDArrayCreateEx,
        new_handle=mx.base.NDArrayHandle,
        check=mx.base.check_call,
    )


def _device(array: Any) -> tuple[int, int]:
    """Return MXNet's number of an NDArray's device type, and the device's; as fast as :func:`_forms`."""
    calls = _calls()
    kind, number = ctypes.c_int(), ctypes.c_int()
    calls.check(calls.get_context(array.handle, ctypes.byref(kind), ctypes.byref(number)))
    return kind.value, number.value


def _forms(arrays: Sequence[Any]) -> list[_Form | None]:
    """Return the form of each NDArray; None of those that are sparse, or have no form yet."""
    calls = _calls()
    get_storage_type, get_shape, get_dtype = calls.get_storage_type, calls.get_shape, calls.get_dtype
    get_context, check = calls.get_context, calls.check
    number, dtype, kind, device = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    sizes = calls.size_pointer()
    to_number, to_sizes, to_dtype = ctypes.byref(number), ctypes.byref(sizes), ctypes.byref(dtype)
    to_kind, to_device = ctypes.byref(kind), ctypes.byref(device)
    forms: list[_Form | None] = []
    for array in arrays:
        handle = array.handle
        form = None
        check(get_storage_type(handle, to_number))
        if number.value == _DENSE:
            # Each returns 0 unless it failed.
            check(
                get_shape(handle, to_number, to_sizes)
                or get_dtype(handle, to_dtype)
                or get_context(handle, to_kind, to_device)
            )
            known = _DTYPES.get(dtype.value)
            if known is not None and number.value >= 0:
                form = _Form(tuple(sizes[: number.value]), known, (kind.value, device.value))
        forms.append(form)
    return forms


def _values_in_place(
    array: Any, shape: tuple[int, ...], dtype: DType, *, is_new: bool = False
) -> NDArray[Any]:
    """Return the values of an NDArray in host memory without a copy.

    The view must not outlive ``array``. Reading goes through ``MXNDArrayGetData``, which also brings a
    oneDNN-blocked array into plain order, as ``asnumpy`` does. Into an array that is new nothing is being
    written.
    """
    calls = _calls()
    pointer = ctypes.c_void_p()
    handle = array.handle
    calls.check(
        (0 if is_new else calls.wait_to_read(handle)) or calls.get_data(handle, ctypes.byref(pointer))
    )
    kind = dtype.numpy
    size = math.prod(shape) * kind.itemsize
    address = pointer.value
    if not address or not size:
        return np.zeros(shape, kind)
    return np.ndarray(shape, kind, _memory(address, size, _WRITABLE))


@lru_cache(maxsize=None)
def _sizes(axes: int) -> Any:
    """Return the class of so many sizes; made once, for making a class takes longer than all else."""
    return ctypes.c_uint * axes


def _empty(shape: tuple[int, ...], device: tuple[int, int], dtype: DType) -> Any:
    """Return a new NDArray whose values are not set yet."""
    mx = _mxnet()
    if not shape or math.prod(shape) > _MOST_ELEMENTS:  # MXNet's Python knows what to make of it
        form = MXNET_BFLOAT16 if dtype is DType.BFLOAT16 else dtype.numpy
        return mx.nd.empty(shape, ctx=mx.Context(mx.Context.devtype2str[device[0]], device[1]), dtype=form)
    calls = _calls()
    axes = len(shape)
    handle = calls.new_handle()
    calls.check(calls.create(_sizes(axes)(*shape), axes, *device, 0, dtype.value, ctypes.byref(handle)))
    return mx.nd.NDArray(handle)


def parameters_from_ndarrays(arrays: Mapping[str, Any]) -> dict[str, Parameter]:
    """Wrap NDArrays; of a sparse one the record that a parameter file would hold.

    Raises
    ------
    ParamsError
        When a value is not an NDArray.
    """
    kind = _mxnet().nd.NDArray
    for name, array in arrays.items():
        if not isinstance(array, kind):
            raise ParamsError(
                f"The parameter {name!r} must be an mx.nd.NDArray or a NumPy array, not "
                f"{type(array).__name__}."
            )
    wrapped: dict[str, Parameter] = {}
    for (name, array), form in zip(arrays.items(), _forms(list(arrays.values()))):
        if form is not None or array.stype == "default":
            wrapped[name] = NDArrayParameter(array, is_borrowed=True, form=form)
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
    device = (ctx.device_typeid, ctx.device_id)
    if ctx.device_type == "cpu" and values.size and values.ndim:
        # Many small arrays: written in place this takes a quarter of the time that mx.nd.array needs.
        array = _empty(values.shape, device, dtype)
        np.copyto(_values_in_place(array, values.shape, dtype, is_new=True), values)
        return array
    if dtype is not DType.BFLOAT16:
        return mx.nd.array(values, ctx=ctx, dtype=values.dtype)
    array = _empty(values.shape, device, dtype)
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
