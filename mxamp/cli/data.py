"""Data for commands that run models: made up, or how to come by a file of them."""

from __future__ import annotations

import argparse
from typing import Any, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.cli.options import add_common
from mxamp.errors import DataError

RANDOM_NOTE = (
    "The inputs are random numbers (standard normal, seed {seed}), not real data: the activations they "
    "cause may lie outside the range, or the distribution, that the model meets in use."
)

_EXAMPLE_SHAPE = (8, 3, 224, 224)


def add_samples_options(
    parser: argparse.ArgumentParser, *, labelled: bool = False, required: bool = True
) -> None:
    """Add what says on which samples a model is run, and what is true of them."""
    label = " (and `label`)" if labelled else ""
    parser.add_argument(
        "--data",
        metavar="FILE",
        required=required,
        help=f".npz with an array for each input{label}, .npy for a single one, or a folder of them",
    )
    if labelled:
        add_common(parser, "--labels")


def random_data(
    names: Sequence[str],
    shapes: Mapping[str, Sequence[int]],
    known: Mapping[str, Sequence[int]],
    *,
    seed: int = 0,
) -> dict[str, NDArray[Any]]:
    """Return standard normal data, the same for the same seed.

    Parameters
    ----------
    names
        The model's inputs.
    shapes
        Their shapes, as the user gave them.
    known
        What the model says of the shapes; a shape without unknown sizes serves where the user gave none.
    seed
        The seed.

    Raises
    ------
    DataError
        When a shape is missing, or is given for what is no input.
    """
    for name in shapes:
        if name not in names:
            raise DataError(
                f"--input-shape names {name!r}, which is no input of the model. It takes: {', '.join(names)}."
            )
    generator = np.random.default_rng(seed)
    arrays: dict[str, NDArray[Any]] = {}
    for name in names:
        shape = tuple(shapes.get(name, known.get(name, ())))
        if name not in shapes and shape and shape[0] == 0:
            shape = (1, *shape[1:])  # the number of samples is ours to choose
        if not shape or 0 in shape:
            sizes = ",".join(str(size or 224) for size in shape) if shape else "1,3,224,224"
            partly = f" Known is {','.join(str(size or '?') for size in known[name])}." if shape else ""
            raise DataError(
                f"The shape of the input {name!r} is not known, so no random data can be made.{partly} Give "
                f"it: --input-shape {name}={sizes}"
            )
        arrays[name] = generator.standard_normal(shape).astype(np.float32)
    return arrays


def no_data_message(names: Sequence[str], known: Mapping[str, Sequence[int]]) -> str:
    """Say how to make a data file for a model with these inputs.

    Parameters
    ----------
    names
        The model's inputs.
    known
        What is known of their shapes; 0 for sizes that are not.
    """
    arrays = []
    for name in names:
        shape = list(known.get(name, ())) or list(_EXAMPLE_SHAPE)
        shape[0] = shape[0] or _EXAMPLE_SHAPE[0]
        sizes = tuple(size or 224 for size in shape)
        arrays.append((name, f"np.zeros({sizes}, 'float32')"))
    if all(name.isidentifier() for name in names):
        keywords = ", ".join(f"{name}={array}" for name, array in arrays)
    else:
        keywords = "**{" + ", ".join(f"{name!r}: {array}" for name, array in arrays) + "}"
    return (
        "No data was given: a comparison runs both models. Give --data FILE.npz, with an array for each "
        "input and the samples along its first axis. This makes one to fill with your own images or "
        "features, normalised as in training:\n"
        f"  python -c \"import numpy as np; np.savez('images.npz', {keywords})\"\n"
        "Or give --random for random numbers; real data tells more."
    )
