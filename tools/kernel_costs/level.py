"""Make a target's kernels take as long in the mean as they take where they are timed again and again.

    python -m tools.benchmark_estimates --kernel-seconds 600 --seed 200000000 --output found.json NETWORK...
    python -m tools.kernel_costs.level TARGET.json found.json

Rates are fitted to kernels that are timed once each, in the first graph that holds them, and accidents make
these longer in the mean. A network's kernels run again and again, and so do those that estimates are judged
by. How much less those take, two kinds say: random kernels, each in some twenty graphs, and networks in
float32. What lies midway between the two is what all kernels of the target are made longer or shorter by, in
both dtypes, so that which of them is faster stays as it was.

Nothing that `make bench-estimates` judges by may be among them: neither its networks nor its kernels.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from statistics import fmean
from typing import Any, Mapping, Sequence

from mxamp.probe.time_kernels import JUDGE_SEED
from mxamp.targets.kernel_cost import cost_from_document, cost_to_document, slower_by
from tools.benchmark_models.names import MODELS
from tools.kernel_costs.timings import read_target, write_target
from tools.networks.names import NETWORK_NAMES


def main(arguments: Sequence[str] | None = None) -> None:
    """Read what was found, and write the target."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", type=Path, help="the target's document, which has costs of kernels")
    parser.add_argument(
        "found", type=Path, nargs="+", help="what benchmark_estimates wrote, with that target"
    )
    given = parser.parse_args(arguments)
    document, target = read_target(parser, given.target)
    kernels: list[float] = []
    networks: list[float] = []
    for path in given.found:
        found = json.loads(path.read_text("utf-8"))
        if found["target"] != target.name:
            parser.error(f"{path} is of the target {found['target']}, not of {target.name}")
        judged = sorted({*found["networks"]} & {*MODELS, *NETWORK_NAMES})
        if judged or found.get("seed", 0) >= JUDGE_SEED:
            what = ", ".join(judged) or f"kernels from seed {found['seed']} on"
            parser.error(f"{path}: make bench-estimates judges by {what}; no level may come from them")
        kernels += kernels_longer(found)
        networks += networks_longer(found)
    kinds = [own for own in (kernels, networks) if own]
    if not kinds:
        parser.error("neither kernels nor networks were measured")
    for what, own in (("random kernels", kernels), ("networks", networks)):
        if own:
            print(f"{len(own)} {what} take {math.exp(fmean(own)):.3f} of what is told, in the mean")
    longer = math.exp(fmean(fmean(own) for own in kinds))
    for family, costs in document["cost"]["kernels"].items():
        for label, cost in costs.items():
            costs[label] = cost_to_document(slower_by(cost_from_document(cost, family), longer))
    write_target(given.target, document)
    print(f"all kernels take {longer:.3f} of that now")


def kernels_longer(found: Mapping[str, Any]) -> list[float]:
    """Return logarithms of how many times longer random kernels took than was told, each in the mean."""
    ratios = [found.get("kernels", {}).get(label, {}) for label in ("float32", "bfloat16")]
    return [-math.log(told) for families in ratios for own in families.values() for told in own]


def networks_longer(found: Mapping[str, Any]) -> list[float]:
    """Return logarithms of how many times longer networks took in float32 than was told."""
    return [
        math.log(row["measured_us"]["prepared"] / row["estimated_us"]["float32"])
        for row in found["networks"].values()
    ]


if __name__ == "__main__":
    main()
