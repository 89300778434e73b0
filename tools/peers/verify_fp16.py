"""Hold emulated float16 against float16 that runs: PyTorch, TVM, and ONNX Runtime with explicit casts.

    python -m tools.peers.verify_fp16                    (or: make verify-onnx, which also does FP32)
    python -m tools.peers.verify_fp16 resnet50_v1 --results fp16.jsonl

MXNet has no FP16 on CPUs, so mxamp emulates it: float32 arithmetic, every result rounded to float16. Here the
FP16 ONNX file of the same model runs

- in PyTorch, through onnx2torch, on the CPU: an implementation of its own, in float16 throughout;
- in ONNX Runtime with explicit casts (`--explicit-casts`), whose first layers are compared bit for bit;
- in TVM, compiled for this processor: convolutions accumulate in float16, as kernels of ARM's do, so what it
  says is what that costs.

Errors are relative L2 of the outputs against FP32 in MXNet, fusion off. PyTorch's and ONNX Runtime's are to
be within 10 % of the emulation's; TVM's are told. Weights are RANDOM.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

import mxamp
from mxamp.export import explicit_casts_of, relative_error
from mxamp.graph import Entry
from mxamp.model import Model
from mxamp.onnx import OnnxSession
from mxamp.ops.rounding import is_rounding
from mxamp.runtime.executor import run_outputs
from tools.machine import describe_machine, machine_lines, prepare_environment
from tools.peers.environment import JobError, arrays, run_job, versions
from tools.peers.subjects import Subject, build_subject
from tools.zoo_graphs import with_heads

__all__ = ["CLASSIFIERS", "IN_TVM", "failures", "main", "verify_fp16"]

CLASSIFIERS = (
    *("resnet18_v1", "resnet34_v1", "resnet50_v1", "resnet18_v2", "resnet50_v1d", "resnext50_32x4d"),
    *("se_resnet18_v1", "resnest14", "mobilenet0.25", "mobilenet1.0", "mobilenetv2_1.0", "mobilenetv3_small"),
    *("mobilenetv3_large", "densenet121", "squeezenet1.0", "squeezenet1.1", "shufflenet_v1", "shufflenet_v2"),
    *("googlenet", "inceptionv3", "dla34", "hrnet_w18_small_v1_c", "cifar_resnet20_v1"),
    "cifar_wideresnet16_10",
)
"""What runs in PyTorch and in ONNX Runtime with explicit casts."""

IN_TVM = (
    *("cifar_resnet20_v1", "mobilenet0.25", "squeezenet1.1", "resnet18_v1", "densenet121"),
    *("lenet", "mtcnn_output", "text_cnn"),
)
"""What runs in TVM: pooling in most, softmax in the last three."""

WITHIN = 0.1
EQUAL_EARLY = 0.99
"""How much of the first layers' results must be equal in all bits: sums in another order round otherwise."""

_LAYERS = (0, 1, 2, 4)
"""Which roundings are compared bit for bit, from the input on."""


def verify_fp16(name: str, folder: Path) -> dict[str, Any]:
    """Run a model in float16 wherever it can be, and return the errors."""
    # Ten numbers are too few to compare the size of errors: of n it varies by 1 / sqrt(2 n).
    subject = build_subject(name, batch=64 if name.startswith("cifar_") else 1)
    _, low, data = subject.write(folder)
    wide = run_outputs(subject.model, subject.data, fusion=False)
    emulated = explicit_casts_of(subject.low)
    record: dict[str, Any] = {"name": name}
    record["emulation"] = _error(run_outputs(emulated, subject.data, fusion=False), wide)
    if name in CLASSIFIERS:
        explicit = folder / "explicit.onnx"
        mxamp.export_onnx(subject.low, explicit, input_shapes=subject.shapes, explicit_casts=True)
        record["explicit casts"] = _error(OnnxSession(explicit, threads=2).run(subject.data), wide)
        record["equal"] = _equal(subject, emulated, folder / "layers.onnx")
        record["PyTorch"] = _run("torch", low, data, folder / "torch.npz", wide)
    if name in IN_TVM:
        record["TVM"] = _run("tvm", low, data, folder / "tvm.npz", wide)
    return record


def _run(job: str, low: Path, data: Path, result: Path, wide: Sequence[NDArray[Any]]) -> float | str:
    """Return the error of a run in the peers' environment, or why there is none."""
    try:
        run_job(job, low, data, result)
    except JobError as error:
        return str(error)
    return _error(arrays(result), wide)


def _equal(subject: Subject, emulated: Model, path: Path) -> list[float]:
    """Return which part of the first layers' rounded results is equal in all bits."""
    nodes = emulated.graph.nodes
    roundings = [Entry(position) for position, node in enumerate(nodes) if is_rounding(node.op)]
    layers = with_heads(emulated, [roundings[number] for number in _LAYERS if number < len(roundings)])
    expected = run_outputs(layers, subject.data, fusion=False)
    layers.export_onnx(path, input_shapes=subject.shapes)
    found = OnnxSession(path, threads=2).run(subject.data)
    return [round(float(np.mean(ours == theirs)), 5) for ours, theirs in zip(found, expected)]


def _error(found: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]]) -> float:
    return float(f"{max(relative_error(ours, theirs) for ours, theirs in zip(found, expected)):.3e}")


def failures(record: Mapping[str, Any]) -> list[str]:
    """Return what of a record is not as it is to be."""
    found = []
    for runtime in ("PyTorch", "explicit casts"):
        error = record.get(runtime)
        if isinstance(error, str):
            found.append(f"{record['name']}: {runtime}: {error}")
        elif error is not None and abs(error - record["emulation"]) > WITHIN * record["emulation"]:
            found.append(f"{record['name']}: {runtime} {error:.2e}, emulation {record['emulation']:.2e}")
    early = record.get("equal", [1.0])[:2]
    if min(early) < EQUAL_EARLY:
        found.append(f"{record['name']}: only {100 * min(early):.2f} % of an early layer is equal")
    if isinstance(record.get("TVM"), str):
        found.append(f"{record['name']}: TVM: {record['TVM']}")
    return found


def _line(record: Mapping[str, Any]) -> str:
    def shown(value: Any) -> str:
        return "" if value is None else "fails" if isinstance(value, str) else f"{value:.2e}"

    figures = [shown(record.get(key)) for key in ("emulation", "PyTorch", "explicit casts", "TVM")]
    equal = " ".join(f"{100 * part:.2f}" for part in record.get("equal", ()))
    return f"{record['name']:<26} {figures[0]:>9} {figures[1]:>9} {figures[2]:>9} {figures[3]:>9}  {equal}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument(
        "--results", type=Path, metavar="FILE.jsonl", help="append results, skip what is there"
    )
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", module=r"(mxnet|gluoncv)(\..*)?")
    names = options.names or list(dict.fromkeys([*CLASSIFIERS, *IN_TVM]))
    done: dict[str, dict[str, Any]] = {}
    if options.results is not None and options.results.exists():
        lines = options.results.read_text("utf-8").splitlines()
        done = {record["name"]: record for record in map(json.loads, lines)}
    print("\n".join(machine_lines(describe_machine(seed=0))))
    print("Peers     " + ", ".join(f"{name} {version}" for name, version in versions().items()))
    print(f"{'':26} {'emulated':>9} {'PyTorch':>9} {'explicit':>9} {'TVM':>9}  early layers equal, %")
    wrong: list[str] = []
    for name in names:
        if name not in done:
            began = time.perf_counter()
            with tempfile.TemporaryDirectory() as folder:
                done[name] = verify_fp16(name, Path(folder))
            done[name]["seconds"] = round(time.perf_counter() - began, 1)
            gc.collect()
            if options.results is not None:
                with options.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(done[name]) + "\n")
        print(_line(done[name]), flush=True)
        wrong += failures(done[name])
    for line in wrong:
        print(f"WRONG  {line}")
    print(f"{len(names)} models, {len(wrong)} not as they are to be")
    return 1 if wrong else 0


if __name__ == "__main__":
    prepare_environment()
    sys.exit(main())
