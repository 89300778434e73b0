"""A BatchNorm before its layer, as residual networks of the second kind have it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mxamp.dtypes import DType
from mxamp.graph import Entry, Graph
from mxamp.graph.shapes import infer_entry_shapes
from mxamp.passes import ConvolveBatchNorm, State
from mxamp.targets import Target
from tests.building import (
    BF16,
    Net,
    planned_state,
)
from tests.passes.harness import run_pass

CHANNELS = 16


class PreActivation(Net):
    """Convolution -> Concat with itself -> BatchNorm -> Activation -> Convolution, as in DenseNet."""

    def __init__(self, channels: int = CHANNELS, *, head: bool = False, **attrs: Any) -> None:
        super().__init__()
        rng = np.random.default_rng(3)
        self.x = self.var("x")
        first = self.layer(self.x, "first", 3, channels // 2)
        self.joined = self.op("Concat", first, first, name="joined", dim=1, num_args=2)
        parts = []
        for part, low, high in (
            ("gamma", 0.5, 2),
            ("beta", -1, 1),
            ("moving_mean", -1, 1),
            ("moving_var", 0.1, 4),
        ):
            parts.append(self.param(f"bn_{part}", channels))
            self.params[f"bn_{part}"] = rng.uniform(low, high, channels).astype(np.float32)
        options = {"fix_gamma": False, **attrs}
        self.norm = self.op("BatchNorm", self.joined, *parts, name="bn", outputs=3, **options)
        self.last = self.norm
        if not head:
            relu = self.op("Activation", self.norm, name="relu", act_type="relu")
            self.last = self.layer(relu, "second", channels, 4)

    def layer(self, data: Entry, name: str, channels: int, filters: int, kernel: str = "(1, 1)") -> Entry:
        size = tuple(int(length) for length in kernel.strip("()").split(","))
        weight = self.param(f"{name}_weight", filters, channels, *size)
        options = {"num_filter": filters, "kernel": kernel, "no_bias": True}
        return self.op("Convolution", data, weight, name=name, **options)

    def set(self, name: str, **attrs: str) -> None:
        """Change attributes of a node."""
        for position, node in enumerate(self.nodes):
            if node.name == name:
                self.nodes[position] = node._replace(attrs={**node.attrs, **attrs})


def convolve(
    graph: Graph,
    params: dict[str, Any],
    dtype: DType = BF16,
    *,
    image: tuple[int, ...] | None = None,
    target: Target | None = None,
    **options: Any,
) -> tuple[Graph, State]:
    """Run the pass under the harness; parameters that the first run replaced are those of the second.

    ``image`` is the shape of the input, where shapes are known.
    """

    def again(done: State) -> State:
        values = {name: np.asarray(value.numpy(), np.float32) for name, value in done.params.items()}
        return planned_state(done.graph, values, dtype, **options)

    start = planned_state(graph, params, dtype, **options)
    if image is not None:
        known = {name: value.shape for name, value in start.params.items()}
        start = replace(start, shapes=infer_entry_shapes(graph, {"x": image}, known).entries)
    if target is not None:
        start = replace(start, target=target)
    done = run_pass(start, ConvolveBatchNorm(), again, variables_may_go=True)
    return done.graph, done
