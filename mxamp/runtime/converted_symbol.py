"""The Symbol of a converted model, which says so where MXNet would write it without its casts."""

from __future__ import annotations

import functools
import warnings
from typing import Any, Callable

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
    then meet float32 data. Copies, slices, internals and what the symbol is added to, or calculated with, are
    of this kind too, as far as they hold casts. What MXNet's functions make of it, ``mx.sym.Group`` and
    ``mx.sym.relu`` as the method ``relu``, is a plain Symbol: MXNet asks nobody what kind to make. So is what
    a pickle holds: with its casts, unlike MXNet's own, and readable without mxamp.
    """

    __slots__ = ()

    def tojson(self, remove_amp_cast: bool = True) -> Any:
        """Return the JSON text; see ``mx.sym.Symbol.tojson``."""
        if remove_amp_cast and self._has_casts():
            _warn("tojson()")
        return super().tojson(remove_amp_cast=remove_amp_cast)

    def save(self, fname: str, remove_amp_cast: bool = True) -> None:
        """Write the JSON text to a file; see ``mx.sym.Symbol.save``."""
        if remove_amp_cast and self._has_casts():
            _warn("save()")
        super().save(fname, remove_amp_cast=remove_amp_cast)

    def _has_casts(self) -> bool:
        return '"op": "amp_' in super().tojson(remove_amp_cast=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return mx.sym.load_json, (super().tojson(remove_amp_cast=False),)


_MADE_FROM_IT = (
    *("__copy__", "__deepcopy__", "__getitem__", "__call__", "get_internals", "get_children"),
    *("__abs__", "__neg__", "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__"),
    *("__truediv__", "__rtruediv__", "__mod__", "__rmod__", "__pow__", "__rpow__"),
    *("__eq__", "__ne__", "__gt__", "__ge__", "__lt__", "__le__"),
)
"""What makes another symbol of one; ``+=`` and the like are refused by MXNet."""


def _of_this_kind(name: str) -> Callable[..., Any]:
    """Return a method of MXNet's whose result is a symbol that warns, too."""
    method = getattr(Symbol, name)

    @functools.wraps(method)
    def made(self: Symbol, *given: Any, **named: Any) -> Any:
        result = method(self, *given, **named)
        if type(result) is Symbol:
            result.__class__ = ConvertedSymbol  # MXNet has no other way to make one of a handle
        return result

    return made


for _name in _MADE_FROM_IT:
    setattr(ConvertedSymbol, _name, _of_this_kind(_name))


def _warn(call: str) -> None:
    warnings.warn(
        f"MXNet's {call} leaves out the casts of this converted symbol, as is its default, "
        "so that what is written does not run with the converted parameters. Save the model with Model.save, "
        "or give remove_amp_cast=False.",
        MxampWarning,
        stacklevel=3,
    )
