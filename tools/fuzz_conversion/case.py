"""One case: a model and options, from a seed or a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mxamp.graph.printer import print_graph
from tools.fuzz_conversion.model import RandomModel

__all__ = ["Case"]


@dataclass(frozen=True)
class Case:
    """A model and options.

    Attributes
    ----------
    model
        The model.
    options
        As :func:`tools.fuzz_conversion.options.random_options` draws them.
    seed
        What it came from; the perturbations are drawn from it too.
    """

    model: RandomModel
    options: dict[str, Any]
    seed: int

    @classmethod
    def from_seed(cls, seed: int) -> Case:
        """Return the case of a seed."""
        from tools.fuzz_conversion.generate import random_model
        from tools.fuzz_conversion.options import random_options

        model = random_model(seed)
        return cls(model, random_options(seed, model), seed)

    @classmethod
    def load(cls, path: Path) -> Case:
        """Read a case that :meth:`save` wrote."""
        found = json.loads(path.read_text("utf-8"))
        return cls(RandomModel.from_mapping(found["model"]), found["options"], found["seed"])

    def save(self, path: Path) -> None:
        """Write the case as JSON."""
        found = {"seed": self.seed, "options": self.options, "model": self.model.to_mapping()}
        path.write_text(json.dumps(found, indent=1), "utf-8")

    def __str__(self) -> str:
        shapes = {
            name: f"{values.dtype}{list(values.shape)}"
            for name, values in {**self.model.args, **self.model.auxs, **self.model.data[0]}.items()
        }
        given = ", ".join(f"{name}: {text}" for name, text in shapes.items())
        return f"{print_graph(self.model.graph, attrs=True)}\nvariables: {given}\noptions: {self.options}"
