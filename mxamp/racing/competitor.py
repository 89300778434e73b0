"""One model in one runtime: a program that does what it is told, a line of JSON at a time.

Each competitor has a process of its own, so that the libraries of one runtime, their threads, their settings
and their crashes are its own; and an interpreter of its own where a runtime does not live beside the others.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Mapping

import numpy as np
from numpy.typing import NDArray

from mxamp.errors import MxampError
from mxamp.measuring.child import end_with_parent

if TYPE_CHECKING:
    from mxamp.openvino.export import OpenvinoExport

MXNET, ONNX_RUNTIME, OPENVINO = "mxnet", "onnxruntime", "openvino"

RUNTIMES: Mapping[str, str] = {MXNET: "MXNet", ONNX_RUNTIME: "ONNX Runtime", OPENVINO: "OpenVINO"}
"""What an option calls a runtime -> what people do."""


class _Competitor:
    """A model that is loaded, and does what the jobs say."""

    def __init__(self) -> None:
        self._runner: Any = None

    def do(self, job: Mapping[str, Any]) -> Any:
        """Do one job and return what is answered."""
        return {"load": self._load, "outputs": self._outputs, "ready": self._ready, "turn": self._turn}[
            job["do"]
        ](job)

    def _load(self, job: Mapping[str, Any]) -> Any:
        started = time.perf_counter()
        self._runner, version, details = _open(job)
        return {"version": version, "seconds": time.perf_counter() - started, **details}

    def _outputs(self, job: Mapping[str, Any]) -> Any:
        """Run all samples, a batch at a time, and write what comes out."""
        batches = [self._runner.run(batch) for batch in _batches(job["data"], job["batch_size"])]
        arrays = {str(number): np.concatenate(parts) for number, parts in enumerate(zip(*batches))}
        np.savez(job["to"], **arrays)
        return {"outputs": len(arrays)}

    def _ready(self, job: Mapping[str, Any]) -> Any:
        """Hand over the first batch, which the turns run on."""
        self._runner.load(next(_batches(job["data"], job["batch_size"])))
        return {}

    def _turn(self, job: Mapping[str, Any]) -> Any:
        """Run until it took long enough; what the others left in the caches does not count."""
        for _ in range(job["unmeasured"]):
            self._runner.forward()
        runs, started = 0, time.perf_counter()
        while True:
            self._runner.forward()
            runs += 1
            taken = time.perf_counter() - started
            if taken >= job["at_least"]:
                return {"seconds": taken / runs}


def _batches(path: str, size: int | None) -> Any:
    with np.load(path, allow_pickle=False) as arrays:
        data = dict(arrays)
    if size is None:
        yield data
        return
    for start in range(0, min(len(values) for values in data.values()), size):
        yield {name: values[start : start + size] for name, values in data.items()}


class _MxnetRunner:
    """What :class:`~mxamp.runtime.executor.BoundModel` is, with the calls that the others have."""

    def __init__(self, prefix: str, epoch: int, fusion: bool) -> None:
        from mxamp.model import load
        from mxamp.runtime.executor import BoundModel

        self._bound = BoundModel(load(prefix, epoch), fusion=fusion, label=prefix)

    def run(self, data: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        return self._bound.run(data)

    def load(self, data: Mapping[str, NDArray[Any]]) -> None:
        self._bound.load(data)

    def forward(self) -> None:
        self._bound.forward()


def _open(job: Mapping[str, Any]) -> tuple[Any, str, dict[str, Any]]:
    """Return what runs the model, the runtime's version, and what else there is to say."""
    if job["runtime"] == MXNET:
        from mxamp.runtime.mxnet import import_mxnet

        version = str(import_mxnet().__version__)
        return _MxnetRunner(job["path"], job["epoch"], job["fusion"]), version, {}
    if job["runtime"] == ONNX_RUNTIME:
        from mxamp.onnx.package import import_onnxruntime
        from mxamp.onnx.session import OnnxSession

        runtime = import_onnxruntime()
        session = OnnxSession(job["path"], threads=job["threads"])
        return session, str(runtime.__version__), {"settings": {"intra_op_num_threads": job["threads"]}}
    from mxamp.openvino.package import import_openvino
    from mxamp.openvino.session import OpenvinoSession

    version = str(import_openvino().__version__).split("-")[0]
    path, precision, said = job["path"], job["precision"], {}
    if job.get("shapes") is not None:
        export = _write_openvino(job)
        path, precision = export.path, export.precision
        said = {"kept": list(export.kept), "marked": export.layers}
    opened = OpenvinoSession(path, precision=precision, threads=job["threads"])
    return opened, version, {"settings": opened.settings, "executed": opened.precisions(), **said}


def _write_openvino(job: Mapping[str, Any]) -> OpenvinoExport:
    """Write a model of MXNet's as OpenVINO's file: where it runs OpenVINO is, which need not be elsewhere."""
    from mxamp.model import load
    from mxamp.openvino.export import export_openvino_graph

    model = load(job["path"], job["epoch"])
    params = {**model.arg_params, **model.aux_params}
    return export_openvino_graph(model.graph, params, job["to"], input_shapes=job["shapes"])


def main() -> None:
    """Read jobs from standard input, one a line, and answer each with a line on standard output."""
    # What runtimes print goes to standard error; standard output is the answers' alone.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    end_with_parent()
    competitor = _Competitor()
    for line in sys.stdin:
        try:
            answer = competitor.do(json.loads(line))
        except MxampError as error:
            answer = {"error": str(error)}
        except Exception as error:  # a runtime may raise anything; the race goes on without it
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
