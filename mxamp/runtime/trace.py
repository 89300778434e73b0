"""Trace a Gluon block into one graph, leaving the block as it was."""

from __future__ import annotations

import contextlib
import copy
import inspect
import re
import traceback
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Iterator, Mapping

from mxamp.errors import DataError, ParamsError, TracingError, UnknownNameError, nearest_names
from mxamp.graph.graph import Graph
from mxamp.messages.counts import count_of
from mxamp.runtime.mxnet import import_mxnet
from mxamp.runtime.symbol import graph_from_symbol
from mxamp.runtime.trace_inputs import Format, Request, Shape, named_shapes, request_of, title_of

mx = import_mxnet()

from mxnet.gluon import block as gluon_block  # noqa: E402 - import_mxnet first: it explains a failure

_ASK_FOR_INPUTS = (
    "pass inputs=[...] with sample arrays for every input, nested as the block takes them, or "
    "input_shapes=[...] with their shapes"
)


@dataclass(frozen=True)
class TracedBlock:
    """A block as one graph.

    Attributes
    ----------
    sym
        The Symbol that was traced.
    graph
        The same as a graph: what ``block.export`` would write, casts included.
    inputs
        Names of the inputs in the order in which the block takes them.
    in_format, out_format
        How inputs and outputs are nested.
    args, auxs
        The block's own arrays by name, not copies; where it has several devices, of the first.
    input_shapes
        Input name -> shape, or None where they were not given.
    numpy
        Whether the block works on ``mx.np`` arrays.
    """

    sym: Any
    graph: Graph
    inputs: tuple[str, ...]
    in_format: Format
    out_format: Format
    args: Mapping[str, Any]
    auxs: Mapping[str, Any]
    input_shapes: Mapping[str, Shape] | None
    numpy: bool = False


# ---------------------------------------------------------------------- the block


def check_block(net: Any) -> None:
    """Check that something is a HybridBlock.

    Raises
    ------
    TracingError
        Saying what to use instead.
    """
    if isinstance(net, mx.gluon.HybridBlock):
        return
    if isinstance(net, mx.gluon.Block):
        sequential = (
            "HybridSequential instead of Sequential, and " if isinstance(net, mx.gluon.nn.Sequential) else ""
        )
        raise TracingError(
            f"{title_of(net)} is a Block that is no HybridBlock, so MXNet cannot turn it into a graph. Use "
            f"{sequential}HybridBlock with hybrid_forward instead of Block with forward; or build the Symbol "
            "yourself and give it to convert_model."
        )
    instead = " For a Symbol with its parameters use convert_model." if isinstance(net, mx.sym.Symbol) else ""
    raise TracingError(f"convert_block takes a gluon HybridBlock, not {type(net).__name__}.{instead}")


def block_contexts(net: Any) -> list[Any]:
    """Return the devices of a block: those of its first initialised parameter, or the current one."""
    for parameter in net.collect_params().values():
        if _is_initialised(parameter) or _is_deferred(parameter):
            return list(parameter.list_ctx())
    return [mx.current_context()]


def trace_block(net: Any, *, inputs: Any = None, input_shapes: Any = None) -> TracedBlock:
    """Return the graph of a block with its parameters.

    Parameters
    ----------
    net
        A ``HybridBlock``, hybridized or not, with or without a previous forward pass; or a ``SymbolBlock``.
    inputs, input_shapes
        See :func:`mxamp.convert_block`.

    Returns
    -------
    TracedBlock
        Node names are those ``net.export`` would write.

    Raises
    ------
    TracingError
        When the block is not initialised, or cannot be turned into a graph.
    DataError, UnknownNameError
        When the inputs described do not fit the block.

    Notes
    -----
    The block is left as it was, with one exception: where parameters wait for the shapes of the inputs
    (deferred initialisation) and inputs or shapes are given, they are initialised, as a forward pass would.
    """
    check_block(net)
    request = request_of(inputs, input_shapes)
    params = net.collect_params()
    _check_initialised(net, params.values())
    names, sym, in_format, out_format = _cached(net, request) or _trace(net, request)
    shapes = named_shapes(net, names, request)
    _finish_deferred_initialisation(net, sym, params, shapes)
    arg_names = [name for name in sym.list_arguments() if name not in names]
    aux_names = [name for name in sym.list_auxiliary_states() if name not in names]
    for name in (*arg_names, *aux_names):
        if name not in params:
            raise TracingError(
                f"{title_of(net)} reads a variable {name!r} that is neither an input nor a parameter of the "
                "block. Make it a parameter (self.params.get) or an input."
            )
    return TracedBlock(
        sym=sym,
        graph=graph_from_symbol(sym),
        inputs=tuple(names),
        in_format=in_format,
        out_format=out_format,
        args={name: _value(params[name], reduce=False) for name in arg_names},
        auxs={name: _value(params[name], reduce=True) for name in aux_names},
        input_shapes=shapes,
        numpy=isinstance(sym, mx.sym.numpy._Symbol),
    )


# ---------------------------------------------------------------------- what the caller said about the inputs


# ---------------------------------------------------------------------- the graph


def _cached(net: Any, request: Request) -> tuple[list[str], Any, Format, Format] | None:
    """Return the graph of a previous forward pass, where there is one that fits."""
    if not net._cached_graph:
        return None
    # A block of ours that has run keeps the graph beside the one that MXNet fused.
    symbols, sym = getattr(net, "_unfused_graph", net._cached_graph)
    found = [symbol.name for symbol in symbols], sym, net._in_format, net._out_format
    if isinstance(net, mx.gluon.SymbolBlock):
        return found
    # optimize_for leaves a graph that is partitioned for one backend. A block with a __call__ of its own (the
    # recurrent layers) adds inputs the caller never passes; tracing through __call__ keeps the caller's.
    if net._backend or type(net).__call__ is not mx.gluon.Block.__call__:
        return None
    if request.is_given and request.count != len(symbols):
        return None
    return found


def _trace(net: Any, request: Request) -> tuple[list[str], Any, Format, Format]:
    """Run the block on Symbols."""
    names = _input_names(net, request)
    nesting = request.nesting if request.by_name is None else [0] * len(names)
    variables = [mx.sym.var(name) for name in names]
    if mx.util.is_np_array():
        variables = [variable.as_np_ndarray() for variable in variables]
    remaining = iter(variables)
    arguments = _fill(nesting, remaining)
    with _unchanged(net), _copied_name_counter():
        try:
            returned = net(*arguments)
        except Exception as error:
            raise TracingError(_explain(net, error, request, len(arguments))) from error
    try:
        outputs, out_format = gluon_block._flatten(returned, "output")
    except ValueError as error:
        raise TracingError(
            f"{title_of(net)} cannot be traced into a graph: it returns {type(returned).__name__}, and MXNet "
            "knows only arrays and (nested) lists of arrays. Return a list or tuple."
        ) from error
    if not outputs:
        raise TracingError(
            f"{title_of(net)} cannot be traced into a graph: it returns no array. Return at least one."
        )
    if not all(isinstance(output, mx.sym.Symbol) for output in outputs):
        raise TracingError(
            f"{title_of(net)} cannot be traced into a graph: called on Symbols it does not return Symbols. "
            "hybrid_forward must compute its result from its inputs with the operators of F, and return no "
            "None."
        )
    group = mx.sym.Group(outputs, gluon_block._check_same_symbol_type(outputs))
    return names, group, nesting, out_format


def _input_names(net: Any, request: Request) -> list[str]:
    """Return the names Gluon gives to inputs: ``data``, or ``data0``, ``data1`` ..."""
    count = request.count
    names = ["data"] if count == 1 else [f"data{number}" for number in range(count)]
    for name in request.by_name or ():
        if name not in names:
            raise UnknownNameError(
                f"input_shapes names {name!r}, but Gluon calls {count_of(count, 'input')} of a block "
                f"{', '.join(names)}.{nearest_names(name, names)} Or give a list of shapes in order."
            )
    return names


def _fill(nesting: Format, variables: Iterator[Any]) -> Any:
    if isinstance(nesting, int):
        return None if nesting == -1 else next(variables)
    return [_fill(one, variables) for one in nesting]


@contextlib.contextmanager
def _unchanged(net: Any) -> Iterator[None]:
    """Keep the hooks of a block and its children quiet, and restore all their attributes at the end.

    Recurrent cells count their steps, and layers note how they were called. Hooks expect arrays; what they
    return is ignored, so a trace without them gives the same graph. Parameters get new variables for the
    trace: NNVM numbers the versions of a variable by how many operators change it, such as BatchNorm, and a
    later export of the block would write other numbers.
    """
    blocks: dict[int, Any] = {}
    pending = [net]
    while pending:
        block = pending.pop()
        if id(block) not in blocks:
            blocks[id(block)] = block
            pending.extend(block._children.values())
    saved = [(block, dict(block.__dict__)) for block in blocks.values()]
    variables = [(parameter, parameter._var) for parameter in net.collect_params().values()]
    try:
        for parameter, _ in variables:
            parameter._var = None
        for block in blocks.values():
            block.__dict__.update(_forward_hooks=OrderedDict(), _forward_pre_hooks=OrderedDict())
        yield
    finally:
        for block, attributes in saved:
            block.__dict__.clear()
            block.__dict__.update(attributes)
        for parameter, variable in variables:
            parameter._var = variable


@contextlib.contextmanager
def _copied_name_counter() -> Iterator[None]:
    """Let generated names count on from where they are, without using up the caller's numbers.

    Only blocks with an empty prefix draw on the global counter; all others count within their prefix.
    """
    current = getattr(mx.name.NameManager._current, "value", None)
    counter = copy.copy(current) if current is not None else mx.name.NameManager()
    counter._counter = dict(counter._counter)
    with counter:
        yield


def _explain(net: Any, error: Exception, request: Request, given: int) -> str:
    """Say why a block could not be traced, where, and what to do."""
    required = _required_inputs(net)
    if len(required) > given:
        verb = "was" if given == 1 else "were"
        return (
            f"{title_of(net)} takes {count_of(len(required), 'input')} ({', '.join(required)}), and {given} "
            f"{verb} {'given' if request.is_given else 'assumed'}: {_ASK_FOR_INPUTS}."
        )
    most = _most_inputs(net)
    if most is not None and most < given and request.is_given:
        return (
            f"{title_of(net)} takes {count_of(most, 'input')} at most, and {given} were given. One input is "
            "an array, or its shape; several are a list of them."
        )
    culprit, place = net, ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        owner = frame.f_locals.get("self")
        if isinstance(owner, mx.gluon.Block) and frame.f_code.co_name in ("hybrid_forward", "forward"):
            culprit, place = owner, f" ({frame.f_code.co_filename}, line {line})"
    inside = "" if culprit is net else f", inside {title_of(net)[4:]}"
    if _wants_numpy_mode(error):
        return (
            f"{title_of(culprit)}{inside} cannot be traced into a graph: it uses operators of mx.np"
            f"{place}, and NumPy mode is off. Call mx.npx.set_np() before converting it, as before building "
            "and running it."
        )
    lines = str(error).strip().splitlines() or [""]
    asked = "" if request.is_given else f" If it takes several inputs, {_ASK_FOR_INPUTS}."
    return (
        f"{title_of(culprit)}{inside} cannot be traced into a graph: {type(error).__name__}: "
        f"{lines[-1].rstrip('.')}{place}. hybrid_forward may use only the operators of F, the same ones for "
        "every input: no x.shape, asnumpy, indexing x[...], mx.nd, or Python decisions on values. Write "
        "shape-free operators instead (F.reshape with 0 and -1, F.slice_like, F.broadcast_like, "
        f"F.slice_axis), or build the Symbol yourself and give it to convert_model.{asked}"
    )


def _wants_numpy_mode(error: Exception) -> bool:
    """Whether a trace failed since the block belongs to NumPy mode, and that is off.

    MXNet says so where an operator of mx.np gets a Symbol; layers built in NumPy mode look for operators
    that npx alone has, such as ``convolution``.
    """
    if mx.util.is_np_array():
        return False
    missing = re.search(r"module 'mxnet\.symbol' has no attribute '(\w+)'", str(error))
    return "set_np()" in str(error) or (missing is not None and hasattr(mx.sym.npx, missing.group(1)))


def _most_inputs(net: Any) -> int | None:
    """Return how many inputs ``hybrid_forward`` takes; None where it takes any number, or does not say."""
    inputs = _inputs(net)
    if any(one.kind is one.VAR_POSITIONAL for one in inputs):
        is_chain = isinstance(net, mx.gluon.nn.HybridSequential) and len(net) > 0
        return _most_inputs(net[0]) if is_chain else None
    return len(inputs) or None


def _required_inputs(net: Any) -> list[str]:
    """Return the inputs that ``hybrid_forward`` cannot do without."""
    return [
        one.name
        for one in _inputs(net)
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) and one.default is one.empty
    ]


def _inputs(net: Any) -> list[inspect.Parameter]:
    """Return what ``hybrid_forward`` takes besides the block's parameters; nothing where it does not say."""
    try:
        parameters = list(inspect.signature(net.hybrid_forward).parameters.values())[1:]
    except (TypeError, ValueError):
        return []
    return [one for one in parameters if one.name not in net._reg_params]


# ---------------------------------------------------------------------- parameters


def _is_initialised(parameter: Any) -> bool:
    return parameter._data is not None


def _is_deferred(parameter: Any) -> bool:
    return bool(parameter._deferred_init)


def _check_initialised(net: Any, parameters: Any) -> None:
    missing = [one.name for one in parameters if not (_is_initialised(one) or _is_deferred(one))]
    if missing:
        which = (
            f"{missing[0]!r} has" if len(missing) == 1 else f"{missing[0]!r} and {len(missing) - 1} more have"
        )
        raise TracingError(
            f"{title_of(net)} is not initialised: {which} no values. Call "
            "net.load_parameters(file) for a trained model, or net.initialize(), before converting."
        )


def _finish_deferred_initialisation(
    net: Any, sym: Any, params: Any, input_shapes: Mapping[str, Shape] | None
) -> None:
    """Initialise the parameters that wait for the shapes of the inputs, in the order a forward pass would."""
    waiting = [name for name in sym.list_inputs() if name in params and _is_deferred(params[name])]
    if not waiting:
        return
    wait = (
        f"{title_of(net)} has a parameter {waiting[0]!r} that waits for the shape of the input "
        "(deferred initialisation)"
    )
    if input_shapes is None:
        raise TracingError(
            f"{wait}. Pass input_shapes=(1, 3, 224, 224), say, or inputs=sample_array, or run the block once "
            "before. Were trained parameters meant to be loaded? Call net.load_parameters(file) first."
        )
    try:
        arg_shapes, _, aux_shapes = sym.infer_shape_partial(**input_shapes)
    except mx.base.MXNetError as error:
        raise DataError(
            f"{wait}, and MXNet cannot infer it from {dict(input_shapes)}: "
            f"{str(error).strip().splitlines()[-1]}"
        ) from error
    shapes = dict(zip(sym.list_arguments(), arg_shapes))
    shapes.update(zip(sym.list_auxiliary_states(), aux_shapes))
    for name in waiting:
        shape = shapes.get(name)
        if not shape or not all(size > 0 for size in shape):
            raise TracingError(f"{wait}, and it cannot be inferred from {dict(input_shapes)} for {name!r}.")
    for name in waiting:
        params[name].shape = shapes[name]
    for name in waiting:
        params[name]._finish_deferred_init()


def _value(parameter: Any, *, reduce: bool) -> Any:
    """Return a parameter's array, not copied.

    Copies on several devices are equal for weights. The running statistics of BatchNorm are not: every
    device saw other data, and their mean is taken, as ``export`` does.
    """
    if parameter._stype != "default":
        raise ParamsError(
            f"The parameter {parameter.name!r} is stored as {parameter._stype}; low precision needs dense "
            "storage. Build the block with stype left at its default."
        )
    copies = parameter.list_data()
    return parameter._reduce() if reduce and len(copies) > 1 else copies[0]
