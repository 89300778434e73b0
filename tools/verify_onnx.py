"""Export models of GluonCV's zoo to ONNX and compare ONNX Runtime with MXNet, all outputs, fusion off.

    python -m tools.verify_onnx                       a dozen names of every kind       (or: make verify-onnx)
    python -m tools.verify_onnx resnet50_v1 fcn_*     names or shell patterns
    python -m tools.verify_onnx --all --results FILE  every name; what FILE has is not done again

Weights are random, and inputs standard normal: what is compared is arithmetic, not accuracy. Each line of
the results is a JSON object. An output passes with a relative L2 error of at most 1e-5. Where it is more,
MXNet's own output for an input changed in its last bits is looked at: a network that amplifies that as much,
within a factor of 10, is said to amplify. All else fails. What MXNet leaves undefined on CPUs is
defined first (`mxamp.export.defined_reference`). Networks on int8 are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import gc
import json
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.errors import MxampError
from mxamp.export import defined_reference, relative_error
from mxamp.onnx import OnnxSession
from mxamp.runtime.executor import run_outputs
from mxamp.runtime.zoo import load_zoo, zoo_names
from tools.machine import describe_machine, machine_lines, prepare_environment

__all__ = ["SHORT", "main", "verify_name"]

SHORT = (
    *(
        "mobilenet1.0",
        "resnet18_v1",
        "mobilenetv3_small",
        "densenet121",
        "squeezenet1.1",
    ),
    *("resnest14", "simple_pose_resnet18_v1b", "fcn_resnet50_voc", "ssd_300_resnet34_v1b_voc"),
    *("yolo3_mobilenet1.0_voc", "center_net_resnet18_v1b_dcnv2_voc", "siamrpn_alexnet_v2_otb15"),
)
"""One of every kind that runs in seconds."""

PASSES, AMPLIFIES, FAILS = "passes", "amplifies", "fails"
CANNOT, QUANTIZED = "cannot be built", "is quantized"
LIMIT = 1e-5


def verify_name(name: str, folder: Path) -> dict[str, Any]:
    """Export a model, run it in both, and return what was found."""
    record: dict[str, Any] = {"name": name}
    try:
        with contextlib.redirect_stdout(sys.stderr):
            zoo = load_zoo(name, pretrained=False)
    except MxampError as error:
        return {**record, "status": CANNOT, "reason": str(error)[:300]}
    if any("quantize" in node.op for node in zoo.model.graph.nodes):
        return {**record, "status": QUANTIZED, "reason": "operators on int8 are out of scope"}
    record["inputs"] = {key: list(shape) for key, shape in zoo.input_shapes.items()}
    generator = np.random.default_rng(0)
    data = {key: generator.standard_normal(shape, np.float32) for key, shape in zoo.input_shapes.items()}
    try:
        began = time.perf_counter()
        export = zoo.model.export_onnx(folder / "model.onnx", input_shapes=zoo.input_shapes)
        record["export_seconds"] = round(time.perf_counter() - began, 2)
        record.update(nodes=export.nodes, opset=export.opset, bytes=export.bytes)
        found = OnnxSession(export.path, threads=1).run(data)
        reference = defined_reference(zoo.model)
        expected = run_outputs(reference, data, fusion=False)
    except MxampError as error:
        return {**record, "status": FAILS, "reason": f"{type(error).__name__}: {str(error)[:500]}"}
    record["errors"] = [_rounded(_error(ours, theirs)) for ours, theirs in zip(found, expected)]
    record["outputs"] = list(export.outputs)
    if max(record["errors"]) <= LIMIT:
        return {**record, "status": PASSES}
    moved = {key: values * _last_bits(values.shape) for key, values in data.items()}
    changed = run_outputs(reference, moved, fusion=False)
    record["amplified"] = [_rounded(_error(new, old)) for new, old in zip(changed, expected)]
    within = all(error <= max(LIMIT, 10 * own) for error, own in zip(record["errors"], record["amplified"]))
    if any(ours.shape != theirs.shape for ours, theirs in zip(found, expected)):
        return {**record, "status": FAILS, "reason": "shapes differ"}
    return {**record, "status": AMPLIFIES if within else FAILS}


def _last_bits(shape: Sequence[int]) -> NDArray[np.float32]:
    """Return factors that change float32 values by about a unit in the last place, up or down."""
    signs = np.random.default_rng(1).choice([-1, 1], shape)
    return (1 + signs * 2.0**-23).astype(np.float32)


def _error(found: NDArray[Any], expected: NDArray[Any]) -> float:
    return float("inf") if found.shape != expected.shape else relative_error(found, expected)


def _rounded(value: float) -> float:
    return float(f"{value:.2e}")


def _wanted(patterns: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    for pattern in patterns:
        found = fnmatch.filter(names, pattern)
        if not found:
            raise SystemExit(f"The zoo has no model {pattern!r}.")
        yield from found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="names or shell patterns (default: a dozen)")
    parser.add_argument("--all", action="store_true", help="every name of the zoo")
    parser.add_argument(
        "--results", type=Path, metavar="FILE.jsonl", help="append results, skip what is there"
    )
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", module=r"(mxnet|gluoncv)(\..*)?")
    known = zoo_names()
    names = known if options.all else list(dict.fromkeys(_wanted(options.names or SHORT, known)))
    done: dict[str, Mapping[str, Any]] = {}
    if options.results is not None and options.results.exists():
        lines = options.results.read_text("utf-8").splitlines()
        done = {record["name"]: record for record in map(json.loads, lines)}
    print("\n".join(machine_lines(describe_machine(seed=0))))
    print(f"{len(names)} models, {len(done)} done before")
    statuses = [str(done[name]["status"]) for name in names if name in done]
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(names, 1):
            if name in done:
                continue
            began = time.perf_counter()
            record = verify_name(name, Path(folder))
            statuses.append(record["status"])
            if options.results is not None:
                with options.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
            worst = f"{max(record['errors']):.1e}" if record.get("errors") else record.get("reason", "")
            seconds = time.perf_counter() - began
            print(
                f"[{number}/{len(names)}] {name:40} {record['status']:10} {worst} ({seconds:.0f} s)",
                flush=True,
            )
            gc.collect()
    counts = {status: statuses.count(status) for status in (PASSES, AMPLIFIES, FAILS, CANNOT, QUANTIZED)}
    print(", ".join(f"{count} {status}" for status, count in counts.items()))
    return 1 if counts[FAILS] else 0


if __name__ == "__main__":
    prepare_environment()
    sys.exit(main())
