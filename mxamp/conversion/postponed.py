"""A converted model whose parameters are cast while they are written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, BinaryIO, Callable, Collection, Mapping, Sequence

from mxamp.graph.graph import Graph
from mxamp.model import Model
from mxamp.model.provenance import History
from mxamp.params.not_finite import is_looked_at, not_finite, not_finite_warning
from mxamp.params.parameter import Parameter
from mxamp.params.postponed import PostponedCast
from mxamp.params.stream import Progress, Streamed, stream_params
from mxamp.report.model import Report


class PostponedModel(Model):
    """A model that was converted without looking at the range of parameters that are on disk.

    Saving it casts them, and sees in passing whether the dtype held them all. Where it may not have, the
    model is converted again, with every parameter measured, and that is what is saved, and what the
    attributes hold from then on. Whoever looks at an attribute before it was saved makes it read the
    parameters first: the attributes are never a guess. What stays in its dtype is only read to see whether
    it is finite, also in passing: a warning says so, and the report from then on.

    Parameters
    ----------
    graph, arg_params, aux_params, report
        The conversion, as it is if nothing is out of range.
    convert_measured
        Returns the conversion with every parameter measured; None for a conversion that is settled.
    to_look_at
        The parameters of which it is not known whether they are finite, and for each what messages call it.
    warn
        Told what the user should know of them.
    """

    _model: Model
    _convert_measured: Callable[[], Model] | None
    _to_look_at: Mapping[str, str]
    _warn: Callable[[str], None]

    def __init__(
        self,
        graph: Graph,
        arg_params: Mapping[str, Parameter],
        aux_params: Mapping[str, Parameter],
        report: Report | None = None,
        _mxnet: dict[str, Any] | None = None,
        _history: History | None = None,
        *,
        convert_measured: Callable[[], Model] | None = None,
        to_look_at: Mapping[str, str] | None = None,
        warn: Callable[[str], None] = lambda note: None,
    ) -> None:
        object.__setattr__(self, "_convert_measured", convert_measured)
        object.__setattr__(self, "_to_look_at", to_look_at or {})
        object.__setattr__(self, "_warn", warn)
        mxnet = {} if _mxnet is None else _mxnet
        object.__setattr__(self, "_model", Model(graph, arg_params, aux_params, report, mxnet))
        object.__setattr__(self, "_mxnet", mxnet)
        object.__setattr__(self, "_history", History() if _history is None else _history)

    @classmethod
    def postponing(
        cls,
        model: Model,
        convert_measured: Callable[[], Model],
        *,
        warn: Callable[[str], None],
        made_from: Mapping[str, Sequence[str]],
    ) -> Model:
        """Return a conversion whose casts may wait; itself where none does, and nothing is to be looked at.

        Parameters
        ----------
        model, convert_measured, warn
            See the class.
        made_from
            Parameter that is none of the user's -> the user's that its values come from.
        """
        params = {**model.arg_params, **model.aux_params}
        to_look_at = {
            name: made_from.get(name, (name,))[0]
            for name, value in params.items()
            if value.dtype.is_float and not isinstance(value, PostponedCast) and not is_looked_at(value)
        }
        if not to_look_at and not any(isinstance(value, PostponedCast) for value in params.values()):
            return model
        return cls(
            model.graph,
            model.arg_params,
            model.aux_params,
            vars(model)["report"],  # built when it is read: what the casts did belongs to it
            model._mxnet,
            model._history,
            convert_measured=convert_measured,
            to_look_at=to_look_at,
            warn=warn,
        )

    def _settled(self) -> Model:
        if self._convert_measured is not None:
            values = self._model.arg_params.values()
            lost = any(value.loses_range() for value in values if isinstance(value, PostponedCast))
            self._settle(self._convert_measured() if lost else self._model)
        return self._model

    def _looked_at(self) -> Model:
        """Return it with all that is to be known of its parameters."""
        model = self._settled()
        if self._to_look_at:
            params = {**model.arg_params, **model.aux_params}
            self._saw(not_finite({name: params[name] for name in self._to_look_at}, read_all=True))
        return self._model

    def _saw(self, dubious: Collection[str]) -> None:
        """Note which of the parameters that were to be looked at are not finite."""
        named = [known for name, known in self._to_look_at.items() if name in dubious]
        object.__setattr__(self, "_to_look_at", {})
        if not named:
            return
        note = not_finite_warning(list(dict.fromkeys(named)))
        model = self._model
        if model.report is not None:
            report = replace(model.report, warnings=(*model.report.warnings, note))
            object.__setattr__(self, "_model", replace(model, report=report))
        self._warn(note)

    def _settle(self, model: Model) -> None:
        if model is not self._model:  # all were looked at
            object.__setattr__(self, "_to_look_at", {})
        object.__setattr__(self, "_model", model)
        object.__setattr__(self, "_convert_measured", None)
        object.__setattr__(self, "_mxnet", model._mxnet)

    @property
    def graph(self) -> Graph:
        """See :class:`Model`."""
        return self._settled().graph

    @property
    def arg_params(self) -> Mapping[str, Parameter]:
        """See :class:`Model`."""
        return self._settled().arg_params

    @property
    def aux_params(self) -> Mapping[str, Parameter]:
        """See :class:`Model`."""
        return self._settled().aux_params

    @property
    def report(self) -> Report | None:
        """See :class:`Model`."""
        return self._looked_at().report

    def _write_params(self, file: BinaryIO, progress: Progress | None) -> None:
        """See :class:`Model`."""
        start = file.tell()
        seen = self._stream(file, progress)
        if seen.may_have_lost and self._convert_measured is not None:
            file.seek(start)
            file.truncate()
            self._settle(self._convert_measured())
            self._stream(file, progress)
            return
        self._settle(self._model)
        self._saw(seen.not_finite)

    def _stream(self, file: BinaryIO, progress: Progress | None) -> Streamed:
        model = self._model
        return stream_params(
            file,
            model.arg_params,
            model.aux_params,
            numpy_shapes=model.graph.has_numpy_shapes,
            progress=progress,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        settled = self._looked_at()
        # Neither MXNet's objects nor open files go with it, as in Model.__getstate__.
        history = History(None, self._history.policy)
        return Model, (settled.graph, settled.arg_params, settled.aux_params, settled.report, {}, history)

    def __repr__(self) -> str:
        return repr(self._settled())
