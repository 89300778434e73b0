"""What a conversion is asked for, as one value: checked once, handed on whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from mxamp.calibration import Calibration, Compensation
from mxamp.calibration.compensate import as_compensation
from mxamp.calibration.placing import check_time_budget
from mxamp.calibration.ranges import HEADROOM, check_headroom
from mxamp.decisions import IoDtype, LowPrecision, as_low_precision
from mxamp.errors import PolicyError
from mxamp.messages.arguments import argument, check_flag, setting
from mxamp.ops.casts import AMP_CAST, CAST_OPERATORS
from mxamp.policy.policy import Policy
from mxamp.report.guard import GuardReport
from mxamp.targets import Mismatch, Target

if TYPE_CHECKING:
    from mxamp.decisions.placing import Placing


@dataclass(frozen=True)
class Options:
    """How to convert.

    Attributes
    ----------
    policy
        What may run in low precision.
    target
        What can.
    io_dtype, saturate, rewrite_masks, low_precision
        See :func:`mxamp.convert_model`.
    prepare
        The names of the passes that prepare the graph, as :func:`mxamp.conversion.check_prepare` returns
        them; None for all.
    cast_op
        ``"amp_cast"`` or ``"Cast"``.
    cast_offline
        Whether parameters are cast now (the default), or at every forward pass.
    fold_batch_norm
        Whether a BatchNorm is folded into the layer before it, where that loses nothing.
    kept
        Node -> reason, for nodes that stay FP32 because of what was measured.
    placing
        How the nodes that have a choice are placed; None for the least cost.
    guard
        What the guard measured, for the report.
    mismatch
        How this machine contradicts the target; nothing is said of it where the model was measured here.
    calibration
        What the model's values are; None where that is not known.
    compensate
        How to make up for what rounding weights does; None for not at all.
    headroom
        How many times larger than the calibration's samples show values may be, and fit the dtype.
    time_budget
        How much longer than the fastest placement, as a share, the model may take for a smaller error, by the
        calibration's prices; None for as much as without a calibration.
    is_trial
        Whether only the times of the result count, so that no weight is compensated.

    Raises
    ------
    PolicyError
        When an option has a value that it cannot have, or two contradict each other.
    """

    policy: Policy
    target: Target
    io_dtype: IoDtype = None
    cast_op: str = AMP_CAST
    cast_offline: bool = True
    fold_batch_norm: bool = True
    saturate: bool = False
    rewrite_masks: bool = True
    prepare: Sequence[str] | None = None
    low_precision: LowPrecision | None = None
    kept: Mapping[str, str] = field(default_factory=dict)
    placing: Placing | None = None
    guard: GuardReport | None = None
    mismatch: Mismatch | None = None
    calibration: Calibration | None = None
    compensate: Compensation | None = None
    headroom: float = HEADROOM
    time_budget: float | None = None
    is_trial: bool = False

    def __post_init__(self) -> None:
        policy = self.policy
        if not isinstance(self.cast_op, str) or self.cast_op not in CAST_OPERATORS:
            raise PolicyError(f"cast_op must be {' or '.join(CAST_OPERATORS)}, not {self.cast_op!r}.")
        check_flag(self.cast_offline, "cast_optional_params")
        check_flag(self.fold_batch_norm, "fold_batch_norm")
        check_flag(self.saturate, "saturate")
        check_flag(self.rewrite_masks, "rewrite_masks")
        self._set("low_precision", as_low_precision(self.low_precision))
        self._set("compensate", as_compensation(self.compensate))
        if self.stays_float32:
            self._check_stays_float32()
            self._set("target", self.target.in_float32())
        if policy.target_dtype.is_emulated_only:
            # No operator of MXNet's casts to such a format; emulation replaces every cast by a rounding.
            self._set("cast_op", AMP_CAST)
        if self.saturate and not self.cast_offline:
            raise PolicyError(
                "saturate=True clamps parameters when they are cast now; with cast_optional_params=False "
                "they are cast at every forward pass, where MXNet's casts overflow. Give one of the two."
            )
        if self.calibration is not None and not isinstance(self.calibration, Calibration):
            raise PolicyError(
                f"calibration must be what mxamp.calibrate returned, not {type(self.calibration).__name__}. "
                "mxamp.Calibration.load(path) reads one from a file."
            )
        self._set("headroom", check_headroom(self.headroom))
        self._set("time_budget", check_time_budget(self.time_budget))
        if self.time_budget is not None:
            self._check_prices(setting("time_budget", self.time_budget))
        if self.compensate is not None:
            self._check_compensate(self.compensate)
        if self.target.dtype is not policy.target_dtype:
            raise PolicyError(
                f"The policy is for {policy.target_dtype} and the target {self.target.name} for "
                f"{self.target.dtype}; they must be for the same dtype. Give "
                f"{setting('target_dtype', self.target.dtype.label)}, or a target for {policy.target_dtype}."
            )

    def _check_stays_float32(self) -> None:
        against = [
            text
            for is_given, text in (
                (self.policy.is_pure, "a pure policy"),
                (self.io_dtype is not None, argument("io_dtype")),
                (self.saturate, setting("saturate", True)),
                (self.compensate is not None, argument("compensate")),
                (self.time_budget is not None, argument("time_budget")),
            )
            if is_given
        ]
        if against:
            raise PolicyError(
                f"{setting('low_precision', LowPrecision.NONE.value)} keeps all of the model float32, and "
                f"{against[0]} is about what becomes low. Leave one of the two out."
            )

    def _check_compensate(self, compensate: Compensation) -> None:
        given = setting("compensate", compensate.mode)
        if self.calibration is None:
            raise PolicyError(
                f"{given} needs to know what the layers read: give {argument('calibration')}, which "
                "mxamp.calibrate (`mxamp calibrate`) makes of some samples."
            )
        if not self.cast_offline:
            raise PolicyError(
                f"{given} chooses the rounding of parameters that are cast now; with "
                "cast_optional_params=False they are cast at every forward pass. Give one of the two."
            )
        if self.policy.target_dtype.is_emulated_only:
            raise PolicyError(f"{given} is for float16 and bfloat16, not for {self.policy.target_dtype}.")

    def _check_prices(self, given: str) -> None:
        if self.calibration is None:
            raise PolicyError(
                f"{given} weighs time against errors: give {argument('calibration')}, which mxamp.calibrate "
                "(`mxamp calibrate`) makes of some samples."
            )
        if self.calibration.prices is None:
            why = self.calibration.why_unpriced or "it was made by a version that kept none"
            raise PolicyError(f"{given} needs a calibration that knows what roundings cost: {why}")

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def prepares(self, step: str) -> bool:
        """Return whether a pass that prepares the graph is asked for."""
        return self.prepare is None or step in self.prepare

    @property
    def stays_float32(self) -> bool:
        """Whether the graph is prepared, and nothing is to be low."""
        return self.low_precision is LowPrecision.NONE

    @property
    def leaves_parameters(self) -> bool:
        """Whether parameters keep their values, for the runtime to round: unless how is chosen here."""
        is_chosen = self.saturate or self.compensate is not None
        return self.target.backend.rounds_parameters and not is_chosen

    @property
    def is_measured(self) -> bool:
        """Whether the model was measured on this machine."""
        return self.placing is not None or (self.guard is not None and self.guard.result is not None)
