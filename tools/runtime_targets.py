"""Write the targets of other runtimes: what MXNet's operators are written as, held against their kernels.

    python -m tools.runtime_targets                                   write mxamp/targets/builtin/onnx-*.json
    python -m tools.runtime_targets --read onnxruntime-cuda FILE      read a newer OperatorKernels.md (or, for
                                                                      tensorrt, operators.md) into the table
    python -m tools.runtime_targets --write-calls FOLDER              for a runtime that has to be asked:
                                                                      tools/runs_in_low.py

tools/runtime_kernels.json is the table: for each runtime the document and its commit, and for each ONNX
operator the first opset from which on it has a kernel of a dtype. An MXNet operator can run low where every
node that is written for it, in the calls that the tests of the exporter make, has one for the dtypes that
occur.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

import numpy as np

from mxamp.dtypes import DType
from mxamp.errors import MxampError
from mxamp.graph.graph import Graph
from mxamp.onnx import export_graph
from mxamp.onnx.package import import_onnx
from mxamp.onnx.tensor import ONNX_CODES
from mxamp.ops import FACTS, InputRole
from mxamp.params.parameter import ArrayParameter
from tests.onnx.cases_boxes import box_cases
from tests.onnx.cases_elementwise import elementwise_cases
from tests.onnx.cases_layers import layer_cases
from tests.onnx.cases_numpy import numpy_cases
from tests.onnx.cases_shape import shape_cases
from tests.onnx.operators import Case, array_shapes, graph_of_case

__all__ = [
    "TARGETS",
    "built",
    "main",
    "missing_kernel",
    "read_answers",
    "read_onnxruntime",
    "read_tensorrt",
    "write_calls",
]

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tools" / "runtime_kernels.json"
BUILTIN = ROOT / "mxamp" / "targets" / "builtin"

TARGETS: Mapping[str, tuple[str, str, str]] = {
    "onnx-cuda-fp16": ("onnxruntime-cuda", "float16", "ONNX Runtime's CUDA provider"),
    "onnx-cuda-bf16": ("onnxruntime-cuda", "bfloat16", "ONNX Runtime's CUDA provider"),
    "onnx-tensorrt-fp16": ("tensorrt", "float16", "TensorRT"),
    "onnx-arm-fp16": ("onnxruntime-arm", "float16", "ONNX Runtime's CPU provider on ARM with FEAT_FP16"),
}
"""Target -> the runtime in the table, the dtype, and what to call the runtime."""

_CODES = {"float16": "2", "bfloat16": "12"}
"""How MXNet spells the dtypes in ``__dtype__``."""

_FLOAT32 = ONNX_CODES[DType.FLOAT32]

_TOLD_APART_BY = frozenset({"act_type", "mode", "pool_type", "sample_type", "use_sequence_length"})
"""Attributes that name kinds of a computation; others are sizes, and those of the cases are only examples."""

_LEFT_TO_THE_RUNTIME = {("onnxruntime-arm", "Pooling"): ("GlobalMaxPool", "ReduceSum")}
"""Nodes that a runtime computes in float32 between casts of its own, and for whose sake an operator that has
kernels otherwise is not kept in float32: global maximum and global sum, which no network of the zoo has."""

_FOLDED = ("Convolution", "Deconvolution", "FullyConnected")


# ---------------------------------------------------------------------- the table


def read_onnxruntime(text: str) -> dict[str, dict[str, int]]:
    """Read the CUDA provider's part of OperatorKernels.md: operator -> dtype -> first opset.

    A row counts where a type constraint of it holds the dtype; of several rows, those up to the newest
    without a gap.
    """
    part = text.split('name="cudaexecutionprovider"')[1].split("**Operator Domain:** *com.microsoft*")[0]
    found: dict[str, dict[str, int]] = {}
    op = ""
    open_dtypes: set[str] = set()
    for line in part.splitlines():
        cells = line.split("|")
        if len(cells) < 6 or not re.match(r"\[?\d", cells[3].strip()):
            continue
        if cells[1].strip():
            op, open_dtypes = cells[1].strip(), {"float16", "bfloat16"}
        first = int(re.findall(r"\d+", cells[3])[0])
        held = {dtype for dtype in open_dtypes if f"tensor({dtype})" in cells[4]}
        open_dtypes &= held
        for dtype in sorted(held):
            found.setdefault(op, {})[dtype] = first
    return dict(sorted(found.items()))


def read_tensorrt(text: str) -> dict[str, dict[str, int]]:
    """Read onnx-tensorrt's operators.md: operator -> dtype -> 1, for it tells no opsets."""
    found: dict[str, dict[str, int]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < 4 or not cells[2].startswith("Y"):
            continue
        names = {"FP16": "float16", "BF16": "bfloat16"}
        kinds = {names[kind]: 1 for kind in re.split(r"[,\s]+", cells[3]) if kind in names}
        if kinds:
            found[cells[1]] = kinds
    return dict(sorted(found.items()))


def read_answers(text: str) -> dict[str, dict[str, int]]:
    """Read what tools/runs_in_low.py printed: an operator has a kernel where any node of it ran in float16.

    A node alone among others without kernels is computed in float32, though it has one.
    """
    return {op: {"float16": 1} for op, (low, _) in sorted(json.loads(text).items()) if low}


# ---------------------------------------------------------------------- what is written


def cases() -> Iterator[Case]:
    """Yield the calls that the tests of the exporter make."""
    for part in (layer_cases, elementwise_cases, shape_cases, box_cases, numpy_cases):
        yield from part()


def missing_kernel(given: Case, dtype: str, table: Mapping[str, Any]) -> str | None:
    """Return what a call lacks whose data are low: a node without a kernel. "" where nothing of it is low.

    Parameters
    ----------
    given
        The call.
    dtype
        The low dtype.
    table
        The runtime's part of the table.
    """
    with tempfile.TemporaryDirectory() as folder:
        opset, nodes = _low_nodes_of(given, dtype, Path(folder) / "n.onnx")
    for node, held in nodes:
        if table["kernels"].get(node.op_type, {}).get(dtype, opset + 1) > opset:
            return f"no kernel of {node.op_type} in {dtype}"
        if node.op_type in table["one_dtype"] and _FLOAT32 in held:
            return f"no kernel of {node.op_type} with {dtype} data and float32 parameters"
    return None if nodes else ""


def _low_nodes_of(given: Case, dtype: str, path: Path) -> tuple[int, list[tuple[Any, set[int | None]]]]:
    """Write a call whose data are low; return the opset, and nodes with low tensors and all their types."""
    graph, params = _lowered(given, dtype)
    shapes = {name: shape for name, shape in array_shapes(given).items() if name not in params}
    onnx = import_onnx()
    export_graph(graph, params, path, input_shapes=shapes)
    model = onnx.shape_inference.infer_shapes(onnx.load(str(path)))
    body = model.graph
    values = (*body.input, *body.output, *body.value_info)
    codes = {value.name: value.type.tensor_type.elem_type for value in values}
    codes.update((tensor.name, tensor.data_type) for tensor in body.initializer)
    of_nodes = [(node, {codes.get(name) for name in (*node.input, *node.output)}) for node in body.node]
    low = ONNX_CODES[DType.parse(dtype)]
    return model.opset_import[0].version, [(node, held) for node, held in of_nodes if low in held]


def write_calls(folder: Path, dtype: str = "float16") -> None:
    """Write every call to a file, and to calls.json: file -> node -> operator, of those with low tensors."""
    calls = {}
    for number, given in enumerate(cases()):
        path = folder / f"{number}.onnx"
        try:
            _, nodes = _low_nodes_of(given, dtype, path)
        except MxampError:
            continue
        if nodes:
            calls[path.name] = {node.name: node.op_type for node, _ in nodes}
    (folder / "calls.json").write_text(json.dumps(calls), "utf-8")


def _lowered(given: Case, dtype: str) -> tuple[Graph, dict[str, Any]]:
    """Return the graph of a call whose data are low, as a conversion feeds it."""
    graph = graph_of_case(given)
    facts = FACTS.of(given.op, given.attrs)
    nodes = list(graph.nodes)
    params = {}
    low = (InputRole.DATA, InputRole.LIKE_SAME)
    for number, value in enumerate(given.inputs):
        is_float = not isinstance(value, np.ndarray) or value.dtype == np.float32
        role = InputRole.DATA if facts is None else facts.role(number, given.attrs)
        name = f"in{number}"
        is_low = is_float and role in low
        if is_low:
            nodes[number] = nodes[number]._replace(attrs={"__dtype__": _CODES[dtype]})
        if number in given.parameters:
            array = value if isinstance(value, np.ndarray) else np.ones(value, np.float32)
            stored = ArrayParameter(array)
            params[name] = stored.cast(DType.parse(dtype)) if is_low else stored
    return Graph(tuple(nodes), graph.heads, graph.attrs), params


def built(name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a target.

    Parameters
    ----------
    name
        Of :data:`TARGETS`.
    table
        The whole table.
    """
    runtime, dtype, words = TARGETS[name]
    part = table[runtime]
    found: dict[str, list[tuple[Case, str | None]]] = defaultdict(list)
    for given in cases():
        try:
            missing = missing_kernel(given, dtype, part)
            left = _LEFT_TO_THE_RUNTIME.get((runtime, FACTS.canonical(given.op)), ())
            if missing in [f"no kernel of {node} in {dtype}" for node in left]:
                continue
        except MxampError as error:
            missing = f"it cannot be written in {dtype}: {' '.join(str(error).split())[:120]}"
        if missing != "":
            found[FACTS.canonical(given.op)].append((given, missing))
    operators = {op: _support(calls) for op, calls in sorted(found.items())}
    if operators["BatchNorm"]["support"] != "works":
        # Behind a layer it is folded away; alone it would be cast around.
        operators["BatchNorm"]["support"] = "slow"
    return {
        "name": name,
        "dtype": dtype,
        "device": "cpu" if runtime == "onnxruntime-arm" else "gpu",
        "runtime": runtime,
        "description": f"{words} in {dtype}. An operator runs low where every ONNX node that is written for "
        f"it has a kernel for that, as {part['document']} says ({_edition(part)}). Nothing of it was "
        "measured.",
        "default": "unmeasured",
        "operators": operators,
        "fusion": [[{"operators": list(_FOLDED)}, {"operators": ["BatchNorm"]}]],
    }


def _edition(part: Mapping[str, Any]) -> str:
    """Return the version of a runtime's document, and its commit where that is known."""
    return f"{part['version']}, commit {part['commit'][:12]}" if part["commit"] else str(part["version"])


def _support(calls: Sequence[tuple[Case, str | None]]) -> dict[str, Any]:
    """Return an operator's entry: what works in all calls, or in those with some values of an attribute."""
    failing = [given for given, missing in calls if missing is not None]
    if not failing:
        return {"support": "works"}
    note = next(missing for _, missing in calls if missing is not None)
    working = [given for given, missing in calls if missing is None]
    for key in sorted({key for given, _ in calls for key in given.attrs} & _TOLD_APART_BY):
        good = {given.attrs.get(key, "") for given in working}
        bad = {given.attrs.get(key, "") for given in failing}
        if good and not good & bad:
            return {"support": "works", "only": {key: sorted(good)}}
    return {"support": "unsupported", "note": note}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--read", nargs=2, metavar=("RUNTIME", "FILE"), help="renew a part of the table")
    parser.add_argument("--commit", default="", help="--read: the commit that the document is of")
    parser.add_argument("--version", default="", help="--read: the version it is of")
    parser.add_argument("--write-calls", type=Path, metavar="FOLDER", help="for tools/runs_in_low.py")
    parser.add_argument("--dtype", choices=tuple(_CODES), default="float16", help="of --write-calls")
    options = parser.parse_args(arguments)
    if options.write_calls is not None:
        options.write_calls.mkdir(parents=True, exist_ok=True)
        write_calls(options.write_calls, options.dtype)
        return 0
    table = json.loads(TABLE.read_text("utf-8"))
    if options.read is not None:
        runtime, path = options.read
        readers = {"onnxruntime-cuda": read_onnxruntime, "tensorrt": read_tensorrt}
        read = readers.get(runtime, read_answers)
        kernels = read(Path(path).read_text("utf-8"))
        table[runtime].update(kernels=kernels, commit=options.commit, version=options.version)
        TABLE.write_text(_compact(table), "utf-8")
    for name in TARGETS:
        document = built(name, table)
        (BUILTIN / f"{name}.json").write_text(_compact(document), "utf-8")
        works = sum(entry["support"] == "works" for entry in document["operators"].values())
        print(f"{name}: {works} of {len(document['operators'])} operators run in {document['dtype']}")
    return 0


def _compact(document: Mapping[str, Any]) -> str:
    """Return JSON with what is three levels deep on one line."""
    lines = []
    for key, value in document.items():
        if isinstance(value, Mapping):
            inner = ",\n".join(f"  {json.dumps(name)}: {_line(entry)}" for name, entry in value.items())
            lines.append(f" {json.dumps(key)}: {{\n{inner}\n }}")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _line(entry: Any) -> str:
    if not isinstance(entry, Mapping) or not any(isinstance(value, Mapping) for value in entry.values()):
        return json.dumps(entry)
    inner = ",\n".join(f"   {json.dumps(name)}: {json.dumps(value)}" for name, value in entry.items())
    return f"{{\n{inner}\n  }}"


if __name__ == "__main__":
    sys.exit(main())
