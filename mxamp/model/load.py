"""Read a model from its files."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from mxamp.errors import ExportError, ModelFileNotFoundError
from mxamp.files import settle_leftovers, unchanged_while_reading
from mxamp.graph.parameters import auxiliary_names
from mxamp.graph.symbol_reader import read_symbol
from mxamp.model.given import LoadedParams
from mxamp.model.model import Model
from mxamp.model.paths import PathLike, epochs_there, model_paths
from mxamp.model.provenance import History, recorded_report
from mxamp.model.source_files import SourceFiles
from mxamp.params.on_disk import open_parameters

_SYMBOL = "-symbol.json"


def load(prefix: PathLike, epoch: int = 0) -> Model:
    """Read a model from ``prefix-symbol.json`` and ``prefix-EPOCH.params``, casts included. Needs no MXNet.

    The values of parameters stay in the file, which stays open, and are read when they are needed. So a file
    may be larger than memory: ``convert_model(model.graph, model.arg_params, model.aux_params, ...)`` casts
    when the result is saved, a part of a tensor at a time.

    Parameters
    ----------
    prefix
        Path and first part of the file names; the symbol's whole name is taken, too.
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
    if isinstance(prefix, (str, Path)) and str(prefix).endswith(_SYMBOL):
        prefix = str(prefix)[: -len(_SYMBOL)]
    try:
        symbol_path, params_path = model_paths(prefix, epoch)
    except ExportError as error:
        raise ModelFileNotFoundError(str(error)) from None
    settle_leftovers(symbol_path.parent)
    return unchanged_while_reading(
        [symbol_path, params_path], lambda: _load(prefix, epoch, symbol_path, params_path)
    )


def _load(prefix: PathLike, epoch: int, symbol_path: Path, params_path: Path) -> Model:
    graph = read_symbol(symbol_path)
    if not params_path.is_file():
        others = epochs_there(prefix, params_path)
        raise ModelFileNotFoundError(f"There is no parameter file {str(params_path)!r}.{others}")
    source = SourceFiles(symbol_path, params_path)
    args, auxs = open_parameters(params_path, aux_names=auxiliary_names(graph))
    report: Any = functools.partial(recorded_report, source, prefix, epoch)  # called when it is read
    return Model(
        graph,
        LoadedParams(args, graph, source),
        LoadedParams(auxs, graph, source),
        report,
        _history=History(source),
    )
