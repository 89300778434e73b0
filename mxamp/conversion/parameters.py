"""The parameters of a conversion: cast beside the rest of it, and measured only where a cast lost range.

Whoever runs the pipeline need not know what is cast when: a conversion is run with parameters whose range
nobody looked at, the casts see in passing whether that was right, and where it was not it is run again.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Callable, Mapping

from mxamp.calibration.compensate import Compensator
from mxamp.conversion.options import Options
from mxamp.conversion.plan import rescaled_exponents
from mxamp.conversion.postponed import PostponedModel
from mxamp.model import Model
from mxamp.params.not_finite import is_looked_at, not_finite, not_finite_warning
from mxamp.params.offline import OfflineCasts
from mxamp.params.parameter import Parameter
from mxamp.params.saturate import Saturation, saturate_parameters
from mxamp.params.unmeasured import unmeasured_parameters
from mxamp.passes import InsertedCasts, State, offline_dtypes
from mxamp.report.model import Report


class CastParameters(OfflineCasts):
    """The parameters of a plan, cast beside what is done within the ``with`` block.

    Parameters
    ----------
    planned
        The model that was decided about.
    options
        Whether they are clamped, and how their rounding is made up for.
    """

    def __init__(self, planned: State, options: Options) -> None:
        assert planned.plan is not None  # that is what planning is
        self._own = planned.arg_params
        params, dtypes = planned.arg_params, offline_dtypes(planned.graph, planned.plan)
        self.saturations: Mapping[str, Saturation] = {}
        """What clamping lost."""
        if options.saturate:
            params, self.saturations = saturate_parameters(params, dtypes)
        self._compensator = None
        if options.compensate is not None and options.calibration is not None and not options.is_trial:
            compensator = Compensator(
                planned.graph,
                params,
                dtypes,
                options.calibration,
                options.compensate,
                rescaled_exponents(planned),
            )
            self._compensator, params = compensator, compensator.params
        super().__init__(params, dtypes)

    def reporting(self, build: Callable[[], Report]) -> Callable[[], Report]:
        """Return what builds a report that says what was done about the rounding, too."""
        if self._compensator is None:
            return build
        compensation = self._compensator.reporting()
        return lambda: replace(build(), compensation=compensation())

    def stored(self, inserted: InsertedCasts) -> dict[str, Parameter]:
        """Return the converted model's parameters in the order of the originals, second copies after them."""
        stored: dict[str, Parameter] = {}
        twins: dict[str, list[str]] = {}
        for name, form in inserted.parameters.items():
            if name != form.source:
                twins.setdefault(form.source, []).append(name)
        for name, parameter in self._own.items():
            own = inserted.parameters.get(name)
            stored[name] = parameter.cast(parameter.dtype) if own is None else self.results[name, own.dtype]
            for twin in twins.get(name, ()):
                stored[twin] = self.results[name, inserted.parameters[twin].dtype]
        return stored


Casting = Callable[[State], CastParameters]
"""Returns what casts the parameters of a plan."""


def run_unmeasured(
    run: Callable[[State, Casting], Model],
    user: State,
    prepared: State,
    options: Options,
    *,
    notes: list[str],
    tell: Callable[[str], None],
) -> Model:
    """Run a conversion, first with parameters whose range nobody looked at.

    Parameters
    ----------
    run
        Decides, rewrites and casts.
    user, prepared
        The user's model, and what preparation made of it.
    options
        How to convert.
    notes
        What is to be said; what is found of parameters is added.
    tell
        Says what is found after the conversion, when a file is written.

    Returns
    -------
    Model
        A :class:`PostponedModel` where casts wait until it is saved.
    """
    # What the casts lose is seen for dtypes of MXNet's alone.
    watched = (
        options.cast_offline and not options.saturate and not options.policy.target_dtype.is_emulated_only
    )
    unmeasured = unmeasured_parameters(prepared.graph, prepared.arg_params) if watched else {}

    cast = partial(CastParameters, options=options)

    def measured() -> Model:
        # A cast has shown infinities or NaN, or all is read anyway: now it is worth looking who has them.
        unseen = {name: value for name, value in user.params.items() if not is_looked_at(value)}
        found = not_finite(unseen, read_all=True)
        if found:
            notes.append(not_finite_warning(found))
        return run(prepared, cast)

    def measured_late() -> Model:
        before = len(notes)
        model = measured()
        for note in notes[before:]:
            tell(note)
        return model

    if not unmeasured:
        return measured()
    casts: list[CastParameters] = []

    def watch(planned: State) -> CastParameters:
        casts.append(cast(planned))
        return casts[0]

    model = run(replace(prepared, params={**prepared.params, **unmeasured}), watch)
    if casts.pop().may_have_lost_range:
        return measured()
    return PostponedModel.postponing(model, measured_late, warn=tell, made_from=prepared.made_from)
