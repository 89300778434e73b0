"""Price a machine's kernels that were timed on another machine alone, by what was timed on both.

Two CPUs that run the same kernels of the same library differ in speed more than in which kernels are slow.
So a tree of the machine where kernels were timed (``--from``) is carried over to another target (``--to``):
each leaf is multiplied by the ratio of the two machines' times in the tables of operators that ``mxamp
probe`` made on both, the median over the kernels that were timed of that leaf. The target says that it was
not measured.

    python -m tools.carry_over_costs --from cpu-bf16-intel --to cpu-bf16 kernels.jsonl
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any, Mapping, Sequence

import mxamp.targets
from mxamp.probe.document import document_text
from mxamp.probe.fit_kernels import KernelSample, by_family, read_kernels
from mxamp.targets import CostModel, Target
from mxamp.targets.kernel_terms import amounts_and_traits

BUILTIN = Path(mxamp.targets.__file__).parent / "builtin"


def main() -> None:
    """Write the target."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--from", dest="source", required=True, help="the target that was timed")
    parser.add_argument("--to", required=True, help="the target whose kernels are to be priced")
    parser.add_argument(
        "--by-table",
        action="append",
        default=[],
        help="a family whose low precision the table of the other machine tells better, over float32",
    )
    parser.add_argument("kernels", nargs="+", type=Path, help="what was timed, a JSON object a line")
    given = parser.parse_args()
    samples = read_kernels(json.loads(line) for path in given.kernels for line in path.open())
    path = BUILTIN / f"{given.to}.json"
    document = json.loads(path.read_text("utf-8"))
    own, other = (_table(name) for name in (given.to, given.source))
    families = by_family(samples)
    cost = document["cost"]
    cost["kernels_measured"] = (
        f"not on this machine: timed with the same MXNet on {_machine(given.source)}; "
        "multiplied by the ratio of the two machines in the tables of operators, which were measured on both"
    )
    cost["kernels"] = {
        family: {
            label: _carried(tree, families[family], own, other, low=label == "low")
            for label, tree in trees.items()
            if label == "float32" or family not in given.by_table
        }
        for family, trees in Target.builtin_document(given.source)["cost"]["kernels"].items()
    }
    path.write_text(document_text(document), "utf-8")


def _machine(name: str) -> str:
    cost = Target.builtin(name).cost
    assert cost is not None
    return f"{name}: {cost.machine}"


def _table(name: str) -> CostModel:
    """Return the costs of a built-in target without its kernels."""
    cost = Target.builtin(name).cost
    assert cost is not None
    return CostModel(
        cost.flops_per_us, cost.bytes_per_us, cost.overhead_us, cost.cast, cost.operators, cost.default
    )


def _carried(
    tree: Mapping[str, Any], samples: Sequence[KernelSample], own: CostModel, other: CostModel, *, low: bool
) -> dict[str, Any]:
    if "trait" in tree:
        parts: list[list[KernelSample]] = [[], []]
        for sample in samples:
            traits = amounts_and_traits(sample.op, sample.work, low=low)[1]
            parts[traits[tree["trait"]] >= tree["below"]].append(sample)
        return {
            **tree,
            "then": _carried(tree["then"], parts[0] or samples, own, other, low=low),
            "else": _carried(tree["else"], parts[1] or samples, own, other, low=low),
        }
    ratio = statistics.median(_time(own, sample, low) / _time(other, sample, low) for sample in samples)
    return {name: float(f"{rate * ratio:.4g}") for name, rate in tree.items()}


def _time(cost: CostModel, sample: KernelSample, low: bool) -> float:
    if sample.family.startswith("cast "):
        return cost.cast_microseconds(sample.work.elements // 2)
    return cost.microseconds(sample.op, sample.work, low=low)


if __name__ == "__main__":
    main()
