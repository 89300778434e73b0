"""Time the kernels of networks where they stand, and add them to a file of timings.

    python -m tools.kernel_costs.networks TARGET.json resnet34_v1 mobilenet0.5:8 --timings kernels.jsonl
    python -m tools.kernel_costs.networks TARGET.json gru_of_384 mtcnn_of_120 --timings kernels.jsonl

Random kernels stand among others of all kinds; those of a network stand where a network has them, behind what
wrote their data, among layers of few kinds. Networks are the zoo's, and those of other kinds in sizes that
the benchmark has not (`tools/networks/relatives.py`). Each runs in float32, prepared, and with all in the low
dtype that can be, in a process of its own. None of the networks that `make bench-estimates` judges by belongs
here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any, Iterator, Mapping, Sequence

import mxamp
from mxamp.decisions.workload import chain_work, model_work
from mxamp.dtypes import DType
from mxamp.graph.infer import infer_with_data_dtypes
from mxamp.ops import FACTS
from mxamp.ops.casts import AMP_CAST
from mxamp.runtime.executor import bind_environment
from mxamp.runtime.mxnet import import_mxnet
from mxamp.runtime.node_profile import forward_of, node_profiler, typical
from mxamp.runtime.node_times import backend_nodes
from mxamp.runtime.shapes import infer_shapes
from mxamp.runtime.symbol import graph_from_symbol
from mxamp.targets import Target
from mxamp.targets.kernel_family import family_of
from tools.benchmark_models.names import MODELS
from tools.kernel_costs.timings import add_arguments, add_timings, read_target
from tools.machine import prepare_environment, use_amx
from tools.networks.names import NETWORK_NAMES

_WARMUP, _PASSES = 5, 20

_MOST_ALIKE = 8
"""So many kernels of a network are kept that do the same."""

_LEAST_US = 0.5
"""Of what takes less the clock's microsecond tells nothing."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Time and keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_arguments(parser)
    parser.add_argument(
        "networks", nargs="*", metavar="NAME[:BATCH]", help="of the zoo, or a relative, with a batch size"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_intermixed_args(arguments)
    prepare_environment()
    use_amx()
    _, target = read_target(parser, given.target)
    if given.child:
        name, _, batch = given.child.partition(":")
        print(json.dumps(list(_kernels_of(name, int(batch or 1), target))))
        return
    judged = [one for one in given.networks if one.partition(":")[0] in (*MODELS, *NETWORK_NAMES)]
    if judged:
        parser.error(f"{', '.join(judged)}: make bench-estimates judges by them; nothing is fitted to these")
    environment = {
        **os.environ,
        "MXNET_ENGINE_TYPE": "NaiveEngine",
        "MXNET_SUBGRAPH_BACKEND": "MKLDNN",
        "OMP_NUM_THREADS": "1",
    }
    for network in given.networks:
        command = [sys.executable, "-W", "ignore", "-m", "tools.kernel_costs.networks", str(given.target)]
        process = subprocess.run(
            [*command, "--child", network], capture_output=True, text=True, check=False, env=environment
        )
        if process.returncode:
            said = (process.stderr.strip().splitlines() or [f"status {process.returncode}"])[-1]
            print(f"{network} failed: {said[:200]}", flush=True)
            continue
        timed = thinned(json.loads(process.stdout.strip().splitlines()[-1]))
        add_timings(given.timings, timed)
        print(f"{network}: {len(timed)} kernels timed", flush=True)


def thinned(timed: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return timed kernels without those that are like many others: cells that are unrolled are thousands."""
    seen: Counter[str] = Counter()
    found = []
    for one in timed:
        kind = json.dumps([one["family"], one["work"], list(one["us"])], sort_keys=True)
        seen[kind] += 1
        if seen[kind] <= _MOST_ALIKE:
            found.append(one)
    return found


def _kernels_of(name: str, batch: int, target: Target) -> Iterator[dict[str, Any]]:
    """Yield the kernels of a network as :func:`mxamp.runtime.kernel_times.time_kernels` returns kernels."""
    from tools.benchmark_models.job import Job
    from tools.benchmark_models.subject import build_subject
    from tools.benchmark_models.variants import prepared_model

    subject = build_subject(Job(name, batch=batch))
    model = subject.model
    converted = mxamp.convert_model(
        model.sym,
        model.args,
        model.auxs,
        target.dtype.label,
        input_shapes=subject.shapes,
        target=target,
        low_precision="required",
    )
    prepared = prepared_model(model, subject.shapes)
    for one in (prepared,) if target.runs_nothing_low else (prepared, converted):
        yield from _timed_nodes(name, one, subject.samples[0], target)


def _timed_nodes(name: str, model: Any, sample: Any, target: Target) -> Iterator[dict[str, Any]]:
    mx, cost = import_mxnet(), target.cost
    assert cost is not None, "read_target ends the program"
    arrays = {**model.args, **{label: mx.nd.array(values) for label, values in sample.items()}}
    with bind_environment(fusion=True, bundles=False):
        executor = model.sym.bind(
            mx.cpu(),
            args={label: arrays[label] for label in model.sym.list_arguments()},
            aux_states={label: model.auxs[label] for label in model.sym.list_auxiliary_states()},
            grad_req="null",
        )
    forward, nodes = forward_of(executor), backend_nodes(model.sym)
    for _ in range(_WARMUP):
        forward()
    taken = typical(node_profiler().time(forward, [node.op for node in nodes], _PASSES))
    graph = graph_from_symbol(model.sym)
    given = {**arrays, **model.auxs}
    shapes = infer_shapes(graph, {label: array.shape for label, array in given.items()}, {})
    dtypes = {label: DType.from_numpy(array.dtype) for label, array in given.items()}
    computes = infer_with_data_dtypes(graph, dtypes)[1]
    works = model_work(graph, shapes, block=cost.block)
    positions = {node.name: position for position, node in enumerate(graph.nodes)}
    for node, us in zip(nodes, taken):
        chain = [positions[member] for member in node.members if member in positions]
        work = chain_work(graph, chain, shapes, [works[position] for position in chain]) if chain else None
        if work is None or us < _LEAST_US:
            continue
        names = [FACTS.canonical(graph.nodes[position].op) for position in chain]
        tails = [(op, works[position]) for op, position in zip(names[1:], chain[1:])]
        if any(own is not None and cost.curve_microseconds(op, own, low=False) for op, own in tails):
            continue  # what their exp takes is not of the layer
        is_low = computes[chain[0]] is target.dtype
        if names[0] == AMP_CAST:  # up counts as low
            is_low = graph.nodes[chain[0]].attrs.get("dtype") != target.dtype.label
        yield {
            "guest": True,
            "network": name,
            "family": family_of(names[0], work),
            "op": graph.nodes[chain[0]].op,
            "work": work.to_document(),
            "us": {"low" if is_low else "float32": round(float(us), 2)},
        }


if __name__ == "__main__":
    main()
