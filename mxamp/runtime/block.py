"""The Gluon block that a converted model becomes."""

from __future__ import annotations

import warnings
from typing import Any, Sequence

from mxamp.dtypes import DType
from mxamp.errors import DataError, ExportError, TargetError
from mxamp.model import Model, PathLike
from mxamp.params.parameter import ArrayParameter
from mxamp.report.described import describe_model, model_html, model_text
from mxamp.report.model import Report
from mxamp.runtime.device import check_device_runs
from mxamp.runtime.executor import is_fusion_on
from mxamp.runtime.mxnet import import_mxnet
from mxamp.runtime.parameter import NDArrayParameter, ndarray_from_parameter
from mxamp.runtime.trace import TracedBlock
from mxamp.targets.kept_weights import layers_of_computed_weights

mx = import_mxnet()

from mxnet.gluon import SymbolBlock  # noqa: E402 - import_mxnet first: it explains a failure
from mxnet.gluon import block as gluon_block  # noqa: E402

_NEED_SHAPES = frozenset({"_npi_hstack", "_npi_dstack"})
"""Operators whose rule of shapes fails where a later input's is not known yet, as with static_shape."""

_ONEDNN = "MKLDNN"
"""What MXNet calls the backend that fuses on CPUs."""


class MixedPrecisionBlock(SymbolBlock):
    """A converted block: a ``SymbolBlock`` with the inputs and outputs of the block it was made from.

    It holds its own copy of the parameters, without gradients, since it is for inference. It runs by itself
    as fast as it can: on a CPU as ``hybridize(backend="MKLDNN", static_alloc=True, static_shape=True)`` makes
    it, but for ``static_shape`` where it has loops, whatever shapes come; ``hybridize`` changes that as for
    any block.

    Parameters
    ----------
    model
        The converted model.
    inputs
        Names of the inputs in the order in which the block takes them.
    in_format, out_format
        How inputs and outputs are nested, as ``mxnet.gluon.block._flatten`` describes it.
    ctx
        The devices that get a copy of the parameters.
    numpy
        Whether it works on ``mx.np`` arrays.

    Notes
    -----
    MXNet's ``SymbolBlock`` loses the casts when it is exported or pickled (its Symbol's ``tojson`` leaves
    them out), and exports no parameters at all before its first forward pass. This class keeps both.

    To fuse, Gluon hands MXNet the arrays, whose shapes are then taken in the order that arguments had before.
    Where a sum is fused with the second of its layers, ``relu(a(x)) + b(x)``, they come in another order
    behind, and it raises "Shape inconsistent" (src/c_api/c_api_symbolic.cc of MXNet 1.9.1, and execution).
    Here the graph is fused without arrays.
    """

    _cached_graph: Any  # SymbolBlock's
    _backend: Any

    def __init__(
        self,
        model: Model,
        inputs: Sequence[str],
        *,
        in_format: Any,
        out_format: Any,
        ctx: Sequence[Any],
        numpy: bool = False,
    ) -> None:
        variables = [mx.sym.var(name) for name in inputs]
        sym = model.sym
        if numpy:
            variables, sym = [variable.as_np_ndarray() for variable in variables], sym.as_np_ndarray()
        with warnings.catch_warnings():
            # SymbolBlock infers dtypes from its inputs and warns that these have none; those of the stored
            # parameters count.
            warnings.filterwarnings("ignore", message="Cannot decide type")
            super().__init__(sym, variables)
        self._in_format, self._out_format = in_format, out_format
        self._graph = model.graph
        self._report = model.report
        self._numpy = numpy
        self._arg_names = tuple(name for name in model.arg_params if name in self.params)
        self._aux_names = tuple(name for name in model.aux_params if name in self.params)
        for name in (*self._arg_names, *self._aux_names):
            held = model.arg_params.get(name) or model.aux_params[name]
            parameter = self.params[name]
            parameter.grad_req = "null"
            # _load_init copies, so nothing is shared with the block that was converted.
            parameter._load_init(
                ndarray_from_parameter(held), list(ctx), cast_dtype=True, dtype_source="saved"
            )
        # As MXNet fuses it, in place of the graph above, once the block has run.
        self._unfused_graph = self._cached_graph
        # oneDNN fuses where one CPU runs it; a graph of NumPy's operators would come back as another kind.
        fuses = not numpy and len(ctx) == 1 and ctx[0].device_type == "cpu" and is_fusion_on()
        # A fused layer keeps the weights of the first forward pass.
        held_names = {*model.arg_params, *model.aux_params}
        fuses = fuses and not layers_of_computed_weights(model.graph, held_names)
        # oneDNN has no float64, and MXNet raises where it fused a layer of that.
        values = (*model.arg_params.values(), *model.aux_params.values())
        fuses = fuses and not any(value.dtype is DType.FLOAT64 for value in values)
        # With static_shape loops that read each other's results compute other numbers in half of all calls,
        # with static_alloc alone they never did; and some operators fail.
        is_static = not any(node.subgraphs or node.op in _NEED_SHAPES for node in model.graph.nodes)
        self.hybridize(backend=_ONEDNN if fuses else None, static_alloc=True, static_shape=is_static)

    def _build_cache(self, *args: Any) -> None:
        """Compile the graph, fused where that is asked for."""
        backend = self._backend
        if backend != _ONEDNN or self._numpy:
            super()._build_cache(*args)
            return
        variables, sym = self._unfused_graph
        self._cached_graph = variables, sym.get_backend_symbol(_ONEDNN)
        self._backend = None
        try:
            super()._build_cache(*args)
        finally:
            self._backend = backend

    def _clear_cached_op(self) -> None:
        """Forget how the graph was compiled, and what was fused in it."""
        super()._clear_cached_op()
        unfused = getattr(self, "_unfused_graph", None)
        if unfused is not None:
            self._cached_graph = unfused

    @classmethod
    def from_traced(cls, model: Model, traced: TracedBlock, ctx: Sequence[Any]) -> MixedPrecisionBlock:
        """Return the block for a traced block that was converted to ``model``."""
        return cls(
            model,
            traced.inputs,
            in_format=traced.in_format,
            out_format=traced.out_format,
            ctx=ctx,
            numpy=traced.numpy,
        )

    @property
    def input_names(self) -> Sequence[str]:
        """The names of the inputs in the order in which the block takes them."""
        return [variable.name for variable in self._unfused_graph[0]]

    @property
    def report(self) -> Report | None:
        """What the conversion did to each node, and why."""
        return self._report

    @property
    def model(self) -> Model:
        """The model with the block's present parameters; ``model.save`` writes it, casts included."""
        return Model(
            self._graph,
            {name: NDArrayParameter(self.params[name].list_data()[0]) for name in self._arg_names},
            {name: NDArrayParameter(self.params[name].list_data()[0]) for name in self._aux_names},
            self._report,
        )

    def forward(self, x: Any, *args: Any) -> Any:
        """Run the model on arrays, or compose it with Symbols; nested as in the original block.

        Raises
        ------
        DeviceError
            For a float16 model on a CPU.
        """
        has_symbol, _, _, ctx = gluon_block._gather_type_ctx_info([x, *args])
        if not has_symbol and ctx is not None:
            if self._report is not None and self._report.low_nodes:
                check_device_runs(ctx, DType.parse(self._report.target_dtype))
            with ctx:
                return self._call_cached_op(x, *args)
        # The first input may be a list, and inputs may be None, which SymbolBlock does not foresee.
        given, nesting = gluon_block._flatten([x, *args], "input")
        if nesting != self._in_format:
            raise DataError(
                f"The inputs are nested as {nesting}, but the block takes {self._in_format} (0 is an array, "
                "-1 None, a list a list). Give them as the block that was converted takes them."
            )
        variables, sym = self._unfused_graph
        composed = sym.__copy__()
        given = [symbol for symbol in given if symbol is not None]
        used = set(sym.list_inputs())
        composed._compose(
            **{variable.name: symbol for variable, symbol in zip(variables, given) if variable.name in used}
        )
        return gluon_block._regroup(list(composed), self._out_format)

    def __repr__(self) -> str:
        return model_text("MixedPrecisionBlock", self._described())

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return model_html("MixedPrecisionBlock", self._described())

    def _described(self) -> tuple[tuple[str, str], ...]:
        model = self.model
        return describe_model(model.graph, {**model.arg_params, **model.aux_params}, model.report)

    def export(self, path: PathLike, epoch: int = 0, remove_amp_cast: bool = False) -> None:
        """Write ``path-symbol.json`` and ``path-EPOCH.params``, casts included; stock MXNet loads them.

        Parameters
        ----------
        path
            Path and first part of the file names.
        epoch
            The number in the parameter file's name.
        remove_amp_cast
            Must be False, unlike MXNet's default: without the casts the stored 16-bit parameters meet FP32
            data, and the model does not run.

        Raises
        ------
        ExportError
            When the files cannot be written, or ``remove_amp_cast`` is true.
        """
        if remove_amp_cast:
            raise ExportError(
                "A mixed-precision block cannot be exported without its casts: its 16-bit parameters would "
                "meet FP32 data. Leave remove_amp_cast at False; for an FP32 model export the block that was "
                "converted."
            )
        self.model.save(path, epoch)

    def cast(self, dtype: Any) -> None:
        """Refuse: a mixed-precision block holds its parameters in two dtypes on purpose.

        Raises
        ------
        TargetError
            Always.
        """
        raise TargetError(
            f"A mixed-precision block cannot be cast to {dtype}: its casts and the dtypes of its parameters "
            "belong together. Convert the FP32 block again, with the target_dtype or io_dtype you need."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        model = self.model
        plain = Model(
            model.graph,
            {name: ArrayParameter(value.numpy()) for name, value in model.arg_params.items()},
            {name: ArrayParameter(value.numpy()) for name, value in model.aux_params.items()},
            model.report,
        )
        inputs = [variable.name for variable in self._unfused_graph[0]]
        ctx = next((parameter.list_ctx() for parameter in self.params.values()), [mx.cpu()])
        return _restore, (
            plain,
            inputs,
            self._in_format,
            self._out_format,
            ctx,
            self._numpy,
            self._flags,
            self._backend,
        )


def _restore(
    model: Model,
    inputs: Sequence[str],
    in_format: Any,
    out_format: Any,
    ctx: Sequence[Any],
    numpy: bool,
    flags: list[Any],
    backend: str | None,
) -> MixedPrecisionBlock:
    block = MixedPrecisionBlock(
        model, inputs, in_format=in_format, out_format=out_format, ctx=ctx, numpy=numpy
    )
    block._flags, block._backend = flags, backend
    return block
