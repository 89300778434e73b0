"""Make a folder that a machine with a GPU and without a network measures with one command.

    python -m tools.gpu_validation FOLDER                (or: make gpu-validation)
    python -m tools.gpu_validation FOLDER resnet50_v1 --batches 1 8 --peers

The folder holds, for every model, ONNX files in FP32 and FP16, inputs, what FP32 returns on a CPU, and the
error that emulation says FP16 has; with ``--peers`` the files of other converters, too (``make bench-peers``
has their environment). And it holds ``measure.py``, which needs NumPy and either ONNX Runtime with its CUDA
provider or PyTorch with onnx2torch (a wheel of 0.1 MB). There:

    python3 measure.py

Weights are RANDOM: what is measured is time, and the error of rounding.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.errors import ExportError
from mxamp.export import explicit_casts_of, relative_error
from mxamp.model import Model
from mxamp.onnx import OnnxSession
from mxamp.runtime.executor import run_outputs
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

_FORMAT = 1


def export_folder(folder: Path, names: Sequence[str], batches: Sequence[int], *, peers: bool) -> None:
    """Write files, inputs and references of models, and ``manifest.json`` and ``measure.py`` beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    models = []
    for name in names:
        subject = build_subject(name)
        place = name.replace(":", "-").replace("+", "-")
        (folder / place).mkdir(exist_ok=True)
        models.append(_export(subject, folder, place, _batches_of(name, batches), peers=peers))
        print(f"{name}: {', '.join(models[-1]['variants'])}", file=sys.stderr, flush=True)
    manifest = {"format": _FORMAT, "made_with": describe_machine(seed=0), "models": models}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")
    shutil.copyfile(Path(__file__).with_name("measure.py"), folder / "measure.py")


def _batches_of(name: str, batches: Sequence[int]) -> Sequence[int]:
    return (1,) if any(word in name for word in _ONE_AT_A_TIME) else batches


def _export(
    subject: Subject, folder: Path, place: str, batches: Sequence[int], *, peers: bool
) -> dict[str, Any]:
    """Write one model and return what the manifest says of it."""
    data = dict(subject.data)
    np.savez(folder / place / "data.npz", **data)
    variants: dict[str, dict[str, str]] = {"FP32": {}, "FP16": {}}
    models = {"FP32": subject.model, "FP16": subject.low}
    for variant, model in models.items():
        for batch, file in _files(model, subject, folder / place, variant, batches).items():
            variants[variant][str(batch)] = f"{place}/{file.name}"
    wide = folder / variants["FP32"]["1"]
    reference = OnnxSession(wide).run(data)
    np.savez(folder / place / "reference.npz", *reference)
    emulated = run_outputs(explicit_casts_of(subject.low), data, fusion=False)
    exact = run_outputs(subject.model, data, fusion=False)
    for tool in CONVERTERS if peers else ():
        try:
            with tempfile.TemporaryDirectory() as work:
                fixed = Path(work, "fp32.onnx")
                subject.model.export_onnx(fixed, input_shapes=subject.shapes)
                made = folder / place / f"{tool}.onnx"
                run_job("convert", tool, fixed, made)
        except JobError as error:
            print(f"{subject.name}: {tool}: {error}", file=sys.stderr)
            continue
        variants[f"FP16, {tool}"] = {"1": f"{place}/{made.name}"}
    return {
        "name": subject.name,
        "folder": place,
        "batches": list(batches),
        "variants": variants,
        "emulated_error": _worst(emulated, exact),
        "ranks": "rcnn" in subject.name or _is_ranked(subject.name),
    }


def _is_ranked(name: str) -> bool:
    """Whether outputs are rows in the order of their scores, which change places where scores nearly tie."""
    return BEFORE_RANKING not in name and any(word in name for word in ("ssd_", "yolo3_", "center_net_"))


def _files(
    model: Model, subject: Subject, folder: Path, variant: str, batches: Sequence[int]
) -> dict[int, Path]:
    """Write a model for every batch: one file where its batch can be left open, and otherwise one each."""
    path = folder / f"{variant.lower()}.onnx"
    if list(batches) != [1]:
        try:
            model.export_onnx(path, input_shapes=subject.shapes, dynamic_batch=True)
        except ExportError:
            pass
        else:
            return dict.fromkeys(batches, path)
    found = {}
    for batch in batches:
        path = folder / f"{variant.lower()}-batch{batch}.onnx"
        shapes = {name: (batch * shape[0], *shape[1:]) for name, shape in subject.shapes.items()}
        model.export_onnx(path, input_shapes=shapes)
        found[batch] = path
    return found


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
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", module=r"(mxnet|gluoncv)(\..*)?")
    batches = sorted({1, *options.batches})
    export_folder(options.folder, options.names or MODELS, batches, peers=options.peers)
    print(f"{options.folder}: on the machine with the GPU, python3 measure.py")
    return 0
