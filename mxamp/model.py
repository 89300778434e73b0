"""A converted model: its graph, its parameters and the report, kept whole."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator, Mapping, Union

import numpy as np

from mxamp.dtypes import DType
from mxamp.errors import ExportError, ModelFileNotFoundError, ParamsError, TargetError
from mxamp.files import atomic_write
from mxamp.graph.graph import Graph
from mxamp.graph.parameters import auxiliary_names
from mxamp.graph.serde import read_symbol, write_symbol
from mxamp.params import encode_params, read_params
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.report.model import Report

__all__ = ["Model", "load"]

PathLike = Union[str, Path]


@dataclass(frozen=True)
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
        What the conversion did; None for a model that was only loaded.
    """

    graph: Graph
    arg_params: Mapping[str, Parameter]
    aux_params: Mapping[str, Parameter]
    report: Report | None = None
    _mxnet: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, sym: Any, args: Mapping[str, Any], auxs: Mapping[str, Any]) -> Model:
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
        return cls(graph_of(sym), _parameters_of(args, "args"), _parameters_of(auxs, "auxs"))

    # ------------------------------------------------------------------ MXNet's view

    @property
    def sym(self) -> Any:
        """The ``mx.sym.Symbol``. Its own ``save`` and ``tojson`` drop the casts; use :meth:`save`."""
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

            self._mxnet[key] = {name: ndarray_from_parameter(value) for name, value in params.items()}
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
        return {**self.__dict__, "_mxnet": {}}

    # ------------------------------------------------------------------ files

    def symbol_json(self) -> str:
        """Return the text of ``symbol.json``, casts included."""
        return write_symbol(self.graph)

    def save(self, prefix: PathLike, epoch: int = 0) -> None:
        """Write ``prefix-symbol.json`` and ``prefix-EPOCH.params``; stock MXNet loads them.

        Both files are written beside their destination, synced, and renamed together at the end.

        Parameters
        ----------
        prefix
            Path and first part of the file names.
        epoch
            The number in the parameter file's name, 0 to 9999.

        Raises
        ------
        ExportError
            When the files cannot be written; nothing half-written stays behind.
        """
        symbol_path, params_path = model_paths(prefix, epoch)
        if not symbol_path.parent.is_dir():
            raise ExportError(
                f"The folder {str(symbol_path.parent)!r} does not exist, so no model can be saved there. "
                "Create it first."
            )
        with atomic_write(symbol_path, params_path) as (symbol_file, params_file):
            symbol_file.write(self.symbol_json().encode("utf-8"))
            encode_params(
                params_file,
                {name: value.numpy() for name, value in self.arg_params.items()},
                {name: value.numpy() for name, value in self.aux_params.items()},
                # Such a graph runs under NumPy shape semantics alone, where MXNet refuses the other format.
                numpy_shapes=self.graph.has_numpy_shapes,
            )


def graph_of(sym: Any) -> Graph:
    """Return the graph of a Symbol; a graph is returned as it is."""
    if isinstance(sym, Graph):
        return sym
    from mxamp.runtime.symbol import graph_from_symbol

    return graph_from_symbol(sym)


def _parameters_of(given: Mapping[str, Any], label: str) -> dict[str, Parameter]:
    if not isinstance(given, Mapping):
        raise ParamsError(f"{label} must be a dict from names to arrays, not {type(given).__name__}.")
    wrapped: dict[str, Parameter] = {}
    for name, value in given.items():
        if not isinstance(name, str):
            raise ParamsError(f"{label} must map names, which are strings, to arrays; it holds {name!r:.80}.")
        if isinstance(value, np.ndarray):
            wrapped[name] = _array_parameter(name, value)
        elif isinstance(value, Parameter):
            wrapped[name] = value
        else:
            from mxamp.runtime.parameter import parameter_from_ndarray

            wrapped[name] = parameter_from_ndarray(name, value)
    return wrapped


def _array_parameter(name: str, value: Any) -> ArrayParameter:
    array = np.asarray(value)  # a subclass such as np.matrix has operators of its own
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    try:
        return ArrayParameter(array)
    except TargetError:
        raise ParamsError(
            f"The parameter {name!r} is an array of {value.dtype}, which MXNet does not have. Use one of: "
            f"{', '.join(map(str, DType))}."
        ) from None


def model_paths(prefix: PathLike, epoch: int = 0) -> tuple[Path, Path]:
    """Return the paths of a model's two files.

    Raises
    ------
    ExportError
        When the prefix is no path, or the epoch not a number from 0 to 9999.
    """
    if not isinstance(prefix, (str, os.PathLike)) or "\0" in str(prefix):
        raise ExportError(
            f"prefix must be a path, the part of the file names before -symbol.json, not {prefix!r:.80}."
        )
    if not isinstance(epoch, (int, np.integer)) or not 0 <= epoch <= 9999:
        raise ExportError(f"epoch must be from 0 to 9999, not {epoch}: it is four digits of a file's name.")
    return Path(f"{prefix}-symbol.json"), Path(f"{prefix}-{epoch:04d}.params")


def load(prefix: PathLike, epoch: int = 0) -> Model:
    """Read a model from ``prefix-symbol.json`` and ``prefix-EPOCH.params``, casts included. Needs no MXNet.

    Parameters
    ----------
    prefix
        Path and first part of the file names.
    epoch
        The number in the parameter file's name.

    Returns
    -------
    Model
        Unpacks as ``sym, args, auxs``.

    Raises
    ------
    ModelFileNotFoundError
        When a file does not exist, or prefix and epoch cannot name one.
    SymbolFormatError, ParamsError
        When a file is damaged, or the two do not belong together.
    """
    try:
        symbol_path, params_path = model_paths(prefix, epoch)
    except ExportError as error:
        raise ModelFileNotFoundError(str(error)) from None
    graph = read_symbol(symbol_path)
    if not params_path.is_file():
        others = sorted(path.name for path in params_path.parent.glob(f"{Path(prefix).name}-*.params"))
        found = f" There is {', '.join(others[:4])}: give its number as the epoch." if others else ""
        raise ModelFileNotFoundError(f"There is no parameter file {str(params_path)!r}.{found}")
    args, auxs = read_params(params_path, aux_names=auxiliary_names(graph))
    return Model(
        graph,
        {name: ArrayParameter(value) for name, value in args.items()},
        {name: ArrayParameter(value) for name, value in auxs.items()},
    )
