"""A converted model: its graph, its parameters and the report, kept whole."""

from __future__ import annotations

import contextlib
import json
import logging
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Callable, Iterator, Mapping

from mxamp.errors import ExportError
from mxamp.files import atomic_write
from mxamp.graph.graph import Graph
from mxamp.graph.shapes import InputShapes, named_input_shapes
from mxamp.graph.symbol_writer import write_symbol
from mxamp.messages.warn import warn_user
from mxamp.model.accepted import GivenSymbol, Params
from mxamp.model.given import WORTH_A_THREAD, LoadedArrays, LoadedParams, parameters_of, reading_graph
from mxamp.model.paths import PathLike, model_paths, other_epochs
from mxamp.model.provenance import History, PolicyRecord, Provenance, provenance_path, read_provenance
from mxamp.model.read_back import read_back
from mxamp.model.source_files import hash_file
from mxamp.onnx import OnnxExport, export_graph
from mxamp.onnx.runtime_gaps import RuntimeGaps
from mxamp.params.parameter import Parameter
from mxamp.params.stream import Progress, stream_params
from mxamp.policy.policy import Policy
from mxamp.report.described import describe_model, model_html, model_text
from mxamp.report.model import Report
from mxamp.targets import Target
from mxamp.version import __version__

if TYPE_CHECKING:
    from mxamp.openvino.export import OpenvinoExport

_LOG = logging.getLogger("mxamp")


class _BuiltWhenRead:
    """A field of a dataclass that may be given as a function, which is then called when it is first read."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, model: Any, owner: type | None = None) -> Report | None:
        if model is None:
            return None  # the default of the field
        found = vars(model)[self._name]
        if callable(found):
            found = vars(model)[self._name] = found()
        built: Report | None = found
        return built

    def __set__(self, model: Any, given: Report | Callable[[], Report] | None) -> None:
        vars(model)[self._name] = given


@dataclass(frozen=True, repr=False)
class Model:
    """A model as ``convert_model`` returns it and ``load`` reads it.

    It unpacks as MXNet's triple, ``sym, args, auxs = model``, and holds everything without MXNet.

    Attributes
    ----------
    graph
        The computation graph, casts included.
    arg_params, aux_params
        Parameters and auxiliary states by name.
    report
        What the conversion did, built when it is first read; for a model that was loaded, what was recorded
        when these very files were written. None where nothing is known.
    """

    graph: Graph
    arg_params: Mapping[str, Parameter]
    aux_params: Mapping[str, Parameter]
    report: _BuiltWhenRead = _BuiltWhenRead()
    _mxnet: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    _history: History = field(default=History(), repr=False, compare=False)

    @classmethod
    def of(cls, sym: GivenSymbol, args: Params, auxs: Params) -> Model:
        """Wrap a symbol and its parameters; nothing is copied and nothing of the caller's is changed.

        Parameters
        ----------
        sym
            ``mx.sym.Symbol`` or :class:`mxamp.graph.Graph`.
        args, auxs
            Parameters and auxiliary states by name: NDArrays, NumPy arrays or parameters of another model.

        Raises
        ------
        GraphError
            When ``sym`` is neither.
        ParamsError
            When a value is no array, or is sparse.
        """
        arrays = sum(len(given) for given in (args, auxs) if isinstance(given, Mapping))
        graph = reading_graph(sym, beside=arrays >= WORTH_A_THREAD)
        arg_params, aux_params = parameters_of(args, "args"), parameters_of(auxs, "auxs")
        model = cls(graph(), arg_params, aux_params)
        if isinstance(args, LoadedParams) and isinstance(auxs, LoadedParams):
            source = args.source if args.graph is auxs.graph is sym else None
            object.__setattr__(model, "_history", History(source))
        elif isinstance(args, LoadedArrays):
            object.__setattr__(model, "_history", History(arrays_from=args.source))
        return model

    def _made_from(self, history: History, policy: Policy) -> Model:
        """Note, on a model that was just made, what it was converted from and by which policy."""
        object.__setattr__(self, "_history", replace(history, policy=PolicyRecord.of(policy)))
        return self

    def _with_report(self, change: Callable[[Report], Report]) -> Model:
        """Return the same model with another report, which is made when it is read."""

        def report() -> Report | None:
            return None if self.report is None else change(self.report)

        built: Any = report
        return Model(self.graph, self.arg_params, self.aux_params, built, self._mxnet, self._history)

    @property
    def parameter_bytes(self) -> int:
        """The bytes of all parameters and auxiliary states."""
        return sum(value.nbytes for value in (*self.arg_params.values(), *self.aux_params.values()))

    @property
    def made_report(self) -> Report | None:
        """What the conversion that made this model did; None for a model that was only loaded."""
        return None if isinstance(self.arg_params, LoadedParams) else self.report

    def __repr__(self) -> str:
        return model_text("mxamp.Model", self._described())

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return model_html("mxamp.Model", self._described())

    def _described(self) -> tuple[tuple[str, str], ...]:
        return describe_model(self.graph, {**self.arg_params, **self.aux_params}, self.report)

    # ------------------------------------------------------------------ MXNet's view

    @property
    def sym(self) -> Any:
        """The ``mx.sym.Symbol``. Its ``save`` and ``tojson`` drop the casts and warn; use :meth:`save`."""
        if "sym" not in self._mxnet:
            from mxamp.runtime.symbol import symbol_from_graph

            self._mxnet["sym"] = symbol_from_graph(self.graph)
        return self._mxnet["sym"]

    @property
    def args(self) -> dict[str, Any]:
        """The parameters as a dict of ``mx.nd.NDArray``."""
        return self._arrays("args", self.arg_params)

    @property
    def auxs(self) -> dict[str, Any]:
        """The auxiliary states as a dict of ``mx.nd.NDArray``."""
        return self._arrays("auxs", self.aux_params)

    def _arrays(self, key: str, params: Mapping[str, Parameter]) -> dict[str, Any]:
        if key not in self._mxnet:
            from mxamp.runtime.parameter import ndarray_from_parameter

            arrays = {name: ndarray_from_parameter(value) for name, value in params.items()}
            files = self._history.files
            self._mxnet[key] = arrays if files is None else LoadedArrays(arrays, files)
        found: dict[str, Any] = self._mxnet[key]
        return found

    def __iter__(self) -> Iterator[Any]:
        """Unpack as ``sym, args, auxs``, like the result of ``mx.contrib.amp.convert_model``."""
        return iter((self.sym, self.args, self.auxs))

    def __len__(self) -> int:
        return 3

    def __getitem__(self, item: int) -> Any:
        return (self.sym, self.args, self.auxs)[item]

    def __getstate__(self) -> dict[str, Any]:
        # A pickled mx.sym.Symbol loses its casts: it is made anew from the graph.
        # Files that are open here are not there.
        return {
            **self.__dict__,
            "report": self.report,
            "_mxnet": {},
            "_history": History(None, self._history.policy),
        }

    # ------------------------------------------------------------------ files

    def symbol_json(self) -> str:
        """Return the text of ``symbol.json``, casts included."""
        return write_symbol(self.graph)

    def save(
        self,
        prefix: PathLike,
        epoch: int = 0,
        *,
        progress: Progress | None = None,
        provenance: bool = True,
    ) -> None:
        """Write ``prefix-symbol.json`` and ``prefix-EPOCH.params``; stock MXNet loads them.

        The files are written beside their destination, synced, read back, and put in place by one rename:
        whenever that is interrupted, the old pair is there or the new one.

        Parameters
        ----------
        prefix
            Path and first part of the file names.
        epoch
            The number in the parameter file's name, 0 to 9999.
        progress
            ``progress(done, total)`` is called now and then while parameters of a file are read, cast
            and written, with the bytes written so far and in all.
        provenance
            Whether to write ``prefix-mxamp.json`` too (``prefix-mxamp-EPOCH.json`` for another epoch than 0):
            what the pair was made from and why it is as it is, for :func:`mxamp.verify` and ``mxamp
            inspect``. With False one that is there goes, for it would describe other files.

        Raises
        ------
        ExportError
            When the files cannot be written, or would replace those that the model was converted from;
            nothing half-written stays behind.
        ParamsError
            When the file that parameters are read from was changed since the model was loaded.
        """
        if not isinstance(provenance, bool):
            raise ExportError(f"provenance must be True or False, not {provenance!r:.80}.")
        if progress is not None and not callable(progress):
            raise ExportError(f"progress must be a function or None, not {progress!r:.80}.")
        symbol_path, params_path = model_paths(prefix, epoch)
        if not symbol_path.parent.is_dir():
            raise ExportError(
                f"The folder {str(symbol_path.parent)!r} does not exist, so no model can be saved there. "
                "Create it first."
            )
        source, sources = self._history.source, self._history.files
        if sources is not None and self._history.policy is not None:
            sources.refuse_to_replace([symbol_path, params_path])
        others = other_epochs(prefix, params_path)
        symbol_before = hash_file(symbol_path).digest if others and symbol_path.is_file() else None
        record_path = provenance_path(prefix, epoch)
        written = [symbol_path, params_path] + [record_path] * provenance
        with contextlib.ExitStack() as stack:
            files = stack.enter_context(atomic_write(*written, remove=[] if provenance else [record_path]))
            hashed = stack.enter_context(source.hashing()) if provenance and source is not None else None
            # The parameters first: reading them may be what decides the graph (PostponedModel).
            self._write_params(files[1], progress)
            files[0].write(self.symbol_json().encode("utf-8"))
            checked = read_back(files[0], files[1], self.graph, self.arg_params, self.aux_params)
            if provenance:
                record = Provenance.of(files[0], files[1], checked, self._history, hashed, self.made_report)
                files[2].write(record.to_json().encode("utf-8"))
        _LOG.info("saved %s and %s", symbol_path, params_path)
        if symbol_before not in (None, files[0].digest):
            warn_user(
                f"{symbol_path} is another symbol now, and {', '.join(others[:4])} beside it was saved with "
                "the one before: do not load them together. Save each model under a prefix of its own."
            )

    @property
    def decided_for(self) -> str | None:
        """The name of the target that it was converted for; None where it was not, or no file says so.

        A model that was loaded is asked for its provenance.

        Raises
        ------
        ReportError
            When the provenance beside the files is damaged.
        """
        if self.made_report is not None:
            return self.made_report.target
        source = self._history.source
        if source is None:
            return None
        symbol, params = map(str, source.paths)
        record = read_provenance(symbol[: -len("-symbol.json")], int(params[-len("0000.params") :][:4]))
        if record is None or record.symbol.digest != source.symbol.digest:  # it describes other files
            return None
        return None if record.report is None else record.report.target

    def export_onnx(
        self,
        path: PathLike,
        *,
        input_shapes: InputShapes | None = None,
        opset: int | None = None,
        dynamic_batch: bool = False,
        target: Target | None = None,
        progress: Progress | None = None,
    ) -> OnnxExport:
        """Write the model as ONNX, casts included; see :func:`mxamp.export_onnx`. Needs no MXNet.

        ``target`` is one of the runtime that is to read the file; by default what the model was decided for.
        """
        params = {**self.arg_params, **self.aux_params}
        if target is None and self.decided_for in Target.builtin_names():
            target = Target.builtin(str(self.decided_for))
        backend = None if target is None else target.backend
        return export_graph(
            self.graph,
            params,
            path,
            input_shapes=named_input_shapes(self.graph, input_shapes, params),
            opset=opset,
            dynamic_batch=dynamic_batch,
            gaps=RuntimeGaps(
                norms_of_two_dtypes=backend is None or backend.lacks_norms_of_two_dtypes,
                max_pool_of_opset_22=backend is not None and backend.lacks_max_pool_of_opset_22,
            ),
            metadata=self._metadata(),
            progress=progress,
        )

    def export_openvino(
        self,
        path: PathLike,
        *,
        input_shapes: InputShapes | None = None,
        dynamic_batch: bool = False,
        progress: Progress | None = None,
    ) -> OpenvinoExport:
        """Write the model as OpenVINO's file, with the decisions; see :func:`mxamp.export_openvino`."""
        from mxamp.openvino.export import export_openvino_graph  # which few need

        params = {**self.arg_params, **self.aux_params}
        return export_openvino_graph(
            self.graph,
            params,
            path,
            input_shapes=named_input_shapes(self.graph, input_shapes, params),
            dynamic_batch=dynamic_batch,
            metadata=self._metadata(),
            progress=progress,
        )

    def _metadata(self) -> dict[str, str]:
        """Return what an exported file says of where it comes from."""
        source = self._history.source
        with contextlib.nullcontext() if source is None else source.hashing() as hashed:
            metadata = {"mxamp": __version__}
            if source is not None and hashed is not None:
                record = {"symbol": source.symbol.to_mapping(), "params": hashed.result().to_mapping()}
                metadata["mxamp.source"] = json.dumps(record)
        report, policy, target = self.made_report, self._history.policy, self.decided_for
        if report is not None:
            metadata["mxamp.target_dtype"] = report.target_dtype
        if target is not None:
            metadata["mxamp.target"] = target
        if policy is not None:
            metadata["mxamp.policy"] = json.dumps(asdict(policy))
        return metadata

    def _write_params(self, file: BinaryIO, progress: Progress | None) -> None:
        """Write the parameters to an open file."""
        # Such a graph runs under NumPy shape semantics alone, where MXNet refuses the other format.
        numpy_shapes = self.graph.has_numpy_shapes
        stream_params(file, self.arg_params, self.aux_params, numpy_shapes=numpy_shapes, progress=progress)
