"""The report: what happened to each node, as a value."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Callable, Mapping

from mxamp.errors import ReportError, UnknownNameError, nearest_names
from mxamp.params.saturate import Saturation
from mxamp.passes.records import PreparedNode, RewrittenMask
from mxamp.report.compensation import CompensationReport
from mxamp.report.curve import CurveReport
from mxamp.report.guard import GuardReport
from mxamp.report.text import summary
from mxamp.version import __version__

FORMAT_VERSION = 1


@dataclass(frozen=True)
class NodeReport:
    """What happened to one operator node. Dtypes are names; None where there is none to tell.

    Attributes
    ----------
    name
        The node's name in the user's model.
    op
        Its operator.
    color, rule, reason
        What the numerics allow, which rule said so, and why the node computes in ``compute``.
    compute
        The dtype it computes in.
    accumulation
        The dtype its sums are carried in.
    outputs
        The dtype of each output.
    inputs
        The dtype each input is read in.
    name_after
        Its name in the converted model; differs only for a graph output that is cast back.
    multiply_adds
        Multiply-adds of one forward pass, where shapes are known.
    float32_us, mixed_us, cast_us
        Microseconds that it adds to a forward pass of the FP32 model and of this one, and those of the casts
        of what it hands on: measured in this model, or estimated by the target's costs, where shapes are
        known. What the backend fuses counts at the first node of the chain.
    is_time_measured
        Whether these were measured in this very model.
    """

    name: str
    op: str
    color: str
    rule: str
    reason: str
    compute: str | None
    accumulation: str | None
    outputs: tuple[str | None, ...]
    inputs: tuple[str | None, ...]
    name_after: str
    multiply_adds: int | None = None
    float32_us: float | None = None
    mixed_us: float | None = None
    cast_us: float | None = None
    is_time_measured: bool = False


@dataclass(frozen=True)
class CastReport:
    """One inserted cast.

    Attributes
    ----------
    name
        The cast's name in the converted model.
    entry
        The entry of the user's model that it casts.
    direction
        ``"down"`` (to low precision) or ``"up"``.
    from_dtype, to_dtype
        The dtypes; ``from_dtype`` is None behind an operator that mxamp knows nothing about.
    consumers
        Names of the nodes that read it; ``"(output)"`` for a graph output.
    bytes
        Bytes read and written by one forward pass, where shapes are known.
    us
        Microseconds it takes, estimated by the target's costs, where shapes are known, or from casts that
        were measured in this model.
    """

    name: str
    entry: str
    direction: str
    from_dtype: str | None
    to_dtype: str
    consumers: tuple[str, ...]
    bytes: int | None = None
    us: float | None = None


@dataclass(frozen=True)
class ParameterReport:
    """One parameter of the user's model.

    Attributes
    ----------
    name
        Its name.
    shape
        Its shape.
    dtype_before
        The dtype it was stored in.
    stored
        Name -> dtype of each array that holds it now: two where its readers disagree or a folded BatchNorm
        added a bias, none where it was folded into another.
    bytes_before, bytes_after
        Bytes on disk, without file overhead.
    saturation
        What clamping it lost; None where ``saturate`` was not asked for, or had nothing to do.
    """

    name: str
    shape: tuple[int, ...]
    dtype_before: str
    stored: Mapping[str, str]
    bytes_before: int
    bytes_after: int
    saturation: Saturation | None = None


@dataclass(frozen=True)
class TimeReport:
    """What a forward pass is expected to take, in microseconds: estimated by the target's costs, or measured.

    Attributes
    ----------
    float32_us
        Of the FP32 model: its nodes, and what calling MXNet takes where the target says it.
    mixed_us
        Of this one, the same, casts included.
    casts_us
        Of its casts.
    is_measured
        Whether the target's costs were measured on such a machine, or computed from published rates.
    measured_nodes
        How many nodes were measured in this very model; the target's costs then only fill gaps.
    machine
        The machine that the estimate is of, in a few words; empty where nodes were measured.
    """

    float32_us: float
    mixed_us: float
    casts_us: float
    is_measured: bool
    measured_nodes: int = 0
    machine: str = ""


@dataclass(frozen=True)
class PlanReport:
    """One of the plans that were run against each other, as whole models.

    Attributes
    ----------
    name
        What the plan is.
    median_ms
        The median time of a forward pass, in milliseconds; None where it could not be run.
    ratio, ratio_low, ratio_high
        How many times as fast as the FP32 plan it is: the median over rounds, the 10th and the 90th
        percentile.
    rounds
        How often it was timed.
    estimated_ms
        What it was expected to take, from the times of nodes and casts.
    low_nodes, casts
        How many nodes it computes in the low dtype, and how many casts it has.
    is_chosen
        Whether it won, so that it is the plan of this model, unless the guard took low precision back.
    problem
        Why it could not be run, or why it is not listed with times of its own; empty where it is.
    """

    name: str
    median_ms: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    rounds: int = 0
    estimated_ms: float | None = None
    low_nodes: int = 0
    casts: int = 0
    is_chosen: bool = False
    problem: str = ""


@dataclass(frozen=True)
class Report:
    """What a conversion did, and why.

    Attributes
    ----------
    target_dtype
        The low dtype.
    target
        The target's name.
    nodes
        Every operator node, in graph order; those inside control-flow bodies as ``loop/name``.
    casts
        Every inserted cast, in graph order; those inside control-flow bodies last, as ``loop/name``.
    parameters
        Every parameter.
    inputs, outputs
        Name -> dtype of the model's inputs and outputs.
    warnings
        What the user should know: operators without facts, rules that picked nothing.
    emulated
        The format that the model emulates in float32; None for a model that computes in it. Everything else
        says what the emulated conversion did.
    approximations
        Where emulation differs from the real thing, one sentence each.
    masks
        Every mask beyond the dtype's range, with what became of it.
    preparations
        Every node that was dropped, merged or rewritten before anything was decided. Those that are gone are
        among ``nodes`` too, with the dtype of the node that they went into.
    time
        What a forward pass is expected to take; None where shapes are not known, or the target knows no
        costs.
    time_here
        What the same model is expected to take on a machine like this one, where that contradicts the target;
        ``warnings`` says how. None where it does not, or nothing is known.
    nothing_low
        Why no node was converted, as the end of a sentence; None where one was.
    race
        The plans that were run against each other, where the model was profiled.
    guard
        What the guard measured and did; None where it was not asked for.
    compensation
        What was done about the rounding of weights; None where that was not asked for.
    curve
        The curve of speed and error that the model was chosen on; None where it was not tuned.
    assumed_shapes
        Input -> the shape that was assumed where none was given, to choose which forms are worth preparing.
        Nothing is counted by it.
    weighs_assumed
        Whether what nodes and casts cost was weighed for these shapes, too.
    """

    target_dtype: str
    target: str
    nodes: tuple[NodeReport, ...]
    casts: tuple[CastReport, ...]
    parameters: tuple[ParameterReport, ...]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str | None]
    warnings: tuple[str, ...] = ()
    emulated: str | None = None
    approximations: tuple[str, ...] = ()
    masks: tuple[RewrittenMask, ...] = ()
    time: TimeReport | None = None
    preparations: tuple[PreparedNode, ...] = ()
    race: tuple[PlanReport, ...] = ()
    guard: GuardReport | None = None
    time_here: TimeReport | None = None
    nothing_low: str | None = None
    compensation: CompensationReport | None = None
    curve: CurveReport | None = None
    assumed_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    weighs_assumed: bool = False

    # ------------------------------------------------------------------ questions

    def node(self, name: str) -> NodeReport:
        """Return the report of one node by the user's own name for it.

        Raises
        ------
        UnknownNameError
            When the model has no such node.
        """
        if isinstance(name, str):
            for node in self.nodes:
                if node.name == name:
                    return node
        raise UnknownNameError(
            f"The model has no node {name!r}.{nearest_names(name, [node.name for node in self.nodes])}"
        )

    @property
    def low_nodes(self) -> int:
        """How many operator nodes compute in the low dtype."""
        return sum(node.compute == self.target_dtype for node in self.nodes)

    @property
    def saturated_values(self) -> int:
        """How many values of parameters were clamped to the dtype's range."""
        return sum(parameter.saturation.count for parameter in self.parameters if parameter.saturation)

    @property
    def parameter_bytes_before(self) -> int:
        """Bytes of all parameters before conversion."""
        return sum(parameter.bytes_before for parameter in self.parameters)

    @property
    def parameter_bytes_after(self) -> int:
        """Bytes of all parameters after conversion."""
        return sum(parameter.bytes_after for parameter in self.parameters)

    @property
    def low_multiply_add_share(self) -> float | None:
        """The share of multiply-adds done in the low dtype, 0 to 1; None where shapes are not known."""
        counted = [node for node in self.nodes if node.multiply_adds is not None]
        total = sum(node.multiply_adds or 0 for node in counted)
        if not total:
            return None
        return sum(node.multiply_adds or 0 for node in counted if node.compute == self.target_dtype) / total

    def to_mapping(self) -> dict[str, Any]:
        """Return the report as plain data for JSON."""
        return {"format": FORMAT_VERSION, **asdict(self)}

    def to_json(self, *, indent: int | None = 1) -> str:
        """Return the report as JSON; :meth:`from_json` reads it back."""
        return json.dumps(self.to_mapping(), indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Read a report from JSON.

        Raises
        ------
        ReportError
            When the text is not a report of this version.
        """
        try:
            document = json.loads(text)
        except (TypeError, ValueError) as error:
            raise cls._unreadable(error) from error
        return cls.from_mapping(document)

    @classmethod
    def from_mapping(cls, document: Mapping[str, object]) -> Report:
        """Read a report from what :meth:`to_mapping` returned.

        Raises
        ------
        ReportError
            When it is not a report of this version.
        """
        try:
            return cls._from_document(document)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise cls._unreadable(error) from error

    @staticmethod
    def _unreadable(error: Exception) -> ReportError:
        return ReportError(
            f"This is no report that mxamp {__version__} reads: {type(error).__name__}: {error}. "
            "Give what Report.to_json returned."
        )

    @classmethod
    def _from_document(cls, document: Any) -> Report:
        given = {key: _as_tuples(value) for key, value in document.items()}
        own = [(each.name, str(each.type)) for each in fields(cls) if each.name in given]
        for name, kind in own:
            if kind.startswith("tuple") and not isinstance(given[name], tuple):
                raise TypeError(f"{name} is no list")
            if kind.startswith("Mapping") and not isinstance(given[name], dict):
                raise TypeError(f"{name} is no object")
            if name in _ROWS:
                given[name] = tuple(_ROWS[name](**row) for row in given[name])
            elif name in _PARTS and given[name] is not None:
                given[name] = _PARTS[name](given[name])
        return cls(**{name: given[name] for name, _ in own})

    def __str__(self) -> str:
        return summary(self)


def _parameter(**row: Any) -> ParameterReport:
    saturation = row.pop("saturation", None)
    return ParameterReport(**row, saturation=None if saturation is None else Saturation(**saturation))


_ROWS: Mapping[str, Callable[..., Any]] = {
    "nodes": NodeReport,
    "casts": CastReport,
    "parameters": _parameter,
    "masks": RewrittenMask,
    "preparations": PreparedNode,
    "race": PlanReport,
}
"""What a report has several of, and what each of them is."""

_PARTS: Mapping[str, Callable[[Any], Any]] = {
    "time": lambda part: TimeReport(**part),
    "time_here": lambda part: TimeReport(**part),
    "guard": GuardReport.from_mapping,
    "compensation": CompensationReport.from_mapping,
    "curve": CurveReport.from_mapping,
}
"""What it has at most one of."""


def _as_tuples(value: Any) -> Any:
    """Return what was read from JSON with tuples for its lists."""
    if isinstance(value, dict):
        return {key: _as_tuples(item) for key, item in value.items()}
    return tuple(map(_as_tuples, value)) if isinstance(value, (list, tuple)) else value
