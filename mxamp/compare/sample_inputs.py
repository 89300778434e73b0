"""Made-up inputs for timing a model: values do not matter, as long as no operator refuses them."""

from __future__ import annotations

from typing import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.compare.inputs import expected_input_shapes, input_names
from mxamp.dtypes import DType
from mxamp.errors import DataError
from mxamp.graph.graph import Entry
from mxamp.graph.infer import variable_dtypes
from mxamp.messages.arguments import argument
from mxamp.model import Model
from mxamp.ops import FACTS, InputRole, ValueKind
from mxamp.ops.attributes import integers
from mxamp.ops.casts import CAST, CAST_OPERATORS


def sample_inputs(
    model: Model, shapes: Mapping[str, Sequence[int]], *, seed: int = 0
) -> dict[str, NDArray[np.float32]]:
    """Return inputs of given shapes, the same for the same seed.

    Parameters
    ----------
    model
        The model.
    shapes
        Input name -> shape. Where one is left out, what the model itself says of it serves.
    seed
        The seed.

    Returns
    -------
    dict
        Input name -> float32 array. What the model reads as indices is whole numbers in the range of what
        they point into where that is known (the rows of an Embedding), and 0 elsewhere, which every operator
        takes. An integer input is whole numbers, over the range of 8 bits where it has so many. All else is
        standard normal.

    Raises
    ------
    DataError
        When the shape of an input is not known.
    """
    generator = np.random.default_rng(seed)
    known = expected_input_shapes(model)
    stored = {**model.arg_params, **model.aux_params}
    dtypes = variable_dtypes(model.graph, {name: value.dtype for name, value in stored.items()})
    arrays: dict[str, NDArray[np.float32]] = {}
    for name in input_names(model):
        shape = tuple(int(size) for size in shapes.get(name, known.get(name, ())))
        if not shape or 0 in shape:
            sizes = ",".join(str(size or "?") for size in shape) or "1,3,224,224"
            raise DataError(
                f"the shape of the input {name!r} is not known; give it with "
                f"{argument('input_shapes')}: {name}={sizes}"
            )
        rows = _rows_pointed_into(model, name)
        dtype = dtypes.get(name, DType.FLOAT32)
        if rows is None and not dtype.is_float:
            rows = {DType.UINT8: 256, DType.INT8: 128}.get(dtype, 2)
        if rows is None:
            arrays[name] = generator.standard_normal(shape, np.float32)
        else:
            arrays[name] = generator.integers(0, rows, shape).astype(np.float32)
    return arrays


def _rows_pointed_into(model: Model, name: str) -> int | None:
    """Return into how many rows an input points, 1 where that is not known; None where it is no index."""
    graph = model.graph
    params = {**model.arg_params, **model.aux_params}
    found: int | None = None
    waiting, seen = [Entry(graph.variables[name])], set()
    while waiting:
        entry = waiting.pop()
        if entry in seen:
            continue
        seen.add(entry)
        for use in graph.uses[entry.node].get(entry.output, ()):
            node = graph.nodes[use.node]
            if node.op in CAST_OPERATORS:
                waiting.append(Entry(use.node))
                continue
            facts = FACTS.of(node.op, node.attrs)
            if facts is None:
                continue
            if facts.role(use.input, node.attrs) is InputRole.INDEX:
                rows = 1
                if facts.name == "Embedding":
                    rows = (integers(node.attrs.get("input_dim", "")) or (1,))[0]
                elif facts.name == "take":
                    table = params.get(graph.nodes[node.inputs[0].node].name)
                    axis = (integers(node.attrs.get("axis", "0")) or (0,))[0]
                    rows = table.shape[axis] if table is not None and axis < len(table.shape) else 1
                found = max(1, rows if found is None else min(found, rows))
            elif facts.kind is ValueKind.MOVE or facts.name == CAST:
                waiting += [Entry(use.node, output) for output in range(node.num_outputs)]
    return found
