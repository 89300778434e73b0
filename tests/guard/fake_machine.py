"""A machine on which every low node costs what a test says, and conversions guarded on it."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from mxamp.convert import convert_model
from mxamp.guard import Guard
from mxamp.measuring.race import Race
from mxamp.model import Model
from tests.building import BF16, Net, capable

BASE_SECONDS = 0.010
ROUNDS = 20


class FakeMachine:
    """Times models by what their reports say; a drift of the clock falls on all models alike.

    Parameters
    ----------
    low
        Node -> seconds that its low precision adds; negative for a gain.
    prepared
        Seconds that the float32 model takes more than the user's, once its graph is prepared.
    """

    def __init__(self, low: Mapping[str, float], prepared: float = 0.0) -> None:
        self._low, self._prepared = low, prepared
        self.races: list[int] = []
        """How many models were in each race."""

    def __call__(self, models: Sequence[Model], labels: Sequence[str], seconds: float) -> Race:
        """Time models."""
        self.races.append(len(models))
        drift = [1 + 0.3 * (number % 7) for number in range(ROUNDS)]
        return Race(tuple(tuple(self._seconds(model) * factor for factor in drift) for model in models))

    def _seconds(self, model: Model) -> float:
        if model.report is None:  # the user's model
            return BASE_SECONDS
        low = low_nodes(model)
        if not low:
            return BASE_SECONDS + self._prepared
        return BASE_SECONDS + sum(self._low.get(name, 0.0) for name in low)


def chains(*lengths: int) -> tuple[Any, Mapping[str, Any]]:
    """Return chains of convolutions, ``a0 a1 ...`` then ``b0 ...``, between which a node stays float32."""
    net = Net()
    data = net.var("data")
    for letter, length in zip("abcdefgh", lengths):
        for layer in range(length):
            data = net.op("relu", net.conv(data, f"{letter}{layer}"), name=f"{letter}{layer}_relu")
        data = net.op("exp", data, name=f"{letter}_exp")  # RED, so that the next chain is another region
    return net.graph(data), net.params


def guarded(graph: Any, params: Mapping[str, Any], machine: Any, **options: Any) -> Model:
    """Convert for a target that runs everything and knows no costs, guarded on a machine."""
    options.setdefault("target", capable(BF16))
    return convert_model(graph, params, {}, "bfloat16", guard=Guard(seconds=1e6, measure=machine), **options)


def low_nodes(model: Model) -> set[str]:
    """Return the nodes that compute low."""
    assert model.report is not None
    return {node.name for node in model.report.nodes if node.compute == model.report.target_dtype}
