"""``mxamp compare`` where a side is an ONNX file."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any, Mapping

from mxamp.cli.data import RANDOM_NOTE, random_data
from mxamp.cli.source import named_shapes, parse_input_shapes, read_source
from mxamp.compare.data_files import load_data
from mxamp.compare.fidelity import Fidelity
from mxamp.compare.inputs import expected_input_shapes, input_names
from mxamp.compare.onnx_files import ComparedModel, compare_onnx
from mxamp.errors import DataError
from mxamp.model import Model
from mxamp.onnx import OnnxSession


def is_onnx_file(text: str) -> bool:
    """Whether an argument names an ONNX file: it ends in ``.onnx``."""
    return text.lower().endswith(".onnx")


def compare_with_onnx(args: argparse.Namespace) -> Fidelity:
    """Compare the two models of a command line, at least one of which is an ONNX file.

    Raises
    ------
    MxampError
        When the comparison cannot be made.
    """
    if len(args.converted) != 1 or args.emulate is not None:
        raise DataError(
            "An ONNX file is compared with one other model: give PREFIX and one OUT, no --emulate."
        )
    shapes = parse_input_shapes(args.input_shape)
    reference, known = _read(args, args.prefix, args.epoch, shapes)
    other, more = _read(args, args.converted[0], args.out_epoch, shapes)
    notes = []
    if args.data is not None:
        data: Any = load_data(args.data)
    elif args.random:
        names = list(reference.input_shapes if isinstance(reference, OnnxSession) else input_names(reference))
        data = random_data(names, named_shapes(shapes, names), {**more, **known}, seed=args.seed)
        notes.append(RANDOM_NOTE.format(seed=args.seed))
    else:
        raise DataError("No data was given: give --data FILE.npz, or --random for random numbers.")
    fidelity = compare_onnx(
        reference,
        other,
        data,
        ctx=args.ctx,
        max_samples=args.max_samples,
        threshold=args.layer_threshold,
    )
    return dataclasses.replace(fidelity, notes=(*notes, *fidelity.notes))


def _read(
    args: argparse.Namespace, text: str, epoch: int | None, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[ComparedModel, Mapping[str, Any]]:
    """Return one side, and what it says of the shapes of its inputs."""
    if is_onnx_file(text):
        session = OnnxSession(text)
        return session, session.input_shapes
    option = "--epoch" if text == args.prefix else "--out-epoch"
    source = read_source(
        text, epoch=epoch, pretrained=args.pretrained, input_shapes=shapes or None, epoch_option=option
    )
    model: Model = source.model
    return model, {**expected_input_shapes(model), **source.input_shapes}
