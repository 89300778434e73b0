"""A model whose parameters operators that take one dtype can read together."""

from __future__ import annotations

from mxamp.model.model import Model
from mxamp.params.one_dtype import in_one_dtype


def model_in_one_dtype(model: Model) -> Model:
    """Return a model with its parameters as Module reads them; itself where all are of one dtype."""
    stored = {**model.arg_params, **model.aux_params}
    params, _ = in_one_dtype(model.graph, stored)
    if params is stored:
        return model
    arg_params = {name: params[name] for name in model.arg_params}
    return Model(model.graph, arg_params, {name: params[name] for name in model.aux_params})
