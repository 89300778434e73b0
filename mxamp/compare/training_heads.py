"""Training heads, whose second input is a label that inference does not read."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from numpy.typing import NDArray

from mxamp.errors import DataError, MxnetMissingError
from mxamp.model import Model


def open_variables(model: Model) -> list[str]:
    """Return the variables that have no parameter: inputs, and labels."""
    return [
        name
        for name in model.graph.variables
        if name not in model.arg_params and name not in model.aux_params
    ]


def label_shapes(
    model: Model, labels: Sequence[str], arrays: Mapping[str, NDArray[Any]], samples: int
) -> Mapping[str, tuple[int, ...]]:
    """Return the shapes of labels, as MXNet infers them; without MXNet nothing runs that would need them.

    Raises
    ------
    DataError
        When the shapes of the inputs do not tell.
    """
    from mxamp.runtime.shapes import infer_shapes

    graph = model.graph
    given = {name: values.shape for name, values in arrays.items()}
    try:
        found = infer_shapes(graph, given, {**model.arg_params, **model.aux_params})
    except MxnetMissingError:
        return dict.fromkeys(labels, (samples,))
    shapes = {}
    for name in labels:
        position = graph.variables[name]
        shape = found[position][0]
        if not shape:
            head = graph.nodes[graph.uses[position][0][0].node]
            raise DataError(
                f"The model ends in {head}, and the shapes of the inputs do not tell that of its label "
                f"{name!r}. Compare the model without its training head."
            )
        shapes[name] = shape
    return shapes
