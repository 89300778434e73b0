"""The models that a command line names: files by their prefix, and ``zoo:NAME``."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Mapping, Sequence

from mxamp.compare.inputs import input_names
from mxamp.errors import DataError, MxnetMissingError, ReportError
from mxamp.messages.arguments import as_options
from mxamp.messages.counts import count_of, some_of
from mxamp.messages.installation import why_no_mxnet
from mxamp.messages.warn import warn_user
from mxamp.model import Model, load, model_paths
from mxamp.model.provenance import Provenance, read_provenance

ZOO = "zoo:"

_FILE_SUFFIX = re.compile(r"-(?:symbol\.json|(\d{4})\.params)$")


@dataclass(frozen=True)
class Source:
    """A model that was named on the command line.

    Attributes
    ----------
    label
        What to call it.
    model
        The model.
    paths
        The files it was read from; none for a zoo model.
    weights
        For a zoo model, where its weights come from.
    has_random_weights
        Whether the weights are random, so that this is no trained network.
    input_shapes
        Input name -> shape, where known.
    epoch
        The number of the parameter file; the label is the prefix then.
    """

    label: str
    model: Model
    paths: tuple[Path, ...] = ()
    weights: str | None = None
    has_random_weights: bool = False
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    epoch: int = 0

    def named(self, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of the command line by the names of the inputs; see :func:`named_shapes`."""
        return named_shapes(shapes, input_names(self.model))


def add_model_argument(parser: argparse.ArgumentParser, *, is_optional: bool = False) -> None:
    """Add the argument that names a model: files, or one of the zoo."""
    parser.add_argument(
        "model",
        nargs="?" if is_optional else None,
        metavar="PREFIX",
        help="the files' path up to -symbol.json and -0000.params, or zoo:NAME for a model of GluonCV's zoo",
    )


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which parameters to read."""
    parser.add_argument(
        "--epoch", type=int, metavar="N", help="read PREFIX-000N.params (default: 0, as exports are numbered)"
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--pretrained",
        action="store_const",
        const=True,
        default=None,
        help="zoo:NAME: insist on the trained weights (default: use them where they can be had)",
    )
    group.add_argument(
        "--no-pretrained",
        dest="pretrained",
        action="store_const",
        const=False,
        help="zoo:NAME: use random weights, and download nothing",
    )


def add_input_option(parser: Any) -> None:
    """Add the option that says what is an input."""
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME",
        help="this variable is an input, though it looks like a parameter without a value (repeatable)",
    )


def require_mxnet() -> None:
    """Refuse to go on where MXNet is not installed, before anything is read.

    Raises
    ------
    MxnetMissingError
        With what to do about it.
    """
    missing = why_no_mxnet()
    if missing is not None:
        raise MxnetMissingError(f"{missing[0].upper()}{missing[1:]}")


def split_prefix(text: str) -> tuple[str, int | None]:
    """Return prefix and epoch of what may also be the name of one of the two files, as shells complete it."""
    found = _FILE_SUFFIX.search(text)
    if found is None:
        return text, None
    return text[: found.start()], int(found.group(1)) if found.group(1) else None


def read_source(
    text: str,
    *,
    epoch: int | None = None,
    pretrained: bool | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    epoch_option: str = "--epoch",
) -> Source:
    """Read a model.

    Parameters
    ----------
    text
        A prefix, one of the two files, or ``zoo:NAME``.
    epoch
        The number of the parameter file.
    pretrained
        For the zoo: True, False, or None for whichever can be had.
    input_shapes
        For the zoo: what to build the model for.
    epoch_option
        The option that gives its epoch, for the errors.

    Raises
    ------
    MxampError
        When it is not there or damaged.
    """
    if text.startswith(ZOO):
        from mxamp.runtime.zoo import load_zoo

        given: Any = input_shapes
        if input_shapes is not None and "" in input_shapes:
            given = list(input_shapes.values())
        zoo = load_zoo(text[len(ZOO) :], pretrained=pretrained, input_shapes=given)
        if not zoo.is_pretrained:
            # Before anything else is said of the model, and even where nothing else is.
            warn_user(f"{text}: the weights are {zoo.weights}.")
        return Source(
            text,
            zoo.model,
            weights=zoo.weights,
            has_random_weights=not zoo.is_pretrained,
            input_shapes=zoo.input_shapes,
        )
    prefix, epoch_in_name = split_prefix(text)
    epoch = epoch if epoch is not None else epoch_in_name or 0
    with as_options(epoch=epoch_option):
        paths = model_paths(prefix, epoch)
        return Source(prefix, load(prefix, epoch), paths, epoch=epoch)


def parse_input_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Read ``NAME=1,3,224,224`` arguments; ``1,3,224,224`` alone is of the only input, and its name empty.

    Raises
    ------
    DataError
        When one has another form, or an input is named twice.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, separator, sizes = text.rpartition("=")
        try:
            shape = tuple(int(size) for size in re.split(r"[,x]", sizes.strip("()[] ").rstrip(",")))
        except ValueError:
            shape = ()
        if bool(separator) != bool(name) or not shape or min(shape) <= 0:
            raise DataError(
                f"--input-shape {text!r} is not of the form NAME=SIZES, such as data=1,3,224,224, or of the "
                "form SIZES for a model with one input."
            )
        if name in shapes:
            raise DataError(f"--input-shape gives {name or 'the only input'!r} twice; keep one of them.")
        shapes[name] = shape
    return shapes


def named_shapes(
    shapes: Mapping[str, tuple[int, ...]], names: Sequence[str]
) -> Mapping[str, tuple[int, ...]]:
    """Return what :func:`parse_input_shapes` read with the name of the only input.

    Raises
    ------
    DataError
        When a shape has no name, and the model has not exactly one input.
    """
    if "" not in shapes:
        return shapes
    sizes = ",".join(map(str, shapes[""]))
    example = f"--input-shape {names[0] if names else 'data'}={sizes}"
    if len(names) != 1 or len(shapes) > 1:
        raise DataError(
            f"--input-shape {sizes} has no name, and the model has {count_of(len(names), 'input')}: "
            f"{some_of(names) or '(none)'}. Name each, as in {example}."
        )
    return {names[0]: shapes[""]}


def recorded_provenance(source: Source) -> Provenance | None:
    """Return what is recorded about the model; None, with a warning, when it is recorded about another."""
    if not source.paths:
        return None
    try:
        provenance = read_provenance(source.label, source.epoch)
    except ReportError as error:
        warn_user(str(error))
        return None
    if provenance is None:
        return None
    files = source.model._history.source
    if files is None or not files.are_those_of(provenance):
        warn_user(
            f"{source.label} is no longer the model that was recorded when it was written, so what was "
            f"recorded is not shown. mxamp verify {source.label} tells what differs."
        )
        return None
    return provenance
