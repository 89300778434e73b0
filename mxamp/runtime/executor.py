"""Run models: outputs as deployed, and intermediate entries as the graph defines them.

oneDNN fusion is decided when a graph is bound. It is what a deployed model runs with, and MXNet 1.9.1 gets
it wrong where an intermediate tensor is also an output: with a Convolution's output grouped beside its
Activation's, the activation is lost. So intermediate entries, and the FP32 reference, are always read with
fusion off.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import threading
from typing import Any, Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.errors import DataError, DeviceError, OperatorError, ParamsError
from mxamp.graph.graph import Entry, Graph
from mxamp.graph.infer import infer_dtypes, variable_dtypes
from mxamp.model import Model
from mxamp.model.one_dtype import model_in_one_dtype
from mxamp.ops.casts import CAST_OPERATORS
from mxamp.ops.rounding import is_library_operator
from mxamp.params.cast import cast_array
from mxamp.passes.edit import NodeShapes
from mxamp.runtime.batch_norm_cache import keep_norms_apart
from mxamp.runtime.device import check_device_runs, parse_context
from mxamp.runtime.mxnet import import_mxnet
from mxamp.runtime.parameter import MXNET_BFLOAT16, ndarray_from_numpy
from mxamp.runtime.repeats import check_repeats
from mxamp.runtime.shapes import infer_shapes
from mxamp.runtime.symbol import symbol_from_graph

_UNFUSED = {
    # "NONE" is documented, but prints a line on stderr at every bind. The backend "default" fuses what
    # MXSetSubgraphPropertyOpNames was told, which is nothing, so the graph stays as it is, silently.
    "MXNET_SUBGRAPH_BACKEND": "default",
    # On GPUs: pointwise operators compiled into one kernel.
    "MXNET_USE_FUSION": "0",
}

_EXECUTORS_KEPT = 2
"""One for full batches and one for the last, smaller one; more would only hold memory."""

_BINDING = threading.Lock()
"""The environment belongs to the whole process, so one bind at a time changes it."""

BatchProgress = Callable[[int, int], None]
"""Called with the samples done and their total."""


def is_fusion_on() -> bool:
    """Whether this process binds models with oneDNN fusion, as the environment has it."""
    return os.environ.get("MXNET_SUBGRAPH_BACKEND") != "NONE"


def batches(data: Mapping[str, NDArray[Any]], batch_size: int | None) -> Iterator[dict[str, NDArray[Any]]]:
    """Cut arrays along their first axes; the last batch may be smaller.

    Parameters
    ----------
    data
        Input name -> values.
    batch_size
        Samples a batch; None for everything at once, as for a model that has no inputs.
    """
    if batch_size is None or not data:
        yield dict(data)
        return
    total = min(len(values) for values in data.values())
    for start in range(0, total, batch_size):
        yield {name: values[start : start + batch_size] for name, values in data.items()}


class BoundModel:
    """A model bound on a device, ready to run batches.

    Parameters
    ----------
    model
        The model; its parameters are bound in their own dtypes and never changed.
    ctx
        The device: ``"cpu"`` (the default), ``"gpu(0)"``, or an ``mx.Context``.
    fusion
        Whether operators may be fused, as when deployed.
    entries
        What to compute; by default the graph's outputs.
    label
        What messages call the model.

    Raises
    ------
    DeviceError
        When the device is not here, or cannot run the model's dtype.
    MxnetMissingError
        When MXNet cannot be imported.
    """

    def __init__(
        self,
        model: Model,
        *,
        ctx: Any = None,
        fusion: bool = True,
        entries: Sequence[Entry] | None = None,
        label: str = "the model",
    ) -> None:
        self.ctx = parse_context("cpu" if ctx is None else ctx)
        self.fusion = fusion
        self.label = label
        self._current: Any = None
        self._is_new = False
        model = model_in_one_dtype(model)
        stored = {**model.arg_params, **model.aux_params}
        self._stored = {name: stored[name] for name in model.graph.variables if name in stored}
        variables = variable_dtypes(model.graph, {name: value.dtype for name, value in self._stored.items()})
        check_device(model.graph, variables, self.ctx, label)
        self._graph = model.graph
        if entries is not None:
            self._graph = dataclasses.replace(model.graph, heads=tuple(entries), head_versions=())
        self.symbol = model.sym if entries is None else symbol_from_graph(self._graph)
        self._arguments = self.symbol.list_arguments()
        self._auxiliary = self.symbol.list_auxiliary_states()
        arrays = {**model.args, **model.auxs}
        # Copies: oneDNN reorders the weights it is given in place, and operators such as amp_cast refuse a
        # grouped convolution's weight in that order. The caller's arrays stay as they were.
        self._arrays = {
            name: arrays[name].copyto(self.ctx)
            for name in [*self._arguments, *self._auxiliary]
            if name in arrays
        }
        missing = [name for name in self._auxiliary if name not in arrays]
        if missing:
            raise ParamsError(
                f"The auxiliary state {missing[0]!r} of {label} is missing. Do symbol and parameters belong "
                "to the same model?"
            )
        self._input_dtypes = {name: variables[name] for name in self._arguments if name not in arrays}
        self._executors: dict[tuple[tuple[int, ...], ...], Any] = {}

    # ------------------------------------------------------------------ shapes

    def output_shapes(self, data: Mapping[str, NDArray[Any]]) -> list[tuple[int, ...] | None]:
        """Return the shape of everything that is computed; None where that shows only when it runs.

        Raises
        ------
        DataError
            When the inputs' shapes do not fit the model.
        """
        shapes = self._shapes(data)
        return [shapes[entry.node][entry.output] for entry in self._graph.heads]

    def _shapes(self, data: Mapping[str, NDArray[Any]]) -> Sequence[NodeShapes]:
        self._check_names(data)
        given = {name: data[name].shape for name in self._input_dtypes}
        try:
            return infer_shapes(self._graph, given, self._stored)
        except DataError as error:
            raise DataError(f"The data does not fit {self.label}. {error}") from error

    def _check_names(self, data: Mapping[str, NDArray[Any]]) -> None:
        for name in self._input_dtypes:
            if name not in data:
                raise DataError(f"The input {name!r} of {self.label} is missing.")

    # ------------------------------------------------------------------ running

    def load(self, data: Mapping[str, NDArray[Any]]) -> None:
        """Bind for these inputs' shapes, unless that was done before, and copy the values in.

        Raises
        ------
        DataError
            When an input is missing, or the shapes do not fit.
        OperatorError
            When MXNet cannot bind the graph.
        """
        self._check_names(data)
        key = tuple(data[name].shape for name in self._input_dtypes)
        if key not in self._executors:
            shapes = self._shapes(data)  # says where shapes clash; MXNet's bind prints a C++ stack
            if len(self._executors) == _EXECUTORS_KEPT:
                self._executors.clear()
            self._executors[key] = self._bind(data, shapes)
            self._is_new = True
        self._current = self._executors[key]
        for name, dtype in self._input_dtypes.items():
            values = np.ascontiguousarray(_cast_input(data[name], dtype))
            if dtype is DType.BFLOAT16:
                values = values.view(np.uint16).view(MXNET_BFLOAT16)
            self._current.arg_dict[name]._sync_copyfrom(values)

    @property
    def executor(self) -> Any:
        """MXNet's executor for the inputs that :meth:`load` copied in last."""
        return self._current

    def forward(self) -> list[Any]:
        """Run once on what :meth:`load` copied in, wait, and return the outputs as NDArrays on the device.

        Raises
        ------
        OperatorError
            When an operator fails.
        """
        mx = import_mxnet()
        try:
            outputs: list[Any] = self._current.forward(is_train=False)
            for output in outputs:
                output.wait_to_read()
        except mx.base.MXNetError as error:
            raise self._failure("cannot run", error) from error
        return outputs

    def run(self, data: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Run one batch.

        Parameters
        ----------
        data
            Input name -> values; cast to the dtype the model takes them in.

        Returns
        -------
        list of numpy.ndarray
            16-bit floating-point results as float32, everything else as it is.

        Raises
        ------
        OperatorError
            When an operator fails, or a second pass does, or gives other outputs for the same data
            (:func:`~mxamp.runtime.repeats.check_repeats`, the first time for these shapes).
        """
        outputs = self.once(data)
        if self._is_new:
            self._is_new = False
            check_repeats(self, self._graph, data, outputs)
        return outputs

    def once(self, data: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Run one batch, whatever a second pass would do."""
        self.load(data)
        return [as_numpy(output) for output in self.forward()]

    def _bind(self, data: Mapping[str, NDArray[Any]], shapes: Sequence[NodeShapes]) -> Any:
        mx = import_mxnet()
        apart = keep_norms_apart(self._graph, shapes)
        symbol = self.symbol if apart is self._graph else symbol_from_graph(apart)
        arguments = dict(self._arrays)
        for name, dtype in self._input_dtypes.items():
            arguments[name] = ndarray_from_numpy(np.zeros(data[name].shape, dtype.numpy), self.ctx)
        try:
            with bind_environment(self.fusion):
                return symbol.bind(
                    self.ctx,
                    args={name: arguments[name] for name in self._arguments},
                    grad_req="null",
                    aux_states={name: arguments[name] for name in self._auxiliary},
                )
        except mx.base.MXNetError as error:
            raise self._failure("cannot bind", error) from error

    def _failure(self, action: str, error: Exception) -> OperatorError:
        fused = "on" if self.fusion and is_fusion_on() else "off"
        return OperatorError(f"MXNet {action} {self.label} on {self.ctx} (fusion {fused}): {_reason(error)}")


def run_outputs(
    model: Model,
    data: Mapping[str, NDArray[Any]],
    *,
    ctx: Any = None,
    fusion: bool = True,
    batch_size: int | None = None,
    progress: BatchProgress | None = None,
) -> list[NDArray[Any]]:
    """Run a model and return its outputs, in order.

    Parameters
    ----------
    model
        The model.
    data
        Input name -> values, samples along the first axis.
    ctx
        See :class:`BoundModel`.
    fusion
        Whether operators may be fused, as when deployed.
    batch_size
        Samples a forward pass, outputs then having theirs along the first axis too; None for all at once.
    progress
        Called with the samples done and their total.

    Returns
    -------
    list of numpy.ndarray
        float32 for every floating-point output of 32 bits or fewer.

    Raises
    ------
    DataError, DeviceError, OperatorError
        See :class:`BoundModel`.
    """
    bound = BoundModel(model, ctx=ctx, fusion=fusion)
    total = min((len(values) for values in data.values()), default=0)
    gathered: list[list[NDArray[Any]]] = []
    done = 0
    for batch in batches(data, batch_size):
        gathered.append(bound.run(batch))
        done += min((len(values) for values in batch.values()), default=0)
        if progress is not None:
            progress(done, total)
    if len(gathered) == 1:
        return gathered[0]
    return [np.concatenate(parts) for parts in zip(*gathered)]


@contextlib.contextmanager
def bind_environment(fusion: bool, *, bundles: bool = True) -> Iterator[None]:
    """Set what MXNet reads from the environment while it binds, and put everything back.

    Executors run several nodes as one; without ``bundles`` each by itself, so that a profiler sees it.
    """
    wanted = {} if fusion else dict(_UNFUSED)
    if not bundles:
        wanted["MXNET_EXEC_BULK_EXEC_INFERENCE"] = "0"
    if "MXNET_SUBGRAPH_VERBOSE" not in os.environ:
        # Otherwise the first bind prints "Subgraph backend MKLDNN is activated." on stderr.
        wanted["MXNET_SUBGRAPH_VERBOSE"] = "0"
    with _BINDING:
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def check_device(graph: Graph, variables: Mapping[str, DType], ctx: Any, label: str) -> None:
    """Refuse what MXNet would fail on halfway, with the way out."""
    dtypes = infer_dtypes(graph, variables)
    for node in graph.nodes:
        if node.is_variable or node.op in CAST_OPERATORS:
            continue
        if is_library_operator(node.op) and ctx.device_type == "gpu":
            raise DeviceError(
                f"{label[0].upper()}{label[1:]} holds {node}, an operator of mxamp's library, which runs on "
                f"CPUs alone, and cannot run on {ctx}. Use the CPU: --ctx cpu, or ctx='cpu' in Python."
            )
        for entry in node.inputs:
            dtype = dtypes[entry.node][entry.output]
            if dtype is DType.FLOAT16 and ctx.device_type != "gpu":
                raise DeviceError(
                    f"{label[0].upper()}{label[1:]} computes in float16 ({node} is the first to), and MXNet "
                    f"1.9.1 has no FP16 convolution or matrix product for {ctx}. Run it on a GPU: --ctx "
                    "'gpu(0)', or ctx='gpu(0)' in Python. Or convert to bfloat16, which CPUs run: --dtype "
                    "bfloat16. On a CPU float16 can only be emulated."
                )
            if dtype is DType.BFLOAT16:
                check_device_runs(ctx, dtype)


def _cast_input(values: NDArray[Any], dtype: DType) -> NDArray[Any]:
    if DType.from_numpy(values.dtype) is dtype:
        return values
    if dtype.is_float and values.dtype.kind == "f":
        return cast_array(values, dtype)
    if dtype.is_low_precision:  # integers: exact in float32 as far as low precision can tell
        return cast_array(values.astype(np.float32), dtype)
    return values.astype(dtype.numpy)


def as_numpy(array: Any) -> NDArray[Any]:
    """Return the values of an NDArray, 16-bit floating-point ones as float32."""
    values: NDArray[Any] = array.asnumpy()
    dtype = DType.from_numpy(values.dtype)
    if dtype is DType.BFLOAT16:
        values = values.view(DType.BFLOAT16.numpy)
    return values.astype(np.float32) if dtype.is_low_precision else values


def _reason(error: Exception) -> str:
    """Return what an MXNetError says, without its C++ stack and source positions."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if line.startswith("MXNetError:")] or lines[-1:]
    text = said[0] if said else type(error).__name__
    text = re.sub(r"^MXNetError:\s*", "", text)
    text = re.sub(r"\[\d\d:\d\d:\d\d\] \S+:\d+: ", "", text)
    return text if text.endswith((".", "!")) else f"{text}."
