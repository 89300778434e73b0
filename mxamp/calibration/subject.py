"""The model that is calibrated, however it was given, and what is observed of it."""

from __future__ import annotations

import os
from pathlib import Path

from mxamp.compare.inputs import as_model
from mxamp.graph.graph import Entry
from mxamp.graph.infer import infer_dtypes, variable_dtypes
from mxamp.graph.unfused import unfused
from mxamp.model import Model, load
from mxamp.model.accepted import AnyModel, BlockShapes
from mxamp.model.one_dtype import model_in_one_dtype


def any_model(model: AnyModel, *, input_shapes: BlockShapes | None = None) -> Model:
    """Return a model given in any way.

    Parameters
    ----------
    model
        :class:`mxamp.Model`, a triple ``(sym, args, auxs)``, what :func:`mxamp.convert_block` returned, a
        Gluon block, or the prefix of a pair of files.
    input_shapes
        The shapes of a block's inputs, where it has not run yet.

    Raises
    ------
    DataError
        When it is something else.
    """
    given = _any_model(model, input_shapes)
    graph, fused = unfused(given.graph)
    return model_in_one_dtype(Model(graph, given.arg_params, given.aux_params) if fused else given)


def _any_model(model: AnyModel, input_shapes: BlockShapes | None) -> Model:
    if isinstance(model, (str, os.PathLike)):
        return load(Path(model))
    of_block = getattr(model, "model", None)
    if isinstance(of_block, Model):  # what convert_block returned
        return as_model(of_block, "the model")
    if hasattr(model, "collect_params"):
        from mxamp.runtime.trace import check_block, trace_block

        check_block(model)
        traced = trace_block(model, input_shapes=input_shapes)
        return Model.of(traced.graph, traced.args, traced.auxs)
    return as_model(model, "the model")


def observed_entries(model: Model) -> list[Entry]:
    """Return the entries that are observed: outputs of nodes that are read or returned, of float32."""
    graph = model.graph
    stored = {name: value.dtype for name, value in {**model.arg_params, **model.aux_params}.items()}
    dtypes = infer_dtypes(graph, variable_dtypes(graph, stored))
    heads = set(graph.heads)
    return [
        Entry(position, output)
        for position, node in enumerate(graph.nodes)
        if not node.is_variable
        for output in range(node.num_outputs)
        if (output in graph.uses[position] or Entry(position, output) in heads)
        and (dtypes[position][output] is None or dtypes[position][output].is_float)  # type: ignore[union-attr]
    ]
