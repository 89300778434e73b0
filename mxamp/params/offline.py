"""Cast the parameters of a model once, while something else is done."""

from __future__ import annotations

from typing import Any, Mapping, Sequence, TypeVar

from numpy.typing import NDArray

from mxamp.dtypes import LOW_PRECISION, DType
from mxamp.ops.cast_batch import CastBatch, can_batch_casts
from mxamp.params.parameter import Parameter
from mxamp.params.postponed import PostponedCast, may_have_lost_range

_Own = TypeVar("_Own", bound="OfflineCasts")


class OfflineCasts:
    """Casts of parameters, done within a ``with`` block.

    Entering the block starts them: with the native kernels on threads of their own, which do not need
    Python's lock; without, in NumPy there and then. Leaving it waits for them, so :attr:`results` have their
    values after the block, and not before. What is on disk is cast when it is written: the result is a
    :class:`PostponedCast`.

    Parameters
    ----------
    parameters
        Parameters by name.
    dtypes
        For each name the dtypes to cast that parameter to; other than its own.
    """

    def __init__(self, parameters: Mapping[str, Parameter], dtypes: Mapping[str, Sequence[DType]]) -> None:
        self.results: dict[tuple[str, DType], Parameter] = {}
        """The casts by name and dtype."""
        self.may_have_lost_range = False
        """Whether :meth:`Parameter.range_loss` is worth asking of any parameter. Set when the block ends.

        Only casts by the native kernels are watched.
        """
        self._batched: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]] = []
        self._others: list[tuple[Parameter, NDArray[Any]]] = []
        self._batch: CastBatch | None = None
        native = can_batch_casts()
        for name, wanted in dtypes.items():
            parameter = parameters[name]
            for dtype in wanted:
                if parameter.is_on_disk and dtype in LOW_PRECISION:
                    self.results[name, dtype] = PostponedCast(parameter, dtype)
                    continue
                result, out = parameter.allocate(dtype)
                self.results[name, dtype] = result
                if native and out.size and dtype in LOW_PRECISION and parameter.dtype is DType.FLOAT32:
                    values, factors = parameter.source()
                    if values.flags.c_contiguous and values.flags.aligned:
                        self._batched.append((values, out, factors))
                        continue
                self._others.append((parameter, out))
        self._parameters = parameters  # their values must stay where they are

    def __enter__(self: _Own) -> _Own:
        if self._batched:
            self._batch = CastBatch(self._batched)
            self._batch.start()
        try:
            for parameter, out in self._others:
                parameter.cast_into(out)
        except BaseException:
            if self._batch is not None:
                self._batch.finish()  # nothing may write into arrays that are about to go
            raise
        return self

    def __exit__(self, *error: object) -> None:
        if self._batch is None:
            return
        counts = self._batch.finish()
        self._batch = None
        for count, (_, out, factors) in zip(counts, self._batched):
            dtype = DType.from_numpy(out.dtype)
            if may_have_lost_range(count.infinite, count.zero, out.size, dtype, scaled=factors is not None):
                self.may_have_lost_range = True
