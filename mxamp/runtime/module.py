"""Modules of MXNet's older interface: their symbols, parameters and inputs."""

from __future__ import annotations

from typing import Any, Callable, Sequence

from mxamp.errors import GraphError, ParamsError
from mxamp.runtime.mxnet import import_mxnet

_GENERATORS = (
    "A BucketingModule has a Symbol for each bucket. Convert the function that makes them, "
    "convert_symbol(sym_gen, ...), and give the result to a new BucketingModule with the same parameters."
)


def module_parts(sym: Any, arg_params: Any, aux_params: Any) -> tuple[Any, Any, Any, Sequence[str]]:
    """Return the symbol, parameters and inputs of a Module; of anything else what was given, and no inputs.

    Parameters
    ----------
    sym
        An ``mx.mod.Module``, or what may be a Symbol.
    arg_params, aux_params
        Parameters to take instead of the Module's; None for its own.

    Raises
    ------
    GraphError
        When it is a module that has no single symbol.
    ParamsError
        When it has no parameters yet.
    """
    mx = import_mxnet()
    if isinstance(sym, mx.mod.BucketingModule):
        raise GraphError(_GENERATORS)
    if not isinstance(sym, mx.mod.BaseModule):
        return sym, arg_params, aux_params, ()
    if not isinstance(sym, mx.mod.Module):
        raise GraphError(
            f"A {type(sym).__name__} is not made of one Symbol. Convert the Symbols it is made of, with "
            "their parameters."
        )
    if arg_params is None and aux_params is None:
        if not sym.params_initialized:
            raise ParamsError(
                "The Module has no parameters yet. Call module.init_params() or module.set_params(), read it "
                "with Module.load, or give arg_params and aux_params."
            )
        arg_params, aux_params = sym.get_params()
    names = (*sym.data_names, *sym.label_names, *sym._state_names)
    arguments = set(sym.symbol.list_arguments())
    fed = [name for name in names if name in arguments and name not in (arg_params or {})]
    return sym.symbol, arg_params, aux_params if aux_params is not None else {}, fed


def is_symbol_generator(sym: Any) -> bool:
    """Whether something is a function such as ``BucketingModule`` takes, from a bucket to its Symbol.

    Raises
    ------
    GraphError
        When it is a ``BucketingModule`` itself.
    """
    mx = import_mxnet()
    if isinstance(sym, mx.mod.BucketingModule):
        raise GraphError(_GENERATORS)
    return callable(sym) and not isinstance(sym, (mx.sym.Symbol, type))


def wrapped_generator(
    generator: Callable[..., Any], convert: Callable[[Any], Any]
) -> Callable[..., tuple[Any, Any, Any]]:
    """Return a ``sym_gen`` whose Symbols are converted, each when its bucket is first asked for."""
    mx = import_mxnet()

    def sym_gen(*args: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
        made = generator(*args, **kwargs)
        if not isinstance(made, (tuple, list)) or len(made) != 3 or not isinstance(made[0], mx.sym.Symbol):
            raise GraphError(
                "sym_gen must return (symbol, data_names, label_names), as mx.mod.BucketingModule takes it; "
                f"it returned {made!r:.80}."
            )
        return convert(made[0]), made[1], made[2]

    return sym_gen
