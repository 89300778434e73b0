"""What runs in the environment of the peers, a process a job: ``python -m tools.peers.inside JOB ...``.

    convert TOOL FP32.onnx OUT.onnx     write another converter's file
    torch FILE.onnx DATA.npz OUT.npz [DEVICE]
                                        run a file in PyTorch, through onnx2torch
    tvm FILE.onnx DATA.npz OUT.npz [float16 | float32]
                                        compile a file with TVM and run it; with TVM's own mixed precision
                                        where the dtype of its accumulation is given
    versions                            print the versions of all as JSON

The last line printed is JSON. Nothing of mxamp or MXNet is imported.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

import numpy as np

__all__ = ["CONVERTERS", "PACKAGES", "main"]

PACKAGES = (
    *("onnx", "onnxruntime", "onnxconverter-common", "nvidia-modelopt", "apache-tvm"),
    *("torch", "onnx2torch", "numpy"),
)


def _onnxconverter(source: Path, target: Path) -> None:
    import onnx
    from onnxconverter_common import float16

    onnx.save(float16.convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


def _onnxruntime(source: Path, target: Path) -> None:
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


def _autocast(source: Path, target: Path) -> None:
    import onnx
    from modelopt.onnx.autocast import convert_to_mixed_precision

    onnx.save(convert_to_mixed_precision(str(source), keep_io_types=True, providers=["cpu"]), target)


CONVERTERS: Mapping[str, Callable[[Path, Path], None]] = {
    "onnxconverter-common": _onnxconverter,
    "onnxruntime.transformers": _onnxruntime,
    "AutoCast": _autocast,
}


def _convert(tool: str, source: str, target: str) -> dict[str, Any]:
    began = time.perf_counter()
    CONVERTERS[tool](Path(source), Path(target))
    return {"seconds": round(time.perf_counter() - began, 2)}


def _data(path: str) -> dict[str, np.ndarray[Any, Any]]:
    with np.load(path) as file:
        return dict(file)


def _save(path: str, outputs: Sequence[Any]) -> None:
    np.savez(path, *(np.asarray(output) for output in outputs))


def _import_onnx2torch() -> Any:
    """Import onnx2torch, which imports torchvision.

    torchvision's wheels on the package index are built for CUDA. Beside a PyTorch for CPUs their kernels do
    not load, and the import ends at operators that they would have declared, of which no model here has need.
    """
    import torch

    try:
        return importlib.import_module("onnx2torch")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    for name in [name for name in sys.modules if name.partition(".")[0] in ("torchvision", "onnx2torch")]:
        del sys.modules[name]
    declared = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _KEPT.append(declared)  # it goes when nobody holds it
    return importlib.import_module("onnx2torch")


_KEPT: list[Any] = []


def _torch(source: str, data: str, target: str, device: str = "cpu") -> dict[str, Any]:
    import onnx
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    model = onnx.load(source)
    network = _import_onnx2torch().convert(model).eval().to(device)
    inputs = _data(data)
    tensors = [torch.from_numpy(inputs[value.name]).to(device) for value in model.graph.input]
    began = time.perf_counter()
    with torch.no_grad():
        found = network(*tensors)
    outputs = found if isinstance(found, (tuple, list)) else [found]
    _save(target, [output.float().cpu().numpy() for output in outputs])
    return {"seconds": round(time.perf_counter() - began, 2)}


def _tvm(source: str, data: str, target: str, accumulation: str = "") -> dict[str, Any]:
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    model = onnx.load(source)
    module = from_onnx(model, keep_params_in_input=False)
    inputs = _data(data)
    module = relax.transform.DecomposeOpsForInference()(module)
    if accumulation:
        module = relax.transform.ToMixedPrecision(out_dtype=accumulation)(module)
    module = relax.transform.LegalizeOps()(module)
    began = time.perf_counter()
    compiled = tvm.compile(module, target=tvm.target.Target(_llvm()))
    compiled_in = time.perf_counter() - began
    machine = relax.VirtualMachine(compiled, tvm.cpu())
    began = time.perf_counter()
    found = machine["main"](*(tvm.runtime.tensor(inputs[value.name]) for value in model.graph.input))
    outputs = [found] if hasattr(found, "numpy") else list(found)
    _save(target, [output.numpy().astype(np.float32) for output in outputs])
    ran_in = time.perf_counter() - began
    return {"compiled_seconds": round(compiled_in, 1), "seconds": round(ran_in, 1)}


def _llvm() -> Any:
    """Return the target of this processor: with FP16 arithmetic where it has it, as Intel's AVX512-FP16."""
    try:
        flags = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        flags = ""
    if "avx512_fp16" in flags:
        return {"kind": "llvm", "mcpu": "sapphirerapids"}
    return "llvm"


def _versions() -> dict[str, Any]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "none"
    return found


JOBS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "convert": _convert,
    "torch": _torch,
    "tvm": _tvm,
    "versions": _versions,
}


def main(arguments: Sequence[str]) -> int:
    """Do a job; what it prints goes to standard error, but for the result."""
    job, *rest = arguments
    output = os.dup(1)
    os.dup2(2, 1)
    found = JOBS[job](*rest)
    os.write(output, (json.dumps(found) + "\n").encode("utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
