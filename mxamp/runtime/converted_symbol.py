"""The Symbol of a converted model, which says so where MXNet would write it without its casts."""

from __future__ import annotations

import functools
import types
from typing import Any, Callable

from mxamp.messages.warn import warn_user
from mxamp.runtime.mxnet import import_mxnet

mx = import_mxnet()

from mxnet.symbol import Symbol  # noqa: E402 - import_mxnet first: it explains a failure


class ConvertedSymbol(Symbol):
    """An ``mx.sym.Symbol`` whose ``save`` and ``tojson`` warn when they drop the casts.

    Notes
    -----
    MXNet's default, ``remove_amp_cast=True``, deletes every ``amp_cast``, and the 16-bit parameters beside it
    then meet float32 data. What the symbol's methods and operators return is of this kind too, as far as it
    holds casts: copies, slices, internals, sums, ``symbol.relu()``. What MXNet's functions make of it is not
    (``mx.sym.Group([symbol])``, ``mx.sym.relu(symbol)``): they hand the handles of their inputs to C, and
    build a plain ``Symbol`` around the handle that comes back. Nothing of this class is asked, and to see it
    would take replacing names inside MXNet for everybody who uses it. A pickle holds a plain Symbol, too:
    with its casts, unlike MXNet's own, and readable without mxamp.
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


def _of_this_kind(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of MXNet's whose result, where that is a symbol, warns, too."""

    @functools.wraps(method)
    def made(self: Symbol, *given: Any, **named: Any) -> Any:
        result = method(self, *given, **named)
        if type(result) is Symbol:
            result.__class__ = ConvertedSymbol  # MXNet has no other way to make one of a handle
        return result

    return made


for _name, _method in vars(Symbol).items():
    if isinstance(_method, types.FunctionType) and _name not in vars(ConvertedSymbol):
        setattr(ConvertedSymbol, _name, _of_this_kind(_method))


def _warn(call: str) -> None:
    warn_user(
        f"MXNet's {call} leaves out the casts of this converted symbol, as is its default, "
        "so that what is written does not run with the converted parameters. Save the model with Model.save, "
        "or give remove_amp_cast=False."
    )
