"""Candidates: conversions of one model that are measured, written where other processes can read them."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from mxamp.compare.race import write_for_race
from mxamp.conversion import Options, Source, convert_graph
from mxamp.decisions.estimates import Estimates
from mxamp.decisions.placing import Choose, MeasuredTimes, Placing
from mxamp.profile.cache import graph_content
from mxamp.profile.choices import float32
from mxamp.profile.observation import with_positions_as_names
from mxamp.report.build import Rewrites


@dataclass(frozen=True)
class Candidate:
    """A conversion that can be measured.

    Attributes
    ----------
    prefix
        Where it lies; its operators are called by their positions.
    content
        What its times depend on.
    rewrites
        How it was made.
    low
        The nodes that are low, in the graph that was decided on.
    """

    prefix: str
    content: str
    rewrites: Rewrites
    low: frozenset[int]

    @property
    def casts(self) -> int:
        """How many casts it has."""
        return len(self.rewrites.casts.casts)

    @property
    def estimates(self) -> Estimates | None:
        """What nodes and casts are expected to cost."""
        return self.rewrites.plan.estimates

    def expected_ms(self, estimates: Estimates) -> float:
        """Return what a forward pass is expected to take, in milliseconds."""
        rewrites = self.rewrites
        microseconds = sum(estimates.mixed(self.low))
        for cast in rewrites.casts.casts:
            microseconds += estimates.cast(rewrites.origin(cast), down=cast.dtype.is_low_precision)
        return microseconds / 1000


class Candidates:
    """Makes candidates of one model.

    Parameters
    ----------
    source, options
        The user's model, and how it is converted.
    folder
        Where they are written.
    """

    def __init__(self, source: Source, options: Options, folder: Path) -> None:
        self.source, self.options = source, options
        self._folder, self._dtype = folder, options.policy.target_dtype
        self._made: dict[str, str] = {}
        self._times_made: Counter[str] = Counter()
        self._written = 0

    def make(self, choose: Choose, times: MeasuredTimes | None = None) -> Candidate:
        """Convert the model as chosen."""
        observed: list[Rewrites] = []
        placing = Placing(choose, "is being measured", times, in_bodies=choose is float32)
        # The conversion that counts warns.
        options = replace(self.options, placing=placing)
        model = convert_graph(self.source, options, warn=False, observe=observed.append)
        graph = model.graph  # a conversion that was postponed is done again here if it must be
        rewrites = observed[-1]
        low = frozenset(
            position
            for position, decision in enumerate(rewrites.plan.decisions)
            if decision is not None and decision.compute is self._dtype
        )
        content = graph_content(graph, {**model.arg_params, **model.aux_params})
        if content not in self._made:
            self._written += 1
            prefix, named = self._folder / f"candidate{self._written}", with_positions_as_names(graph)
            self._made[content] = write_for_race(prefix, named, model.arg_params, model.aux_params)
        self._times_made[content] += 1
        return Candidate(self._made[content], content, rewrites, low)

    def discard(self, candidate: Candidate) -> None:
        """Remove the files of a candidate, unless it was made more often than discarded."""
        self._times_made[candidate.content] -= 1
        if not self._times_made[candidate.content]:
            prefix = self._made.pop(candidate.content)
            os.unlink(f"{prefix}-symbol.json")
            os.unlink(f"{prefix}-0000.params")
