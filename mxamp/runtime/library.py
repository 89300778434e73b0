"""mxamp's own MXNet operators: loading their library, and calling them.

The library adds three operators to MXNet, ``_mxamp_round``, ``_mxamp_round_both_ways`` (the same as a node of
an emulated graph) and ``_mxamp_observe``
(``mxamp/ops/src/operators.cc``). It is loaded on first use, once a process, and built before that where it
is not there yet. A graph that holds one of the operators runs only where the library is loaded; elsewhere
MXNet says "Operator _mxamp_round is not registered".

:func:`round_values` and :func:`observe_values` take arrays and symbols alike, so they fit into
``hybrid_forward``. In graphs that other code writes, three things are to be known of library operators in
MXNet 1.9.1:

- MXNet does not tell them to add to a gradient. Where it would (a variable bound with ``grad_req="add"``;
  an entry with eight consumers or more), the gradient would be written instead, without an error. So an
  ``identity`` comes before each of them here: gradients are added in its backward. In executors and
  hybridized blocks it works in place.
- Shapes must be known from their inputs on: inferring the shape of a parameter through one of them fails,
  and all that MXNet says is "std::bad_alloc". ``_mxamp_round_both_ways`` is free of that: MXNet infers shapes
  through its subgraph, which a Symbol can be given in its JSON alone.
- They get no GPU memory unless compiled with CUDA, which these are not: they run on the CPU.
"""

from __future__ import annotations

import itertools
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from mxamp.dtypes import DType
from mxamp.errors import DeviceError, LibraryError, OperatorError
from mxamp.ops.build import build
from mxamp.ops.formats import Overflow, as_format
from mxamp.ops.libraries import find_built, operators_library
from mxamp.ops.rounding import OBSERVE, ROUND
from mxamp.runtime.mxnet import import_mxnet

_REMEDY = "Remove that file and build the library for this MXNet: python -m mxamp.ops.build operators"

_OPERATOR_MODULES = ("mxnet.ndarray", "mxnet.symbol", "mxnet.contrib.ndarray", "mxnet.contrib.symbol")
"""What the names of the modules that hold operators' functions begin with."""

_lock = threading.Lock()
_identities = itertools.count()


def load_operators() -> None:
    """Load the operator library into MXNet, and build it first where that is needed. Again, it does nothing.

    Raises
    ------
    LibraryError
        When the library cannot be built (there is no compiler ...), or MXNet does not load it.
    MxnetMissingError
        When MXNet cannot be imported.
    """
    mx = import_mxnet()
    if is_loaded(mx):
        return
    with _lock:
        if not is_loaded(mx):
            library = operators_library(Path(mx.__file__).resolve().parent)
            path = find_built(library)
            load_library(mx, path if path is not None else build(library))


def round_values(
    data: Any,
    format: DType | str,
    overflow: Overflow | str = Overflow.INF,
    *,
    name: str | None = None,
) -> Any:
    """Return float32 values rounded to the values of a format, with a straight-through gradient.

    Parameters
    ----------
    data
        An ``mx.nd.NDArray`` of float32 on the CPU, or an ``mx.sym.Symbol``.
    format
        What to round to; see :class:`mxamp.ops.formats.Format`.
    overflow
        What becomes of magnitudes that round beyond the largest finite value.
    name
        The name of the node, for a Symbol.

    Returns
    -------
    mxnet.ndarray.NDArray or mxnet.symbol.Symbol
        Of the kind and shape of ``data``; the values of :func:`mxamp.ops.reference.round_to`.

    Raises
    ------
    OperatorError
        When there is no such format, or ``data`` is not what it should be. Of a Symbol only MXNet can tell,
        when it is bound, with an ``MXNetError``.
    DeviceError
        When an array is on a GPU.
    LibraryError
        When the library cannot be built or loaded.
    """
    attributes = {"format": as_format(format).label, "overflow": Overflow.parse(overflow).label}
    return _call(ROUND, data, attributes, name)


def observe_values(data: Any, *, name: str | None = None) -> tuple[Any, Any]:
    """Return data as it is, and counts and magnitudes of it.

    Parameters
    ----------
    data
        An ``mx.nd.NDArray`` of float32 on the CPU, or an ``mx.sym.Symbol``.
    name
        The name of the node, for a Symbol.

    Returns
    -------
    tuple
        The data, and 264 float64 numbers that :meth:`mxamp.ops.observation.Observation.from_numbers` reads,
        each of the kind of ``data``.

    Raises
    ------
    OperatorError, DeviceError, LibraryError
        As :func:`round_values`.
    """
    outputs = _call(OBSERVE, data, {}, name)
    return outputs[0], outputs[1]


def _call(operator: str, data: Any, attributes: dict[str, str], name: str | None) -> Any:
    mx = import_mxnet()
    if isinstance(data, mx.sym.Symbol):
        load_operators()
        # MXNet would merge equal identities of one entry, and the operators after them would share one again.
        source = mx.sym.identity(data, attr={"__mxamp_identity__": str(next(_identities))})
        return getattr(mx.sym._internal, operator)(source, name=name, **attributes)
    _check_array(mx, operator, data)
    load_operators()
    if mx.autograd.is_recording():
        data = mx.nd.identity(data)
    return getattr(mx.nd._internal, operator)(data, **attributes)


def _check_array(mx: Any, operator: str, data: Any) -> None:
    if not isinstance(data, mx.nd.NDArray) or isinstance(data, mx.np.ndarray):
        raise OperatorError(
            f"{operator} takes an mx.nd.NDArray or an mx.sym.Symbol, not {type(data).__module__}."
            f"{type(data).__name__}. For NumPy arrays there is mxamp.ops.reference; an array of mx.np has "
            "as_nd_ndarray()."
        )
    if data.stype != "default":
        raise OperatorError(
            f"{operator} takes dense arrays only, and got one with {data.stype} storage. Make it dense "
            "first: data.tostype('default')."
        )
    if np.dtype(data.dtype) != np.float32:
        raise OperatorError(
            f"{operator} takes float32 only, and got an array of {_dtype_name(data.dtype)}. Cast it first: "
            "data.astype('float32')."
        )
    if data.context.device_type == "gpu":
        raise DeviceError(
            f"{operator} runs on the CPU only, and got an array on {data.context}. Copy it first: "
            "data.as_in_context(mx.cpu())."
        )


def _dtype_name(dtype: Any) -> str:
    # MXNet's bfloat16 is a structured dtype with one field.
    names = np.dtype(dtype).names
    return names[0] if names else np.dtype(dtype).name


def is_loaded(mx: Any) -> bool:
    """Return whether this process has the operators."""
    # The last operator of the library, in the last module that gets one when a library is loaded.
    return hasattr(mx.sym._internal, OBSERVE)


def load_library(mx: Any, path: Path) -> None:
    """Load a file with the operators, and leave MXNet's modules as they were otherwise."""
    modules = [module for name, module in sys.modules.items() if name.startswith(_OPERATOR_MODULES)]
    before = [dict(vars(module)) for module in modules]
    try:
        mx.library.load(str(path), verbose=False)
    except mx.base.MXNetError as error:
        raise LibraryError(
            f"MXNet {mx.__version__} does not load the operator library {path}: {_reason(error)} {_REMEDY}"
        ) from error
    for module, attributes in zip(modules, before):
        _restore(module, attributes)
    if not is_loaded(mx):
        raise LibraryError(f"{path} is a library for MXNet, but not mxamp's: it has no {OBSERVE}. {_REMEDY}")


def _restore(module: ModuleType, attributes: dict[str, Any]) -> None:
    # mx.library.load (1.9.1) makes new functions for all operators, lists their names once more, and copies
    # everything in mx.nd.op to mx.nd, its __name__, __file__ and __all__ too. But GluonCV, for one, asks
    # whether it is given the very mx.sym.contrib.SyncBatchNorm that it imported. What is new stays.
    for name, value in attributes.items():
        if getattr(module, name, None) is not value:
            setattr(module, name, value)
    listed = getattr(module, "__all__", None)
    if isinstance(listed, list):
        listed[:] = dict.fromkeys(listed)


def _reason(error: Exception) -> str:
    """Return what an MXNetError says, without its C++ stack, as one sentence."""
    lines = (line.strip() for line in str(error).splitlines())
    text = " ".join(line for line in lines if line and not line.startswith(("Traceback", "File ")))
    for noise in ("MXNetError: ", "Library failed to initialize Extension Traceback: [0] "):
        text = text.replace(noise, "")
    return text if text.endswith(".") else f"{text}."
