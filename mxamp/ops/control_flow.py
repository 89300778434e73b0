"""Control-flow operators: how the inputs of a body correspond to those of the operator, and what it returns.

``_foreach`` lists, for its data, its states and what remains (loop invariants), which of the body's inputs
each one is; ``_while_loop`` and ``_cond`` list, for each of a body's inputs, which of the operator's inputs
it is (src/operator/control_flow.cc, MXNet 1.9.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Sequence, Tuple

from mxamp.errors import OperatorError
from mxamp.ops.attributes import integers

Attributes = Mapping[str, str]
Shape = Tuple[int, ...]


@dataclass(frozen=True)
class ControlFlow:
    """What one operator that runs bodies does with its inputs and outputs; this is ``_cond``.

    Attributes
    ----------
    locations
        For each body the attribute that lists which of the operator's inputs its inputs are.
    """

    locations: tuple[str, ...]

    def connections(self, attrs: Attributes, body: int) -> list[tuple[int, int]]:
        """Return pairs: an input of a body, and the operator's input that it is.

        Raises
        ------
        OperatorError
            When an attribute is no list of positions.
        """
        return list(enumerate(_positions(attrs, self.locations[body])))

    def varying(self, attrs: Attributes) -> frozenset[int]:
        """Return the inputs that hold another value in every iteration: none where bodies run once."""
        return frozenset()

    def sliced(self, attrs: Attributes) -> int:
        """Return how many of the first inputs a body reads a slice of, one an iteration."""
        return 0

    def stacked(self, attrs: Attributes) -> int:
        """Return how many of the first outputs hold one value an iteration along their first axis."""
        return 0

    def iterations(self, attrs: Attributes, inputs: Sequence[Shape | None]) -> int | None:
        """Return how long that axis is; None where shapes do not tell."""
        return None


class _Foreach(ControlFlow):
    def connections(self, attrs: Attributes, body: int) -> list[tuple[int, int]]:
        lists = ("in_data_locs", "in_state_locs", "remain_locs")
        inner = [place for attribute in lists for place in _positions(attrs, attribute)]
        return [(place, outer) for outer, place in enumerate(inner)]

    def varying(self, attrs: Attributes) -> frozenset[int]:
        return frozenset(
            range(len(_positions(attrs, "in_data_locs")) + len(_positions(attrs, "in_state_locs")))
        )

    def sliced(self, attrs: Attributes) -> int:
        return len(integers(attrs.get("in_data_locs", "")) or ())

    def stacked(self, attrs: Attributes) -> int:
        return int(attrs.get("num_out_data", 0))

    def iterations(self, attrs: Attributes, inputs: Sequence[Shape | None]) -> int | None:
        return next((shape[0] for shape in inputs[: self.sliced(attrs)] if shape), None)


class _WhileLoop(ControlFlow):
    def varying(self, attrs: Attributes) -> frozenset[int]:
        mapping = _positions(attrs, "func_input_locs")
        places = _positions(attrs, "func_var_locs")
        return frozenset(mapping[place] for place in places if place < len(mapping))

    def stacked(self, attrs: Attributes) -> int:
        return int(attrs.get("num_out_data", 0))

    def iterations(self, attrs: Attributes, inputs: Sequence[Shape | None]) -> int | None:
        return int(attrs["max_iterations"]) if "max_iterations" in attrs else None


CONTROL_FLOW: Mapping[str, ControlFlow] = {
    "_foreach": _Foreach(("",)),
    "_while_loop": _WhileLoop(("cond_input_locs", "func_input_locs")),
    "_cond": ControlFlow(("cond_input_locs", "then_input_locs", "else_input_locs")),
}


def _positions(attrs: Attributes, attribute: str) -> tuple[int, ...]:
    text = attrs.get(attribute, "[]")
    found = integers(text)
    if found is None or min(found, default=0) < 0:
        raise OperatorError(f"the attribute {attribute}={text!r} is not a list of positions.")
    return found
