"""Ask ONNX Runtime which nodes it computes in low precision: run where the runtime is, it needs nothing else.

    python -m tools.runtime_targets --write-calls FOLDER     here: one file a call, and calls.json
    python runs_in_low.py FOLDER > answers.json              there, such as under qemu: aarch64, FEAT_FP16
    python -m tools.runtime_targets --read onnxruntime-arm answers.json

    python -m tools.runtime_targets --write-calls FOLDER --dtype bfloat16
    python runs_in_low.py FOLDER CUDAExecutionProvider       of another provider than the CPU's

Where a provider has no kernel for float16, ONNX Runtime puts casts around the node, whatever the level of
optimization, and the node reads float32 when it runs.
"""

from __future__ import annotations

import collections
import json
import os
import sys
from typing import Any

import numpy as np
import onnxruntime

_BFLOAT16 = 16
"""ONNX's number of the type (TensorProto.DataType)."""

_DTYPES = {"float": "f4", "float16": "f2", "double": "f8", "int64": "i8", "int32": "i4", "int8": "i1"}


def answers(folder: str, provider: str = "CPUExecutionProvider") -> dict[str, list[int]]:
    """Return operator -> how many of its nodes the provider ran in low precision, and how many not."""
    with open(os.path.join(folder, "calls.json"), encoding="utf-8") as file:
        calls: dict[str, dict[str, str]] = json.load(file)
    found: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
    for name, nodes in calls.items():
        ran = _low_nodes(os.path.join(folder, name), provider)
        for node, op in nodes.items():
            found[op][0 if ran.get(node, False) else 1] += 1
    return dict(sorted(found.items()))


def _low_nodes(path: str, provider: str) -> dict[str, bool]:
    """Return node -> whether it ran there with a low tensor read or written; nothing where it fails."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.enable_profiling = True
    options.profile_file_prefix = path
    providers = list(dict.fromkeys((provider, "CPUExecutionProvider")))
    try:
        session = onnxruntime.InferenceSession(path, options, providers=providers)
        session.run_with_ort_values(None, {given.name: _zeros(given) for given in session.get_inputs()})
    except Exception as error:  # of its own; the call counts as one that did not run
        print(f"{os.path.basename(path)}: {str(error)[:200]}", file=sys.stderr)
        return {}
    trace = session.end_profiling()
    with open(trace, encoding="utf-8") as file:
        events: list[dict[str, Any]] = json.load(file)
    os.remove(trace)
    suffix = "_kernel_time"
    return {
        event["name"][: -len(suffix)]: event["args"].get("provider") == provider
        and any(
            "float16" in tensor  # and bfloat16
            for key in ("input_type_shape", "output_type_shape")
            for tensor in event["args"].get(key, ())
        )
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith(suffix)
    }


def _zeros(given: Any) -> Any:
    dtype = given.type[len("tensor(") : -1]
    zeros = np.zeros([size if isinstance(size, int) else 1 for size in given.shape], _DTYPES.get(dtype, "f4"))
    if dtype == "bfloat16":  # which NumPy has not; its bits are
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(zeros.astype("u2"), _BFLOAT16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(zeros)


if __name__ == "__main__":
    print(json.dumps(answers(*sys.argv[1:3]), indent=1))
