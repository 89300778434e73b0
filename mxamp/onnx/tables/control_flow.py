"""Control flow: loops and branches, whose bodies are written with the same mappings."""

from __future__ import annotations

from mxamp.dtypes import DType
from mxamp.graph.control_flow import body_inputs
from mxamp.onnx.call import Call
from mxamp.onnx.mapping import Written, mapping
from mxamp.onnx.tensor import Size, Tensor


@mapping("_foreach", "Scan")
def _foreach(call: Call) -> Written:
    """Write a loop over the first axis: what a Scan does, whose states come first."""
    data_count = len(call.sizes("in_data_locs", ()))
    state_count = len(call.sizes("in_state_locs", ()))
    data, states = call.inputs[:data_count], call.inputs[data_count : data_count + state_count]
    length = call.lengths(data[0])[0]
    results = call.integer("num_out_data", 0)
    carried = [call.local("state", state.dtype, call.lengths(state)) for state in states]
    slices = [call.local("data", part.dtype, call.lengths(part)[1:]) for part in data]
    given = dict(enumerate([*slices, *carried]))

    def write() -> list[Tensor]:
        found = call.write_here(0, given)
        return [*found[results:], *found[:results]]

    body, found = call.body("body", [*carried, *slices], write)
    outputs = call.emit_control_flow(
        "Scan",
        [*states, *data],
        [
            *((state.dtype, call.lengths(state)) for state in found[:state_count]),
            *((result.dtype, [length, *call.lengths(result)]) for result in found[state_count:]),
        ],
        body=body,
        num_scan_inputs=data_count,
    )
    return (*outputs[state_count:], *outputs[:state_count])


@mapping("_while_loop", "Loop, Pad to max_iterations")
def _while_loop(call: Call) -> Written:
    """Write a loop that asks before every step; rows of steps that are not taken are zeros.

    MXNet leaves those rows as they were in memory.
    """
    most, results = call.integer("max_iterations"), call.integer("num_out_data", 0)
    places = list(body_inputs(call.node, 1).values())
    variables = [places[place] for place in call.sizes("func_var_locs")]
    initial = [call.inputs[place] for place in variables]
    first = _condition(call, {})
    number = call.local("step", DType.INT64, ())
    going = call.local("going", DType.BOOL, ())
    carried = [call.local("state", state.dtype, call.lengths(state)) for state in initial]

    def write() -> list[Tensor]:
        found = call.write_here(1, dict(zip(variables, carried)))
        states = found[results:]
        return [_condition(call, dict(zip(variables, states))), *states, *found[:results]]

    body, found = call.body("body", [number, going, *carried], write)
    states, rows = found[1 : 1 + len(initial)], found[1 + len(initial) :]
    types: list[tuple[DType, list[Size | None]]]
    types = [(state.dtype, [*call.lengths(state)]) for state in states]
    types += [(row.dtype, [None, *call.lengths(row)]) for row in rows]
    outputs = call.emit_control_flow("Loop", [call.indices(most), first, *initial], types, body=body)
    stacked = [_padded(call, output, most) for output in outputs[len(initial) :]]
    return (*stacked, *outputs[: len(initial)])


def _condition(call: Call, given: dict[int, Tensor]) -> Tensor:
    """Write a node's first body, and return what it says as a bool without axes."""
    (said,) = call.write_here(0, given)
    return call.reshape(call.cast(said, DType.BOOL), [])


def _padded(call: Call, rows: Tensor, most: int) -> Tensor:
    """Return rows with zeros after them, as many as may be in all."""
    first, *rest = call.lengths(rows)
    missing = call.emit("Sub", call.indices([most]), call.size_values([first]))
    if rest:
        missing = call.emit("Concat", missing, call.size_values(rest), axis=0)
    zeros = call.emit("Expand", call.scalar(0, rows), missing)
    return call.state_sizes(call.emit("Concat", rows, zeros, axis=0), [most, *rest])


@mapping("_cond", "If")
def _cond(call: Call) -> Written:
    branches = [
        call.body(name, [], lambda number=number: call.write_here(number, {}))  # type: ignore[misc]
        for number, name in ((1, "then"), (2, "else"))
    ]
    (then, found), (other, others) = branches
    returned: list[tuple[DType, list[Size | None]]] = []
    for ours, theirs in zip(found, others):
        if ours.shape != theirs.shape:
            call.refuse(f"its branches return shapes that differ, {ours.shape} and {theirs.shape}.")
        both = zip(call.lengths(ours), call.lengths(theirs))
        # Two open sizes may differ from each other, and are either then.
        sizes = [size if call.are_equal(size, own) else None for size, own in both]
        returned.append((ours.dtype, sizes))
    return call.emit_control_flow(
        "If",
        [_condition(call, {})],
        returned,
        then_branch=then,
        else_branch=other,
    )
