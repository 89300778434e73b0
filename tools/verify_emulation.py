"""Hold emulation against the real thing, and measure FP16 where no machine at hand runs it.

    python -m tools.verify_emulation                        (all networks, both parts)
    python -m tools.verify_emulation resnet50_v1 --part bfloat16

**bfloat16** is real on this CPU. Every network is converted, and every layer of it is run alone, real and
emulated, on the same inputs, with fusion off and as deployed; distances are relative L2 errors. Beside it
stands that of the same layer without rounding: emulation is right where the first is far below the second.
Then the whole networks, where differences in the order of float32 sums make roundings fall otherwise here and
there and spread; how much that is shows the real bfloat16 itself, run once more without the processor's
bfloat16 instructions.

**float16** can only be emulated here. Every network is emulated with the mixed policy and pure, and compared
with FP32; overflow and underflow are counted. Detectors are measured by the tensors that enter their first
ranking, and by their boxes after matching, beside FP32 with fusion on, which shows what ranking alone does.

Weights are RANDOM: errors are those of rounding, and say nothing about accuracy.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

import mxamp
from mxamp.compare.metrics import DistanceMeter
from mxamp.compare.rounding_losses import rounding_losses
from mxamp.errors import MxampError
from mxamp.model import Model
from mxamp.runtime.executor import run_outputs
from mxamp.runtime.zoo import load_zoo
from mxamp.targets import Target
from tools.emulation_by_layer import LayerAgreement, LayerSummary, layer_agreements, summarize
from tools.machine import ROOT, describe_machine, machine_lines, prepare_environment
from tools.zoo_graphs import (
    NETWORKS,
    PRIMITIVE_FORMS,
    BoxMatch,
    before_ranking,
    first_rankings,
    match_boxes,
    primitive_box_decoding,
)

__all__ = [
    "Bfloat16Agreement",
    "Float16Fidelity",
    "build_network",
    "main",
    "measure_bfloat16",
    "measure_float16",
]

PARTS = ("bfloat16", "float16")
PRIMITIVE = "+primitive"
"""Put after a detector's name: its second graph form."""


@dataclass(frozen=True)
class Bfloat16Agreement:
    """Relative L2 errors of emulated bfloat16 and of the real one on this CPU.

    Attributes
    ----------
    network
        Its name.
    unfused_layers, fused_layers
        How many layers were compared, fusion off and as deployed; and of their errors the median and the
        largest when emulated, and the median without rounding.
    emulated_real
        The whole network as deployed, emulated against real.
    real_real
        The real one against itself without bfloat16 instructions; None where that was not measured.
    real_fp32, emulated_fp32
        Against FP32.
    worst
        The layers that agree least, as deployed.
    approximations
        What the report says emulation cannot show.
    """

    network: str
    unfused_layers: LayerSummary
    fused_layers: LayerSummary
    emulated_real: float
    real_real: float | None
    real_fp32: float
    emulated_fp32: float
    worst: tuple[LayerAgreement, ...]
    approximations: tuple[str, ...]


@dataclass(frozen=True)
class Float16Fidelity:
    """What float16 does to a network, emulated.

    Attributes
    ----------
    network
        Its name.
    mixed, pure
        Relative L2 error against FP32 of the outputs, or of what enters a detector's first ranking.
    overflowing_mixed, overflowing_pure
        How many roundings overflowed, mixed and pure.
    boxes_mixed, boxes_pure, boxes_fp32
        For detectors, the boxes matched with FP32's; the last are FP32's own with fusion on.
    """

    network: str
    mixed: float
    pure: float
    overflowing_mixed: int
    overflowing_pure: int
    boxes_mixed: BoxMatch | None = None
    boxes_pure: BoxMatch | None = None
    boxes_fp32: BoxMatch | None = None


def measure_bfloat16(network: str, *, size: int | None = None, seed: int = 0) -> Bfloat16Agreement:
    """Compare emulated bfloat16 with real bfloat16 on one network."""
    model, data = build_network(network, size, seed)
    graph, args, auxs = model.graph, model.arg_params, model.aux_params
    real = mxamp.convert_model(graph, args, auxs, "bfloat16")
    emulated = mxamp.emulate(graph, args, auxs, "bfloat16")
    target = Target.builtin("cpu-bf16")
    unfused, fused = (layer_agreements(real, data, target, fusion=fusion) for fusion in (False, True))
    rankings = first_rankings(graph)
    models = [model, real, emulated]
    if rankings:
        models = [before_ranking(each, rankings) for each in models]
    expected = run_outputs(models[0], data, fusion=False)
    truth, emulation = (run_outputs(each, data) for each in models[1:])
    other = _without_instructions(network, size, seed)
    assert emulated.report is not None  # a conversion always has one
    return Bfloat16Agreement(
        network=network,
        unfused_layers=summarize(unfused),
        fused_layers=summarize(fused),
        emulated_real=_error(truth, emulation),
        real_real=None if other is None else _error(truth, other),
        real_fp32=_error(expected, truth),
        emulated_fp32=_error(expected, emulation),
        worst=tuple(sorted(fused, key=lambda layer: -layer.emulated)[:3]),
        approximations=emulated.report.approximations,
    )


def _without_instructions(network: str, size: int | None, seed: int) -> list[NDArray[Any]] | None:
    """Return the real model's outputs without the processor's bfloat16 instructions."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "outputs.npz")
        command = [sys.executable, "-m", "tools.verify_emulation", network, "--seed", str(seed)]
        command += ["--real-outputs", str(path), *([] if size is None else ["--size", str(size)])]
        # oneDNN reads it once, before its first primitive.
        environment = {**os.environ, "DNNL_MAX_CPU_ISA": "AVX512_CORE"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
        if done.returncode != 0:
            print(f"{network} without bfloat16 instructions: {done.stderr.strip()[-200:]}", file=sys.stderr)
            return None
        with np.load(path) as file:
            return [file[name] for name in file.files]


def save_real_outputs(path: Path, network: str, size: int | None, seed: int) -> None:
    """Write the outputs of the real bfloat16 model, or of a detector what enters its first ranking."""
    model, data = build_network(network, size, seed)
    real = mxamp.convert_model(model.graph, model.arg_params, model.aux_params, "bfloat16")
    rankings = first_rankings(model.graph)
    np.savez(path, *run_outputs(before_ranking(real, rankings) if rankings else real, data))


def measure_float16(network: str, *, size: int | None = None, seed: int = 0) -> Float16Fidelity:
    """Emulate float16 on one network, mixed and pure."""
    model, data = build_network(network, size, seed)
    graph, args, auxs = model.graph, model.arg_params, model.aux_params
    mixed = mxamp.emulate(graph, args, auxs, "float16")
    pure = mxamp.emulate(graph, args, auxs, "float16", policy="pure")
    rankings = first_rankings(graph)
    boxes: list[BoxMatch | None] = [None, None, None]
    models = [model, mixed, pure]
    if rankings:
        if len(graph.heads) == 3:  # class numbers, scores, boxes
            detected = run_outputs(model, data, fusion=False)
            boxes = [
                match_boxes(detected, run_outputs(each, data, fusion=fusion))
                for each, fusion in ((mixed, False), (pure, False), (model, True))
            ]
        models = [before_ranking(each, rankings) for each in models]
    expected, got_mixed, got_pure = (run_outputs(each, data, fusion=False) for each in models)
    overflowing = [sum(loss.overflowed > 0 for loss in rounding_losses(each, data)) for each in (mixed, pure)]
    return Float16Fidelity(
        network, _error(expected, got_mixed), _error(expected, got_pure), *overflowing, *boxes
    )


def build_network(network: str, size: int | None, seed: int) -> tuple[Model, dict[str, NDArray[Any]]]:
    """Return a network with random weights, and random data for it."""
    name = network[: -len(PRIMITIVE)] if network.endswith(PRIMITIVE) else network
    pixels = size or NETWORKS[name]
    form = primitive_box_decoding() if network.endswith(PRIMITIVE) else contextlib.nullcontext()
    with form:
        zoo = load_zoo(name, pretrained=False, input_shapes={"data": (1, 3, pixels, pixels)}, seed=seed)
    random = np.random.default_rng(seed)
    return zoo.model, {"data": random.normal(0.0, 1.0, (1, 3, pixels, pixels)).astype(np.float32)}


def _error(reference: Sequence[NDArray[Any]], other: Sequence[NDArray[Any]]) -> float:
    """Return the largest relative L2 error over several tensors."""
    errors = []
    for left, right in zip(reference, other):
        meter = DistanceMeter()
        meter.add(left, right)
        errors.append(meter.result().relative_l2)
    return max(errors)


# ---------------------------------------------------------------------- printing


def bfloat16_table(rows: Sequence[Bfloat16Agreement]) -> list[str]:
    """Return a Markdown table: layers alone with fusion off and as deployed, then whole networks."""
    lines = [
        "| network | layers | median | largest | fused layers | median | largest | not rounded "
        "| emulated - real | real - real | real - FP32 | emulated - FP32 |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [row.network]
        for layers in (row.unfused_layers, row.fused_layers):
            cells += [str(layers.count), _number(layers.median), _number(layers.largest)]
        cells.append(_number(row.fused_layers.unrounded))
        for value in (row.emulated_real, row.real_real, row.real_fp32, row.emulated_fp32):
            cells.append("-" if value is None else _number(value))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def float16_table(rows: Sequence[Float16Fidelity]) -> list[str]:
    """Return a Markdown table, and another of boxes."""
    lines = ["| network | mixed | pure | overflows, mixed | overflows, pure |", "|---|---|---|---|---|"]
    for row in rows:
        lines.append(
            f"| {row.network} | {_number(row.mixed)} | {_number(row.pure)} | {row.overflowing_mixed} "
            f"| {row.overflowing_pure} |"
        )
    detectors = [row for row in rows if row.boxes_mixed is not None]
    if detectors:
        lines += [
            "",
            "| detector | boxes | matched: mixed | pure | FP32, fused | mean overlap: mixed | pure | FP32, "
            "fused |",
            "|---|---|---|---|---|---|---|---|",
        ]
    for row in detectors:
        matches = (row.boxes_mixed, row.boxes_pure, row.boxes_fp32)
        assert row.boxes_mixed is not None  # chosen so
        shares = [f"{100 * match.matched:.1f} %" for match in matches if match is not None]
        overlaps = [f"{match.mean_overlap:.4f}" for match in matches if match is not None]
        lines.append(f"| {row.network} | {row.boxes_mixed.boxes} | {' | '.join([*shares, *overlaps])} |")
    return lines


def _number(value: float) -> str:
    return "0" if value == 0 else f"{value:.1e}" if math.isfinite(value) else str(value)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*NETWORKS, *(f"{name}{PRIMITIVE}" for name in PRIMITIVE_FORMS)]
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="default: all")
    parser.add_argument("--part", choices=PARTS, action="append", help="default: both")
    parser.add_argument("--seed", type=int, default=0, help="of weights and data (default: 0)")
    parser.add_argument("--size", type=int, metavar="N", help="height and width of the input, for all")
    parser.add_argument("--real-outputs", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there, too")
    args = parser.parse_args(argv)
    unknown = [name for name in args.networks if name not in names]
    if unknown:
        parser.error(f"there is no network {unknown[0]!r} here; there are: {', '.join(names)}")
    prepare_environment()
    warnings.simplefilter("ignore")
    if args.real_outputs is not None:
        save_real_outputs(args.real_outputs, args.networks[0], args.size, args.seed)
        return 0
    machine = describe_machine(seed=args.seed)
    print("\n".join(machine_lines(machine)))
    print("Weights   RANDOM, so errors are those of rounding, and outputs mean nothing\n")
    agreements: list[Bfloat16Agreement] = []
    fidelities: list[Float16Fidelity] = []
    for name in args.networks or names:
        for part in args.part or PARTS:
            started = time.perf_counter()
            try:
                if part == "bfloat16":
                    agreements.append(measure_bfloat16(name, size=args.size, seed=args.seed))
                else:
                    fidelities.append(measure_float16(name, size=args.size, seed=args.seed))
            except MxampError as error:
                print(f"{name} {part}: {error}", file=sys.stderr)
                continue
            print(f"{name} {part}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
            if args.json is not None:  # after each, for all of them take a while
                document = {
                    "machine": machine,
                    "bfloat16": [asdict(row) for row in agreements],
                    "float16": [asdict(row) for row in fidelities],
                }
                args.json.write_text(json.dumps(document, indent=1), "utf-8")
    if agreements:
        print("\n".join(bfloat16_table(agreements)) + "\n")
        for row in agreements:
            for layer in row.worst:
                print(f"{row.network}: {layer.name} ({', '.join(layer.operators)}) {_number(layer.emulated)}")
            for sentence in row.approximations:
                print(f"{row.network}: {sentence}")
    if fidelities:
        print("\n".join(float16_table(fidelities)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
