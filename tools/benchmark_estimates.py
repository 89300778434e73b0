"""Hold estimates against measurements: of kernels of random shapes, and of whole networks.

Kernels have shapes that no cost was fitted on. Whole networks run as they are deployed: float32 with its
graph prepared, converted with shapes, converted without, by turns in one process. Short ones run in several
processes, whose median counts. The costs are those of the target of this machine, or of one that
`mxamp probe` wrote. With one thread, all of it keeps to one core.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, Mapping, Sequence

import numpy as np

import mxamp
from mxamp.compare.race import race
from mxamp.dtypes import DType
from mxamp.probe.kernel_samples import KernelSample, by_family, read_kernels
from mxamp.probe.time_kernels import JUDGE_SEED, KernelTiming, time_in_surroundings
from mxamp.targets import AUTO, Target, resolve_target
from mxamp.targets.cost import CAST_DOWN, CAST_UP
from tools.benchmark_models.names import MODELS
from tools.machine import describe_machine, machine_lines, prepare_environment, use_amx
from tools.networks.names import NETWORK_NAMES

_KERNELS_A_SECOND = 0.25
"""So that each is timed some twenty-five times (AMD EPYC, one thread), for what one takes in the mean of ten
may be off by a tenth."""

_FEWEST_TIMES = 3

_SHORT_US = 20_000.0
"""Networks that take less in float32 take other times in other processes: where their arrays come to lie, and
what the caches' sets hold, is a large part of it."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "models", nargs="*", help="names, also of networks apart; by default all of `make bench`"
    )
    parser.add_argument(
        "--kernel-seconds", type=float, default=1200, help="how long to time kernels; 0 for not"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=JUDGE_SEED,
        help="of the first kernel; by default one that no costs are fitted to",
    )
    parser.add_argument("--seconds", type=float, default=4, help="how long to run each network")
    parser.add_argument(
        "--visits", type=int, default=5, help="in how many processes to run networks of less than 20 ms"
    )
    parser.add_argument("--batch", type=int, default=1, help="the batch size of the networks")
    parser.add_argument(
        "--target", default=AUTO, help="a target's name or file; by default that of this machine"
    )
    parser.add_argument("--output", type=Path, default=Path("estimates.json"))
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    prepare_environment()
    use_amx()
    if given.child:
        print(json.dumps(network_of(given.child, given.seconds, batch=given.batch, target=given.target)))
        return
    for line in machine_lines(describe_machine()):
        print(line)
    target = resolve_target(given.target, DType.BFLOAT16)
    print(f"target {target.name}: {'' if target.cost is None else target.cost.machine}\n")
    result: dict[str, Any] = {"machine": describe_machine(), "target": target.name, "batch": given.batch}
    if given.kernel_seconds:
        result["seed"] = given.seed
        result["kernels"] = kernels_of(target, given.kernel_seconds, given.seed)
    result["networks"] = {}
    for name in given.models or (*MODELS, *NETWORK_NAMES):
        try:
            row = _visit(name, given.seconds, given.visits, given.batch, given.target)
        except RuntimeError as error:
            print(f"{name:30s} failed: {error}")
            continue
        result["networks"][name] = row
        print(_line(name, row), flush=True)
        given.output.write_text(json.dumps(result, indent=1), "utf-8")
    _summary(list(result["networks"].values()))
    given.output.write_text(json.dumps(result, indent=1), "utf-8")


def _keep_to_one_core() -> None:
    """Stay on one core where one thread computes.

    MXNet hands each call on to a thread of its own. To wake that on another core takes 50 to 100 microseconds
    on a virtual machine, there and back, which for a small network is more than all of its operators take.
    """
    if os.environ.get("OMP_NUM_THREADS") == "1" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


# ---------------------------------------------------------------------- kernels


def kernels_of(target: Target, seconds: float, seed: int = JUDGE_SEED) -> dict[str, Any]:
    """Return how well the target's prices predict kernels of random shapes, and how well their own times do.

    Each kernel is timed in graphs of other kernels each time, and held against the geometric mean of its
    times, and estimates against theirs. A single time depends as much on what else is in the graph: how well
    it is told by what the very same kernel takes in other graphs says how well any estimate could tell it.
    """
    timing = KernelTiming(DType.BFLOAT16, dict(os.environ), seconds)
    count = max(1, round(_KERNELS_A_SECOND * seconds))
    each = time_in_surroundings(timing, target, count, seed=seed)
    # A cast is two kernels: down and up.
    kernels = [kernel for times in each for kernel in by_family(read_kernels(times)).items()]
    found: dict[str, Any] = {}
    for label, low in (("float32", False), ("bfloat16", True)):
        ratios: dict[str, list[float]] = {}
        single: list[float] = []
        elsewhere: list[float] = []
        for family, samples in kernels:
            timed = [(sample, time) for sample in samples for time in [sample.times[low]] if time]
            if len(timed) < _FEWEST_TIMES:
                continue
            measured = [time for _, time in timed]
            estimated = [_estimate(target, sample, low=low) for sample, _ in timed]
            ratios.setdefault(family, []).append(geometric_mean(estimated) / geometric_mean(measured))
            for number, time in enumerate(measured):
                single.append(estimated[number] / time)
                elsewhere.append(median(measured[:number] + measured[number + 1 :]) / time)
        everything = [ratio for own in ratios.values() for ratio in own]
        if not everything:
            print(f"{label}: no kernel runs in it here")
            continue
        print(f"{label}: {len(everything)} kernels, {_within(everything)}")
        print(f"  {'each time for itself':30s} {len(single):5d}  {_within(single)}")
        print(f"  {'told by its other times':30s} {len(elsewhere):5d}  {_within(elsewhere)}")
        for family, own in sorted(ratios.items(), key=lambda item: -len(item[1]))[:12]:
            print(f"  {family:30s} {len(own):5d}  {_within(own)}, median ratio {np.median(own):.2f}")
        found[label] = ratios
        found[f"{label}, each time"] = single
        found[f"{label}, told by its other times"] = elsewhere
    print()
    return found


def _estimate(target: Target, sample: KernelSample, *, low: bool) -> float:
    cost, work = target.cost, sample.work
    assert cost is not None, "the target has no costs"
    if sample.family not in (CAST_DOWN, CAST_UP):
        return cost.microseconds(sample.op, work, low=low)
    return cost.cast_microseconds(
        work.elements // 2,
        shape=work.inputs[0],
        is_blocked=work.is_blocked,
        arrives_in=work.arrives_in[0],
        around=work.around,
        operators=work.operators,
        down=sample.family == CAST_DOWN,
    )


def _within(ratios: Sequence[float]) -> str:
    off = np.exp(np.abs(np.log(ratios)))
    return f"{100 * np.mean(off <= 1.25):.0f} % within 1.25, {100 * np.mean(off <= 2):.0f} % within 2"


# ---------------------------------------------------------------------- networks


def _visit(name: str, seconds: float, visits: int, batch: int, target: str) -> dict[str, Any]:
    """Return what :func:`network_of` returns in a process of its own; of a short one, medians over several.

    Raises
    ------
    RuntimeError
        When a process does not answer.
    """
    command = [sys.executable, "-W", "ignore", "-m", "tools.benchmark_estimates"]
    command += ["--child", name, "--seconds", str(seconds), "--batch", str(batch), "--target", target]
    found: list[dict[str, Any]] = []
    while not found or (found[0]["measured_us"]["prepared"] < _SHORT_US and len(found) < visits):
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            found.append(json.loads(process.stdout.strip().splitlines()[-1]))
        except (IndexError, ValueError) as error:
            said = (process.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise RuntimeError(said[:120]) from error
    each = {label: [one["measured_us"][label] for one in found] for label in found[0]["measured_us"]}
    measured = {label: median(own) for label, own in each.items()}
    return {**found[0], "measured_us": measured, "visits_us": each}


def network_of(name: str, seconds: float, *, batch: int = 1, target: str = AUTO) -> dict[str, Any]:
    """Return how well a target's prices predict a network, layer by layer."""
    from tools.benchmark_models.job import Job
    from tools.benchmark_models.subject import build_subject
    from tools.benchmark_models.variants import first_equals, prepared_model

    subject = build_subject(Job(name, batch=batch))
    model = subject.model
    sym, args, auxs = model.sym, model.args, model.auxs
    options: dict[str, Any] = {"target": target}
    converted = mxamp.convert_model(sym, args, auxs, "bfloat16", input_shapes=subject.shapes, **options)
    models = {
        "float32": model,
        "prepared": prepared_model(model, subject.shapes),
        "with shapes": converted,
        "without shapes": mxamp.convert_model(sym, args, auxs, "bfloat16", **options),
    }
    # Of one model raced twice either would win: what runs before it leaves other things in the caches.
    raced_as = first_equals(models)
    raced = {label: own for label, own in models.items() if raced_as[label] == label}
    found = race(
        list(raced.values()),
        subject.samples[0],
        labels=list(raced),
        rounds=300,
        seconds=seconds,
        at_least=7,
        is_clear=None,
    )
    estimate = converted.report.time
    assert estimate is not None
    measured_us = {label: 1e3 * own for label, own in zip(raced, found.median_ms)}
    return {
        "estimated_us": {"float32": estimate.float32_us, "mixed": estimate.mixed_us},
        "measured_us": {label: measured_us[raced_as[label]] for label in models},
    }


def _figures(row: Mapping[str, Any]) -> tuple[float, float, float, float, float]:
    """Return what a network is judged by, as ratios.

    Estimated over measured time, the same of the speed-up, the speed with shapes over FP32 and over no
    shapes, and that without shapes over FP32.
    """
    estimated, measured = row["estimated_us"], row["measured_us"]
    time_ratio = estimated["float32"] / measured["prepared"]
    speed = (estimated["float32"] / estimated["mixed"]) / (measured["prepared"] / measured["with shapes"])
    return (
        time_ratio,
        speed,
        measured["float32"] / measured["with shapes"],
        measured["without shapes"] / measured["with shapes"],
        measured["float32"] / measured["without shapes"],
    )


def _line(name: str, row: Mapping[str, Any]) -> str:
    time_ratio, speed, gain, over_without, _ = _figures(row)
    estimated, measured = row["estimated_us"], row["measured_us"]
    return (
        f"{name:28s} float32 {measured['prepared'] / 1000:9.3f} ms{_spread(row)}, estimated "
        f"{estimated['float32'] / 1000:9.3f} ({time_ratio:.2f}); speed-up "
        f"{measured['prepared'] / measured['with shapes']:.2f}, estimated "
        f"{estimated['float32'] / estimated['mixed']:.2f} ({speed:.2f}); "
        f"of float32 {gain:.2f}, of without shapes {over_without:.2f}"
    )


def _spread(row: Mapping[str, Any]) -> str:
    """Return between which times visits lie; empty where there was one."""
    visits = row["visits_us"]["prepared"]
    return f" ({min(visits) / 1000:.3f} to {max(visits) / 1000:.3f})" if len(visits) > 1 else ""


def _summary(rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        return
    figures = np.array([_figures(row) for row in rows])
    off = np.exp(np.abs(np.log(figures[:, :2])))
    # How fast the host is in this hour is one number for all, and what a plan takes from costs are ratios.
    factor = float(np.median(figures[:, 0]))
    besides = np.exp(np.abs(np.log(figures[:, 0] / factor)))
    print(f"\n{len(rows)} networks:")
    print(f"  time within 20 %: {np.sum(off[:, 0] <= 1.2)}, within 2: {np.sum(off[:, 0] <= 2)}")
    print(f"  with the common factor of {factor:.2f} taken out, within 20 %: {np.sum(besides <= 1.2)}")
    print(f"  speed-up within 10 %: {np.sum(off[:, 1] <= 1.1)}, within 20 %: {np.sum(off[:, 1] <= 1.2)}")
    for what, own in zip(
        ("with shapes, of float32", "with shapes, of without shapes", "without shapes, of float32"),
        figures[:, 2:].T,
    ):
        print(
            f"  {what}: {geometric_mean(own):.2f} in the geometric mean, least {own.min():.2f}, "
            f"below 0.97: {np.sum(own < 0.97)}"
        )


if __name__ == "__main__":
    _keep_to_one_core()
    main()
