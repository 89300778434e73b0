"""The models and the data of a comparison, checked against each other before anything runs."""

from __future__ import annotations

import numbers
from dataclasses import dataclass, replace
from typing import Any, Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.compare.training_heads import label_shapes, open_variables
from mxamp.dtypes import DType
from mxamp.errors import DataError, nearest_names
from mxamp.graph.labels import label_names
from mxamp.graph.output_names import output_names
from mxamp.messages.arguments import setting
from mxamp.model import Model
from mxamp.ops import FACTS
from mxamp.ops.casts import CAST_OPERATORS
from mxamp.params.check import check_params
from mxamp.params.not_finite import not_finite, not_finite_warning

_EXACT_IN_FLOAT32 = 2**24


@dataclass(frozen=True)
class Inputs:
    """Data for a model.

    Attributes
    ----------
    arrays
        Input name -> values, in the order of the model's inputs.
    samples
        How many samples there are.
    batched
        Whether every array has the samples along its first axis, so that it may be cut into batches.
    notes
        What was done to the data that the user should know.
    warnings
        What the user is to be warned of: NaN and infinity, of inputs and of parameters.
    """

    arrays: Mapping[str, NDArray[Any]]
    samples: int
    batched: bool
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def as_model(model: Any, label: str) -> Model:
    """Return a model given as :class:`mxamp.Model` or as MXNet's triple ``(sym, args, auxs)``.

    Parameters
    ----------
    model
        The model; nothing of it is changed.
    label
        What messages call it.

    Raises
    ------
    DataError
        When it is neither.
    """
    if isinstance(model, Model):
        return model
    if not isinstance(model, (tuple, list)) or len(model) != 3:
        raise DataError(
            f"{label} must be an mxamp.Model or a triple (sym, args, auxs), not {type(model).__name__}. "
            "mxamp.load(prefix) reads one from files."
        )
    return Model.of(*model)


def input_names(model: Model) -> tuple[str, ...]:
    """Return the names of the variables that have no parameter, labels of training heads left out."""
    labels = _labels(model)
    return tuple(name for name in open_variables(model) if name not in labels)


def _labels(model: Model) -> frozenset[str]:
    return label_names(model.graph, {*model.arg_params, *model.aux_params})


def fed_inputs(model: Model, data: Any) -> list[str]:
    """Return the inputs that data are for, whatever they look like in the graph."""
    names = input_names(model)
    if isinstance(data, Mapping):
        fed = [name for name in names if name in data]
        if fed:
            return fed
    return list(names) if len(names) == 1 else []


def check_same_interface(
    reference: Model, converted: Model, *, fed: Collection[str] = (), by_position: bool = False
) -> None:
    """Check that two models have their parameters, and the same inputs and outputs.

    Parameters
    ----------
    reference, converted
        The models.
    fed
        Inputs that there are data for, so that their values are not missing.
    by_position
        Whether outputs belong together in their order, whatever they are called.

    Raises
    ------
    DataError
        When their inputs or outputs differ.
    ParamsError
        When a parameter is missing or misshaped.
    """
    check_params(reference.graph, {**reference.arg_params, **reference.aux_params}, inputs=fed)
    check_params(converted.graph, {**converted.arg_params, **converted.aux_params}, inputs=fed)
    pairs = (
        ("inputs", input_names(reference), input_names(converted)),
        ("outputs", output_names(reference.graph), output_names(converted.graph)),
    )
    for what, left, right in pairs:
        same = sorted(left) == sorted(right) if what == "inputs" else left == right
        if what == "outputs" and len(left) == len(right):
            same = same or by_position
            hint = (
                " (MXNet's own converter renames outputs; mxamp keeps their names.) "
                f"{setting('by_position', True)} pairs them in order."
            )
        else:
            hint = ""
        if not same:
            raise DataError(
                f"The two models have different {what}, so there is nothing to compare: the FP32 model has "
                f"{_listed(left)}, the converted model {_listed(right)}. Is the second one a conversion of "
                f"the first?{hint}"
            )


def _listed(names: Sequence[str], limit: int = 6) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def expected_input_shapes(model: Model) -> dict[str, tuple[int, ...]]:
    """Return what is known of the inputs' shapes; sizes that are not known are 0.

    A ``__shape__`` attribute says it. Otherwise the weight does, where a Convolution reads the input: the
    number of channels and of axes.
    """
    graph = model.graph
    shapes: dict[str, tuple[int, ...]] = {}
    for name in input_names(model):
        text = graph.nodes[graph.variables[name]].attrs.get("__shape__", "")
        sizes = tuple(
            int(part) for part in text.strip("()[] ").split(",") if part.strip().lstrip("-").isdigit()
        )
        if sizes and any(size > 0 for size in sizes):
            shapes[name] = tuple(max(size, 0) for size in sizes)
            continue
        shape = _shape_from_reader(model, graph.variables[name])
        if shape is not None:
            shapes[name] = shape
    return shapes


def _shape_from_reader(model: Model, position: int) -> tuple[int, ...] | None:
    graph = model.graph
    waiting = [position]
    while waiting:
        for use in graph.uses[waiting.pop()].get(0, ()):
            node = graph.nodes[use.node]
            if use.input != 0:
                continue
            if node.op in CAST_OPERATORS:
                waiting.append(use.node)
                continue
            weight = (
                model.arg_params.get(graph.nodes[node.inputs[1].node].name) if len(node.inputs) > 1 else None
            )
            if weight is None:
                continue
            op = FACTS.canonical(node.op)
            if op == "Convolution" and node.attrs.get("layout", "NCHW") in ("None", "NCHW", "NCW", "NCDHW"):
                channels = weight.shape[1] * int(node.attrs.get("num_group", "1"))
                return (0, channels, *(0 for _ in weight.shape[2:]))
            if op == "FullyConnected" and node.attrs.get("flatten", "True") in ("False", "0", "false"):
                return None  # any number of axes
    return None


def prepare_inputs(model: Model, data: Any, *, max_samples: int | None = None) -> Inputs:
    """Fit data to a model's inputs.

    Parameters
    ----------
    model
        The FP32 model.
    data
        Input name -> array (NumPy or NDArray), or one array for a model with one input.
    max_samples
        Use only so many samples, the first ones.

    Returns
    -------
    Inputs
        Arrays in the dtypes they came in; the executor casts their values and never scales them, which a note
        says where it may surprise.

    Raises
    ------
    DataError
        When an input is missing, unknown, empty, or has the wrong shape.
    """
    arrays, notes = fitted_arrays(model, data)
    warnings = not_finite_inputs(arrays) + _not_finite_params(model)
    firsts = {values.shape[0] for values in arrays.values()}
    batched = len(firsts) == 1
    if max_samples is not None:
        max_samples = counted(max_samples, "The number of samples")
        if not batched:
            raise DataError(
                "The number of samples cannot be limited: the inputs differ in their first axes ("
                + ", ".join(f"{name} {values.shape}" for name, values in arrays.items())
                + ")."
            )
        arrays = {name: values[:max_samples] for name, values in arrays.items()}
    return replace(with_labels(model, arrays, notes), warnings=warnings)


def not_finite_inputs(arrays: Mapping[str, NDArray[Any]]) -> tuple[str, ...]:
    """Return the warning of arrays that hold NaN or infinity, where there are any."""
    found = [
        name
        for name, values in arrays.items()
        if np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all()
    ]
    return (not_finite_warning(found, "input"),) if found else ()


def _not_finite_params(model: Model) -> tuple[str, ...]:
    found = not_finite({**model.arg_params, **model.aux_params})
    return (not_finite_warning(found),) if found else ()


def fitted_arrays(model: Model, data: Any) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Return data as arrays of the model's inputs, checked, and what the user should know of them.

    Parameters
    ----------
    model, data
        See :func:`prepare_inputs`.

    Raises
    ------
    DataError
        When an input is missing, unknown, empty, or has the wrong shape.
    """
    names = input_names(model)
    if not names:
        raise DataError(
            "The FP32 model has no inputs: every variable has a parameter. There is nothing to feed."
        )
    notes: list[str] = []
    arrays = _named(data, names, notes)
    expected = expected_input_shapes(model)
    for name, values in arrays.items():
        _check_array(name, values, expected.get(name))
        note = _dtype_note(model, name, values)
        if note:
            notes.append(note)
    return arrays, notes


def _named(data: Any, names: Sequence[str], notes: list[str]) -> dict[str, NDArray[Any]]:
    if data is None:
        raise DataError(f"No data was given. The model takes: {_listed(names)}.")
    if not isinstance(data, Mapping):
        if len(names) > 1:
            raise DataError(
                f"One array was given, but the model has {len(names)} inputs: {_listed(names)}. "
                "Give a dict from input names to arrays, or an .npz file whose arrays have these names."
            )
        return {names[0]: _as_array(names[0], data)}
    given = dict(data)
    if len(names) == 1 and len(given) == 1 and names[0] not in given:
        (only,) = given
        notes.append(f"The array {only!r} was used for the model's only input, {names[0]!r}.")
        return {names[0]: _as_array(only, given[only])}
    unknown = [name for name in given if name not in names]
    missing = [name for name in names if name not in given]
    if missing:
        if unknown:
            raise DataError(
                f"The model has no input {unknown[0]!r}.{nearest_names(unknown[0], missing)} "
                f"It takes: {_listed(names)}."
            )
        raise DataError(f"The input {missing[0]!r} is missing. The model takes: {_listed(names)}.")
    if unknown:
        notes.append(f"Not an input of the model, and ignored: {_listed(unknown)}.")
    return {name: _as_array(name, given[name]) for name in names}


def _as_array(name: str, values: Any) -> NDArray[Any]:
    if not isinstance(values, np.ndarray):
        try:
            values = values.asnumpy() if hasattr(values, "asnumpy") else np.asarray(values)
        except Exception as error:  # whatever the object raises, or MXNet: a Symbol has no values
            raise DataError(
                f"The data for {name!r} is no array: {type(values).__name__} ({str(error)[:80]})."
            ) from None
    array: NDArray[Any] = values
    if array.dtype.kind not in "fiub" and array.dtype != DType.BFLOAT16.numpy:
        raise DataError(f"The array {name!r} holds {array.dtype}, which is no number.")
    return array


def _check_array(name: str, values: NDArray[Any], expected: tuple[int, ...] | None) -> None:
    if values.ndim == 0:
        raise DataError(
            f"The input {name!r} is a single number. Its first axis must hold the samples: give an array of "
            f"shape {_shape_text(expected) if expected else '(samples, ...)'}."
        )
    if values.size == 0:
        raise DataError(
            f"The input {name!r} is empty: its shape is {values.shape}. Give at least one sample."
        )
    if expected is None:
        return
    # The first axis holds the samples: their number is the user's to choose.
    fits = len(expected) == values.ndim and all(
        wanted in (0, size) for wanted, size in zip(expected[1:], values.shape[1:])
    )
    if not fits:
        hint = ""
        if len(expected) == values.ndim == 4 and expected[1] == values.shape[3] != values.shape[1]:
            hint = (
                " The channels come last here; values.transpose(0, 3, 1, 2) brings them to the second axis."
            )
        elif values.ndim == len(expected) - 1:
            hint = " The axis of the samples is missing; values[None] adds it."
        raise DataError(
            f"The input {name!r} has the shape {values.shape}, but the model takes "
            f"{_shape_text(expected)}.{hint}"
        )


def _shape_text(shape: tuple[int, ...]) -> str:
    sizes = ["samples", *("?" if size == 0 else str(size) for size in shape[1:])]
    return "(" + ", ".join(sizes) + ")"


def _dtype_note(model: Model, name: str, values: NDArray[Any]) -> str:
    if values.dtype.kind not in "iub" or "__dtype__" in model.graph.nodes[model.graph.variables[name]].attrs:
        return ""
    note = f"The input {name!r} came as {values.dtype} and was cast to float32, not scaled"
    largest = max(abs(int(values.max())), abs(int(values.min()))) if values.dtype.kind != "b" else 1
    if values.dtype == np.uint8:
        note += ": a model trained on normalised images needs them normalised here too"
    elif largest > _EXACT_IN_FLOAT32:
        note += (
            f"; its values reach {largest}, and float32 holds integers exactly only to {_EXACT_IN_FLOAT32}"
        )
    return note + "."


def with_labels(model: Model, arrays: Mapping[str, NDArray[Any]], notes: Sequence[str]) -> Inputs:
    """Return arrays as data for a model, whose training heads are fed zeros, which inference does not read.

    Parameters
    ----------
    model
        The model.
    arrays, notes
        What :func:`fitted_arrays` returned.
    """
    batched = len({values.shape[0] for values in arrays.values()}) == 1
    samples = min(values.shape[0] for values in arrays.values())
    inputs = Inputs(arrays, samples if batched else 1, batched, tuple(notes))
    names = _labels(model)
    labels = [name for name in open_variables(model) if name in names]
    if not labels:
        return inputs
    shapes = label_shapes(model, labels, arrays, inputs.samples)
    arrays = {**arrays, **{name: np.zeros(shape, np.float32) for name, shape in shapes.items()}}
    note = f"Labels of training heads were fed zeros, which inference does not read: {_listed(labels)}."
    # A head that flattens its data has a label for every row, and such labels are not cut as samples are.
    batched = batched and all(shape[0] == inputs.samples for shape in shapes.values())
    samples = inputs.samples if batched else 1
    return replace(inputs, arrays=arrays, samples=samples, batched=batched, notes=(*inputs.notes, note))


def counted(given: Any, what: str) -> int:
    """Return a count that the user gave.

    Raises
    ------
    DataError
        When it is no whole number from 1 on.
    """
    if not isinstance(given, numbers.Integral):
        raise DataError(f"{what} must be a whole number, not {given!r}.")
    if given < 1:
        raise DataError(f"{what} must be at least 1, not {given}.")
    return int(given)
