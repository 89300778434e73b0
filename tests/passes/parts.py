"""Building networks in which channels are put together."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxamp.graph import Entry
from tests.building import Net

__all__ = ["Parts"]


class Parts(Net):
    """Layers with random weights, and what puts together and takes apart what they make."""

    def __init__(self, seed: int = 5) -> None:
        super().__init__()
        self.random = np.random.default_rng(seed)

    def values(self, name: str, *shape: int) -> Entry:
        entry = self.param(name, *shape)
        self.params[name] = self.random.normal(0, 0.2, shape).astype(np.float32)
        return entry

    def layer(
        self, data: Entry, name: str, channels: int, filters: int, window: int = 1, **attrs: Any
    ) -> Entry:
        groups = int(attrs.get("num_group", 1))
        weight = attrs.pop("weight", None) or self.values(
            f"{name}_weight", filters, channels // groups, window, window
        )
        bias = [] if attrs.get("no_bias") else [self.values(f"{name}_bias", filters)]
        pad = f"({window // 2}, {window // 2})"
        options = {"kernel": f"({window}, {window})", "pad": pad, "num_filter": filters, **attrs}
        return self.op("Convolution", data, weight, *bias, name=name, **options)

    def relu(self, data: Entry, name: str) -> Entry:
        return self.op("Activation", data, name=name, act_type="relu")

    def norm(self, data: Entry, name: str, channels: int) -> Entry:
        parts = [self.values(f"{name}_{part}", channels) for part in ("gamma", "beta", "mean", "var")]
        self.params[f"{name}_var"] = np.abs(self.params[f"{name}_var"]) + 0.5
        return self.op("BatchNorm", data, *parts, name=name, outputs=3, fix_gamma=False)

    def joined(self, *parts: Entry, name: str = "joined", **attrs: Any) -> Entry:
        return self.op("Concat", *parts, name=name, num_args=len(parts), **{"dim": 1, **attrs})
