"""Make a folder that a machine with a GPU and without a network measures with one command.

    python -m tools.gpu_validation FOLDER                (or: make gpu-validation)
    python -m tools.gpu_validation FOLDER resnet50_v1 --batches 1 8 --peers

The folder holds, for every model, ONNX files in FP32, FP16 and BF16, inputs, what MXNet returns in FP32 on a
CPU, and the errors that emulation says low precision has; with ``--peers`` the files of other converters, too
(``make bench-peers`` has their environment); with ``--seeds`` no files but what they are made of, megabytes
instead of gigabytes (:mod:`tools.gpu_validation.fill`). And it holds ``measure.py``, which needs NumPy and
either ONNX Runtime with its CUDA provider or PyTorch with onnx2torch (a wheel of 0.1 MB). There:

    python3 measure.py

Weights are RANDOM: what is measured is time, and the error of rounding.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.export import explicit_casts_of, relative_error
from mxamp.runtime.executor import run_outputs
from tools.gpu_validation.fill import LOW, Recipe, converted, fill_folder, manifest_of, write_manifest
from tools.machine import describe_machine
from tools.peers.environment import JobError, run_job
from tools.peers.inside import CONVERTERS
from tools.peers.subjects import BEFORE_RANKING, Subject, build_subject

__all__ = ["MODELS", "export_folder", "main"]

MODELS = (
    *("resnet50_v1", "vgg16", "mobilenet1.0", "mobilenetv3_large", "densenet121"),
    *("ssd_512_resnet50_v1_voc", f"ssd_512_resnet50_v1_voc{BEFORE_RANKING}"),
    *("yolo3_mobilenet1.0_voc", f"yolo3_mobilenet1.0_voc{BEFORE_RANKING}"),
    "faster_rcnn_resnet50_v1b_voc",
    "bert_base",
)

BATCHES = (1, 32)

_ONE_AT_A_TIME = ("rcnn", "bert")
"""Names of what takes one sample: two-stage detectors, and what reads lengths."""

_FORMAT = 2

_SEED = 1
"""Of large weights."""


def export_folder(
    folder: Path, names: Sequence[str], batches: Sequence[int], *, peers: bool = False, seeds: bool = False
) -> None:
    """Write models, inputs and references, and ``manifest.json`` and ``measure.py`` beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    models = []
    for name in names:
        place = name.replace(":", "-").replace("+", "-")
        (folder / place).mkdir(exist_ok=True)
        models.append(_export(build_subject(name), folder / place, _batches_of(name, batches)))
        print(f"{name}: error {models[-1]['emulated_error']}", file=sys.stderr, flush=True)
    write_manifest(
        folder, {"format": _FORMAT, "made_with": describe_machine(seed=0), "seeds": seeds, "models": models}
    )
    shutil.copyfile(Path(__file__).with_name("measure.py"), folder / "measure.py")
    if not seeds:
        fill_folder(folder)
    if peers:
        _add_peers(folder)


def _batches_of(name: str, batches: Sequence[int]) -> Sequence[int]:
    return (1,) if any(word in name for word in _ONE_AT_A_TIME) else batches


def _export(subject: Subject, place: Path, batches: Sequence[int]) -> dict[str, Any]:
    """Write how to make a model, what it reads and returns, and return what the manifest says of it."""
    data = dict(subject.data)
    recipe = Recipe.of(subject.model, seed=_SEED)
    recipe.write(place)
    np.savez(place / "data.npz", **data)
    exact = run_outputs(recipe.model, data, fusion=False)
    np.savez(place / "reference.npz", *exact)
    errors = {}
    for variant in LOW:
        low = explicit_casts_of(converted(recipe.model, variant, data))
        errors[variant] = _worst(run_outputs(low, data, fusion=False), exact)
    return {
        "name": subject.name,
        "folder": place.name,
        "batches": list(batches),
        "variants": {},
        "emulated_error": errors,
        "ranks": "rcnn" in subject.name or _is_ranked(subject.name),
    }


def _add_peers(folder: Path) -> None:
    """Add the FP16 files that other converters make of the FP32 ones, at batch 1."""
    manifest = manifest_of(folder)
    for entry in manifest["models"]:
        with np.load(folder / entry["folder"] / "data.npz") as file:
            shapes = {name: file[name].shape for name in file.files}
        model = Recipe.read(folder / entry["folder"]).model
        for tool in CONVERTERS:
            try:
                with tempfile.TemporaryDirectory() as work:
                    fixed = Path(work, "fp32.onnx")
                    model.export_onnx(fixed, input_shapes=shapes)
                    made = folder / entry["folder"] / f"{tool}.onnx"
                    run_job("convert", tool, fixed, made)
            except JobError as error:
                print(f"{entry['name']}: {tool}: {error}", file=sys.stderr)
                continue
            entry["variants"][f"FP16, {tool}"] = {"1": f"{entry['folder']}/{made.name}"}
    write_manifest(folder, manifest)


def _is_ranked(name: str) -> bool:
    """Whether outputs are rows in the order of their scores, which change places where scores nearly tie."""
    return BEFORE_RANKING not in name and any(word in name for word in ("ssd_", "yolo3_", "center_net_"))


def _worst(found: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]]) -> float:
    errors = (relative_error(ours, theirs) for ours, theirs in zip(found, expected))
    return float(f"{max(errors):.3e}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="what to make")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {' '.join(MODELS)}")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES, metavar="N", help="default: 1 32")
    parser.add_argument("--peers", action="store_true", help="other converters' files too, at batch 1")
    parser.add_argument(
        "--seeds", action="store_true", help="how to draw the weights, instead of files with them"
    )
    options = parser.parse_args(arguments)
    if options.peers and options.seeds:
        parser.error("--peers needs files: leave --seeds out")
    warnings.filterwarnings("ignore", module=r"(mxnet|gluoncv)(\..*)?")
    batches = sorted({1, *options.batches})
    export_folder(options.folder, options.names or MODELS, batches, peers=options.peers, seeds=options.seeds)
    fill = "python3 -m tools.gpu_validation.fill FOLDER, then " if options.seeds else ""
    print(f"{options.folder}: on the machine with the GPU, {fill}python3 measure.py")
    return 0
