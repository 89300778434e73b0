"""The Symbol of a converted model, which says so where MXNet would write it without its casts."""

from __future__ import annotations

import warnings
from typing import Any

from mxamp.errors import MxampWarning
from mxamp.runtime.mxnet import import_mxnet

__all__ = ["ConvertedSymbol"]

mx = import_mxnet()

from mxnet.symbol import Symbol  # noqa: E402 - import_mxnet first: it explains a failure


class ConvertedSymbol(Symbol):
    """An ``mx.sym.Symbol`` whose ``save`` and ``tojson`` warn when they drop the casts.

    Notes
    -----
    MXNet's default, ``remove_amp_cast=True``, deletes every ``amp_cast``, and the 16-bit parameters beside it
    then meet float32 data. What MXNet makes of it (copies, groups, internals) is a plain Symbol again. So is
    what a pickle holds: with its casts, unlike MXNet's own, and readable without mxamp.
    """

    __slots__ = ()

    def tojson(self, remove_amp_cast: bool = True) -> Any:
        """Return the JSON text; see ``mx.sym.Symbol.tojson``."""
        if remove_amp_cast:
            _warn("tojson()")
        return super().tojson(remove_amp_cast=remove_amp_cast)

    def save(self, fname: str, remove_amp_cast: bool = True) -> None:
        """Write the JSON text to a file; see ``mx.sym.Symbol.save``."""
        if remove_amp_cast:
            _warn("save()")
        super().save(fname, remove_amp_cast=remove_amp_cast)

    def __reduce__(self) -> tuple[Any, ...]:
        return mx.sym.load_json, (super().tojson(remove_amp_cast=False),)


def _warn(call: str) -> None:
    warnings.warn(
        f"MXNet's {call} leaves out the casts of this converted symbol, as is its default, "
        "so that what is written does not run with the converted parameters. Save the model with Model.save, "
        "or give remove_amp_cast=False.",
        MxampWarning,
        stacklevel=3,
    )
