"""A converted model whose parameters are cast while they are written."""

from __future__ import annotations

from typing import Any, BinaryIO, Callable, Mapping

from mxamp.graph.graph import Graph
from mxamp.model import Model
from mxamp.params.parameter import Parameter
from mxamp.params.postponed import PostponedCast
from mxamp.params.stream import Progress, stream_params
from mxamp.provenance import History
from mxamp.report.model import Report

__all__ = ["PostponedModel"]


class PostponedModel(Model):
    """A model that was converted without looking at the range of parameters that are on disk.

    Saving it casts them, and sees in passing whether the dtype held them all. Where it may not have, the
    model is converted again, with every parameter measured, and that is what is saved, and what the
    attributes hold from then on. Whoever looks at an attribute before it was saved makes it read the
    parameters first: the attributes are never a guess.

    Parameters
    ----------
    graph, arg_params, aux_params, report
        The conversion, as it is if nothing is out of range.
    convert_measured
        Returns the conversion with every parameter measured; None for a conversion that is settled.
    """

    _model: Model
    _convert_measured: Callable[[], Model] | None

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
    ) -> None:
        object.__setattr__(self, "_convert_measured", convert_measured)
        mxnet = {} if _mxnet is None else _mxnet
        object.__setattr__(self, "_model", Model(graph, arg_params, aux_params, report, mxnet))
        object.__setattr__(self, "_mxnet", mxnet)
        object.__setattr__(self, "_history", History() if _history is None else _history)

    @classmethod
    def postponing(cls, model: Model, convert_measured: Callable[[], Model]) -> Model:
        """Return a conversion whose casts may wait; itself where none does."""
        if not any(issubclass(kind, PostponedCast) for kind in set(map(type, model.arg_params.values()))):
            return model
        return cls(
            model.graph,
            model.arg_params,
            model.aux_params,
            model.report,
            model._mxnet,
            model._history,
            convert_measured=convert_measured,
        )

    def _settled(self) -> Model:
        if self._convert_measured is not None:
            values = self._model.arg_params.values()
            lost = any(value.loses_range() for value in values if isinstance(value, PostponedCast))
            self._settle(self._convert_measured() if lost else self._model)
        return self._model

    def _settle(self, model: Model) -> None:
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
        return self._settled().report

    def _write_params(self, file: BinaryIO, progress: Progress | None) -> None:
        """See :class:`Model`."""
        if self._convert_measured is None:
            super()._write_params(file, progress)
            return
        start = file.tell()
        model = self._model
        lost = stream_params(
            file,
            model.arg_params,
            model.aux_params,
            numpy_shapes=model.graph.has_numpy_shapes,
            progress=progress,
        )
        if not lost:
            self._settle(model)
            return
        file.seek(start)
        file.truncate()
        self._settle(self._convert_measured())
        super()._write_params(file, progress)

    def __reduce__(self) -> tuple[Any, ...]:
        settled = self._settled()
        # Neither MXNet's objects nor open files go with it, as in Model.__getstate__.
        history = History(None, self._history.policy)
        return Model, (settled.graph, settled.arg_params, settled.aux_params, settled.report, {}, history)

    def __repr__(self) -> str:
        return repr(self._settled())
