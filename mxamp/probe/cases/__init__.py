"""All cases: every operator that GluonCV's models are made of, and more."""

from __future__ import annotations

import functools
from typing import Callable, Iterable, Mapping

from mxamp.probe.case import Case
from mxamp.probe.cases.chains import dense_chains, layer_chains
from mxamp.probe.cases.elementwise import activation_cases, scalar_cases
from mxamp.probe.cases.layers import layer_cases
from mxamp.probe.cases.moving import index_cases, layout_cases
from mxamp.probe.cases.numpy_mode import numpy_cases
from mxamp.probe.cases.overheads import overhead_cases
from mxamp.probe.cases.pairwise import cast_cases, pairwise_cases
from mxamp.probe.cases.reducing import reduction_cases
from mxamp.probe.cases.regions import detection_cases, pooling_cases

__all__ = ["all_cases"]

_GROUPS: tuple[Callable[[], Iterable[Case]], ...] = (
    layer_cases,
    pooling_cases,
    detection_cases,
    activation_cases,
    scalar_cases,
    pairwise_cases,
    cast_cases,
    layout_cases,
    reduction_cases,
    index_cases,
    numpy_cases,
    overhead_cases,
    layer_chains,
    dense_chains,
)


@functools.lru_cache(maxsize=None)
def all_cases() -> Mapping[str, Case]:
    """Return every case by its name: each followed by its variant on volumes, where there is one."""
    cases: dict[str, Case] = {}
    for group in _GROUPS:
        for case in group():
            for one in (case, case.on_volumes()):
                if one is not None:
                    if one.name in cases:
                        raise ValueError(f"two cases are called {one.name!r}")
                    cases[one.name] = one
    return cases
