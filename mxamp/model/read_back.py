"""Read a pair of files back before it counts as saved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, NoReturn

from mxamp.errors import ExportError, MxampError
from mxamp.files import StagedFile
from mxamp.graph.graph import Graph
from mxamp.graph.symbol_reader import read_symbol
from mxamp.params.format import ARG_PREFIX, AUX_PREFIX
from mxamp.params.parameter import Parameter
from mxamp.params.reader import open_params


@dataclass(frozen=True)
class ReadBack:
    """What was compared between the files on disk and the model they were written from.

    Attributes
    ----------
    nodes
        How many nodes of the symbol: name, operator and inputs.
    tensors
        How many tensors: name, shape and dtype.
    bytes_compared
        How many bytes of both files, by checksum: all of a small file, pieces spread evenly over a large one.
    """

    nodes: int
    tensors: int
    bytes_compared: int


def read_back(
    symbol_file: StagedFile,
    params_file: StagedFile,
    graph: Graph,
    args: Mapping[str, Parameter],
    auxs: Mapping[str, Parameter],
) -> ReadBack:
    """Check that a pair of files, written but not yet in place, holds the model.

    Returns
    -------
    ReadBack
        What was compared.

    Raises
    ------
    ExportError
        When the files hold anything else.
    """
    compared = symbol_file.read_back() + params_file.read_back()
    written: dict[str, Any] = {
        prefix + name: (value.dtype, tuple(value.shape))
        for prefix, group in ((ARG_PREFIX, args), (AUX_PREFIX, auxs))
        for name, value in group.items()
    }
    try:
        found = read_symbol(symbol_file.path)
        with open_params(params_file.path) as file:
            stored = {name: (header.dtype, header.shape) for name, header in file.index.tensors.items()}
    except MxampError as error:
        raise ExportError(
            f"What was written cannot be read back, so nothing was replaced: {error} This is a bug in mxamp "
            "or a failing disk; please report it."
        ) from error
    if len(found.nodes) != len(graph.nodes):
        _fail(symbol_file, f"{len(found.nodes)} nodes in place of {len(graph.nodes)}")
    for was, node in zip(graph.nodes, found.nodes):
        if (node.name, node.op, node.inputs) != (was.name, was.op, was.inputs):
            _fail(symbol_file, f"the node {node.name!r} in place of {was.name!r}")
    for name, expected in written.items():
        if stored.get(name) != expected:
            held = "no" if name not in stored else "another"
            _fail(params_file, f"{held} parameter {name!r} of {expected[0]} and shape {expected[1]}")
    if len(stored) != len(written):
        _fail(params_file, f"{len(stored)} parameters in place of {len(written)}")
    return ReadBack(len(found.nodes), len(stored), compared)


def _fail(file: StagedFile, what: str) -> NoReturn:
    raise ExportError(
        f"{file.display_name} reads back with {what}, so nothing was replaced. This is a bug in mxamp; "
        "please report it."
    )
