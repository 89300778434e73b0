"""Run the probe's cases in MXNet: as Symbols in float32, float64 and the low dtype, checked and timed.

Only :mod:`mxamp.runtime.probe_child` uses this, in a process of its own: some operators end the process, and
what is bound is decided by environment variables that belong to all of it.
"""

from __future__ import annotations

import json
import os
import re
import time
import zlib
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.decisions.workload import work_of, written_layouts
from mxamp.dtypes import DType
from mxamp.errors import MxampError
from mxamp.probe.case import LOW, Case, Dims, Input, Ref
from mxamp.probe.jobs import BEHIND, FIRST_BEHIND, PLAIN, feedable
from mxamp.probe.judge import judge_outputs
from mxamp.probe.values import draw, rounded
from mxamp.runtime.mxnet import import_mxnet
from mxamp.runtime.parameter import ndarray_from_numpy
from mxamp.runtime.shapes import infer_shapes
from mxamp.runtime.symbol import compose, graph_from_symbol
from mxamp.targets.image_layout import block_here

_DEPTHWISE = "depthwise"
"""Where inputs come from when times are taken: a convolution that costs little itself."""

_FORWARDS = 3
"""Passes of a check: what an overrun spoils often shows only then."""

_WINDOW = 2e-3
"""Seconds that one call is repeated for; a single short call is noise."""

_REPEATS = 50

_STEP = re.compile(r"step(\d+)")

Phase = Callable[[str], None]
"""Told what begins, so that a crash is charged to it."""


class _Built(NamedTuple):
    """A symbol, and for each of its variables the value (float32) and the role."""

    symbol: Any
    values: Mapping[str, tuple[NDArray[np.float32], str]]


class _Run(NamedTuple):
    """What one symbol computed, or why it raised."""

    outputs: Sequence[NDArray[Any]] = ()
    is_stable: bool = True
    swallowed: Sequence[Sequence[int]] = ()
    raised: str = ""


class Runner:
    """Runs jobs on one device.

    Parameters
    ----------
    ctx
        The device.
    dtype
        The low dtype.
    rounds
        How often each time is taken.
    """

    def __init__(self, ctx: Any, dtype: DType, rounds: int) -> None:
        self._mx = import_mxnet()
        self._ctx, self._dtype, self._rounds = ctx, dtype, rounds

    def check(self, case: Case, dims: Dims, feed: str, phase: Phase) -> dict[str, Any] | None:
        """Compare the low outputs with the reference.

        Parameters
        ----------
        case
            The case.
        dims
            The sizes.
        feed
            Where its inputs come from.
        phase
            Told what begins.

        Returns
        -------
        dict or None
            None where the case does not exist: it raises in float32 too.
        """
        phase("float32")
        full = self._run(case, dims, DType.FLOAT32, feed, is_fused=False)
        if full.raised:
            return None
        double = self._run(case, dims, DType.FLOAT64, PLAIN, is_fused=False)
        reference = full if double.raised else double
        swallowed: dict[str, Any] = {}
        if case.fused:
            fused = self._run(case, dims, DType.FLOAT32, feed, is_fused=True)
            swallowed["swallowed_float32"] = fused.swallowed
        phase("low")
        low = self._run(case, dims, self._dtype, feed, is_fused=case.fused)
        if feed != PLAIN and not low.raised:
            # What comes out may be readable as it is, and not by the cast that mxamp puts behind it.
            read = self._run(case, dims, self._dtype, feed, is_fused=case.fused, is_cast=True)
            low = read if read.raised else low
        if low.raised:
            return {"outcome": "raises", "note": low.raised, **swallowed}
        if case.fused:
            swallowed["swallowed_low"] = low.swallowed
        distance = judge_outputs(low.outputs, reference.outputs, self._dtype, chain=case.fused).to_mapping()
        if not low.is_stable:
            distance.update(outcome="wrong", note="runs on the same inputs differ")
        return {**distance, **swallowed}

    def time(self, case: Case, dims: Dims, phase: Phase) -> dict[str, Any] | None:
        """Time FP32 and the low dtype alternately; in microseconds. Of float32 as the low one it is one time.

        Returns
        -------
        dict or None
            ``us``: what each symbol takes, ``behind_us``: what the case adds to a convolution in front of it,
            layout changes included, and ``work``: what it does. None where the case does not run.
        """
        executors = {}
        precisions = {"float32": DType.FLOAT32, "low": self._dtype}
        is_fed = case.first.role == "data" and feedable(case.first.shape(dims))
        try:
            for dtype in dict.fromkeys(precisions.values()):
                phase("float32" if dtype is DType.FLOAT32 else "low")
                built = self._build(case, dims, dtype, PLAIN)
                executors[f"{dtype} plain"] = self._bind(built, dtype, is_fused=False)
                if is_fed:
                    for name, feeds_only in (("feed", True), ("fed", False)):
                        built = self._build(case, dims, dtype, _DEPTHWISE, feeds_only=feeds_only)
                        executors[f"{dtype} {name}"] = self._bind(built, dtype, is_fused=False)
            samples = _alternate(
                {label: _forward(executor) for label, executor in executors.items()}, self._rounds
            )
        except (self._mx.base.MXNetError, TypeError, ValueError, KeyError):
            return None
        result: dict[str, Any] = {
            "us": {label: _median_us(samples[f"{dtype} plain"]) for label, dtype in precisions.items()}
        }
        if is_fed:
            # Differences within a round: what disturbs a round disturbs both of its windows.
            result["behind_us"] = {
                label: _median_us(
                    fed - feed for fed, feed in zip(samples[f"{dtype} fed"], samples[f"{dtype} feed"])
                )
                for label, dtype in precisions.items()
            }
        work = self._work(case, dims)
        return {**result, **({} if work is None else {"work": work})}

    def _work(self, case: Case, dims: Dims) -> dict[str, Any] | None:
        built = self._build(case, dims, DType.FLOAT32, PLAIN)
        graph = graph_from_symbol(built.symbol)
        try:
            shapes = infer_shapes(graph, {name: value.shape for name, (value, _) in built.values.items()}, {})
        except MxampError:
            return None
        block = block_here()
        layouts = written_layouts(graph, shapes, block=block)
        work = work_of(graph, len(graph.nodes) - 1, shapes, layouts, block=block)
        return None if work is None else {**work._asdict(), "attributes": dict(work.attributes)}

    # ------------------------------------------------------------------ one symbol

    def _run(
        self, case: Case, dims: Dims, dtype: DType, feed: str, *, is_fused: bool, is_cast: bool = False
    ) -> _Run:
        try:
            built = self._build(case, dims, dtype, feed)
            if is_cast:
                cast = self._mx.sym.amp_cast(built.symbol[0], dtype="float32")
                built = built._replace(symbol=cast)
            executor = self._bind(built, dtype, is_fused=is_fused)
            rounds = [
                [_read(output) for output in executor.forward(is_train=False)] for _ in range(_FORWARDS)
            ]
        except self._mx.base.MXNetError as error:
            return _Run(raised=telling_line(str(error)))
        except (TypeError, ValueError, KeyError) as error:
            return _Run(raised=f"{type(error).__name__}: {telling_line(str(error))}")
        is_stable = all(
            np.array_equal(value, again, equal_nan=True)
            for other in rounds[1:]
            for value, again in zip(rounds[0], other)
        )
        return _Run(rounds[0], is_stable, _swallowed(executor) if is_fused else ())

    def _bind(self, built: _Built, dtype: DType, *, is_fused: bool) -> Any:
        """Bind; MXNet reads then whether to fuse."""
        # "NONE" is documented, but prints a line at every bind; "default" fuses nothing, silently.
        os.environ["MXNET_SUBGRAPH_BACKEND"] = "MKLDNN" if is_fused else "default"
        os.environ["MXNET_USE_FUSION"] = "1" if is_fused else "0"  # on GPUs
        device = self._mx.cpu() if dtype is DType.FLOAT64 else self._ctx
        arrays = {}
        for name, (array, role) in built.values.items():
            stored = dtype if dtype is DType.FLOAT64 or role in ("data", "weight") else DType.FLOAT32
            arrays[name] = ndarray_from_numpy(array.astype(stored.numpy), device)
        symbol = built.symbol
        return symbol.bind(
            device,
            args={name: arrays[name] for name in symbol.list_arguments()},
            aux_states={name: arrays[name] for name in symbol.list_auxiliary_states()},
            grad_req="null",
        )

    def _build(self, case: Case, dims: Dims, dtype: DType, feed: str, *, feeds_only: bool = False) -> _Built:
        return _Builder(self._mx, case, dims, dtype, self._dtype, feed).build(feeds_only=feeds_only)


class _Builder:
    """Builds the symbol of one case in one dtype."""

    def __init__(self, mx: Any, case: Case, dims: Dims, dtype: DType, low: DType, feed: str) -> None:
        self._mx, self._case, self._dims, self._low = mx, case, dims, low
        self._is_low = dtype is low and low is not DType.FLOAT32
        self._feed = feed
        self._random = np.random.default_rng(zlib.crc32(case.name.encode()) + sum(dims))
        self._values: dict[str, tuple[NDArray[np.float32], str]] = {}
        self._feeds: list[Any] = []

    def build(self, *, feeds_only: bool) -> _Built:
        """Return the symbol; with ``feeds_only`` only the convolutions in front, to be subtracted."""
        flow = [self._variable(self._case.first, is_first=True)]
        for number, one in enumerate(self._case.steps):
            if one.low_only and not self._is_low:
                flow.append(flow[-1])
                continue
            inputs = [
                flow[part.step] if isinstance(part, Ref) else self._variable(part) for part in one.inputs
            ]
            attrs = {key: self._attribute(value) for key, value in one.attrs.items()}
            flow.append(compose(self._mx, one.op, f"step{number}", [flow[-1], *inputs], attrs))
        if feeds_only:
            return self._result(self._feeds)
        return self._result([flow[-1], *(flow[index] for index in self._case.extra_heads)])

    def _attribute(self, value: Any) -> Any:
        return value(self._dims) if callable(value) else self._low.label if value == LOW else value

    def _result(self, heads: Sequence[Any]) -> _Built:
        symbol = heads[0] if len(heads) == 1 else self._mx.sym.Group(list(heads))
        used = {*symbol.list_arguments(), *symbol.list_auxiliary_states()}
        return _Built(symbol, {name: value for name, value in self._values.items() if name in used})

    def _variable(self, given: Input, *, is_first: bool = False) -> Any:
        name = f"in{len(self._values)}"
        shape = given.shape(self._dims)
        array = draw(given.values, shape, self._random)
        if given.role in ("data", "weight"):
            array = rounded(array, self._low)
        self._values[name] = (array, given.role)
        variable = self._mx.sym.Variable(name)
        is_wanted = self._feed == BEHIND or (is_first and self._feed in (FIRST_BEHIND, _DEPTHWISE))
        if given.role != "data" or not is_wanted or not feedable(shape):
            return variable
        fed = self._identity(variable, name, shape)
        self._feeds.append(fed)
        return fed

    def _identity(self, variable: Any, name: str, shape: tuple[int, ...]) -> Any:
        """Put a convolution (2-D: a fully connected) in front that returns its input, in oneDNN's layout."""
        channels = shape[1]
        kernel = self._mx.sym.Variable(f"{name}_identity")
        eye = np.eye(channels, dtype=np.float32)
        if len(shape) == 2:
            self._values[f"{name}_identity"] = (eye, "weight")
            return self._mx.sym.FullyConnected(variable, kernel, num_hidden=channels, no_bias=True)
        axes = len(shape) - 2
        is_depthwise = self._feed == _DEPTHWISE
        size = 1 if is_depthwise else 3
        matrix = np.ones((channels, 1), np.float32) if is_depthwise else eye
        weight = np.zeros((*matrix.shape, *(size,) * axes), np.float32)
        weight[(..., *(size // 2,) * axes)] = matrix
        self._values[f"{name}_identity"] = (weight, "weight")
        return self._mx.sym.Convolution(
            variable,
            kernel,
            kernel=(size,) * axes,
            pad=(size // 2,) * axes,
            num_filter=channels,
            num_group=channels if is_depthwise else 1,
            no_bias=True,
        )


def _read(array: Any) -> NDArray[Any]:
    values: NDArray[Any] = array.asnumpy()
    if values.dtype.names:  # MXNet's bfloat16
        values = values.view(np.uint16).view(DType.BFLOAT16.numpy)
    exact: NDArray[Any] = values.astype(np.float64)
    return exact


def _swallowed(executor: Any) -> list[list[int]]:
    """Return which steps the backend runs as one, read from the graph that the executor really runs."""
    graph = json.loads(executor.get_optimized_symbol().tojson(remove_amp_cast=False))
    groups = []
    for node in graph["nodes"]:
        steps = [
            int(found[1])
            for part in node.get("subgraphs", ())
            for inner in part["nodes"]
            for found in [_STEP.fullmatch(inner["name"])]
            if found is not None and inner["op"] != "null"
        ]
        if len(steps) > 1:
            groups.append(sorted(steps))
    return sorted(groups)


def telling_line(text: str) -> str:
    """Return the line of an MXNet error that says something, without the C++ stack."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("[bt]")]
    telling = [
        line for line in lines if re.search(r"Check failed|Error in operator|not |unknown|could not", line)
    ]
    chosen = " | ".join(dict.fromkeys(telling[-2:] or lines[-1:]))
    chosen = re.sub(r"\[\d\d:\d\d:\d\d\] ", "", chosen)
    return re.sub(r"\S*/src/", "src/", chosen)[:300]


def _forward(executor: Any) -> Callable[[], None]:
    def run() -> None:
        for output in executor.forward(is_train=False):
            output.wait_to_read()

    return run


def _median_us(seconds: Iterable[float]) -> float:
    return round(float(np.median(list(seconds))) * 1e6, 1)


def _alternate(functions: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of one call of each function, a value a round, taken in alternating windows."""
    repeats = {}
    for label, function in functions.items():
        function()
        function()
        start = time.perf_counter()
        function()
        repeats[label] = max(1, min(_REPEATS, int(_WINDOW / max(time.perf_counter() - start, 1e-9))))
    samples: dict[str, list[float]] = {label: [] for label in functions}
    for _ in range(rounds):
        for label, function in functions.items():
            start = time.perf_counter()
            for _ in range(repeats[label]):
                function()
            samples[label].append((time.perf_counter() - start) / repeats[label])
    return samples
