"""The report as text for people: a summary that fits on a screen, and the table of every node."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Iterable

from mxamp.messages.arguments import argument
from mxamp.messages.counts import count_of, shown_of, some_of
from mxamp.report.casts_text import cast_lines
from mxamp.report.compensation import compensation_lines
from mxamp.report.guard import guard_lines
from mxamp.report.table import Column, format_bytes, format_table, paragraph, terminal_width

if TYPE_CHECKING:
    from mxamp.report.model import NodeReport, Report, TimeReport

_MASKS_SHOWN = 3
FOLDED = "fold batch norm"
"""The rule of a node that no longer exists."""

_COLORS = ("green", "gray", "red")


def summary(report: Report, width: int | None = None) -> str:
    """Return what a conversion did, in as many lines as it takes to act on it.

    Parameters
    ----------
    report
        The report.
    width
        The longest line, in characters; by default the terminal's width.

    Returns
    -------
    str
        Without a final newline. Long lists are shortened and say how much they leave out.
    """
    width = terminal_width(width)
    low = report.target_dtype
    what = (
        "Converted to" if report.emulated is None else "Computes in float32 what a model does, converted to"
    )
    count = f"{report.low_nodes} of {count_of(len(report.nodes), 'operator node')} compute in {low}."
    if report.nothing_low is None:
        lines = paragraph(f"{what} {low} for the target {report.target}: {count}", width)
    else:
        lines = paragraph(
            f"Nothing was converted to {low} for the target {report.target}: {report.nothing_low}.", width
        )
        lines += paragraph(count, width)
    share = report.low_multiply_add_share
    if share is not None and report.low_nodes:
        lines += paragraph(f"Multiply-adds in {low}: {_percent(share)}.", width)
    if report.assumed_shapes:
        shapes = ", ".join(f"{name} {shape}" for name, shape in report.assumed_shapes.items())
        what = "Precision was weighed by costs" if report.weighs_assumed else "The graph was prepared"
        lines += paragraph(
            f"{what} for assumed shapes: {shapes}. Where yours are others, give them "
            f"with {argument('input_shapes')}.",
            width,
            hanging="  ",
        )
    if report.time is not None:
        lines += paragraph(_time_line(report.time), width, hanging="  ")
    if report.time_here is not None:
        lines += paragraph(f"Not here: {_estimated(report.time_here)}", width, hanging="  ")
    lines += _race_lines(report, width)
    for line in guard_lines(report.guard, with_warning=False) if report.guard is not None else ():
        lines += paragraph(line, width, hanging="  ")
    for line in compensation_lines(report.compensation) if report.compensation is not None else ():
        lines += paragraph(line, width, hanging="  ")
    for line in preparation_lines(report):
        lines += paragraph(line, width, hanging="  ")
    lines += paragraph(_parameter_line(report), width)
    for line in range_lines(report):
        lines += paragraph(line, width, hanging="  ")
    lines += paragraph("Inputs: " + _named_dtypes(report.inputs.items()) + ".", width, hanging="  ")
    lines += paragraph("Outputs: " + _named_dtypes(report.outputs.items()) + ".", width, hanging="  ")
    lines += ["", *_color_table(report, width), "", *cast_lines(report, width)]
    reasons = _reason_lines(report, width)
    if reasons:
        lines += ["", *reasons]
    if report.approximations:
        lines += ["", "What emulation cannot show:"]
        for approximation in report.approximations:
            lines += paragraph(approximation, width, indent="  - ", hanging="    ")
    if report.warnings:
        lines += ["", "Warnings:"]
        for warning in report.warnings:
            lines += paragraph(warning, width, indent="  - ", hanging="    ")
    return "\n".join(lines)


def _time_line(time: TimeReport) -> str:
    """Return what a forward pass is expected to take."""
    if time.measured_nodes:
        return (
            f"Time of a forward pass, as the sum of what was measured in this model: float32 "
            f"{_duration(time.float32_us)}, mixed {_duration(time.mixed_us)}, of which casts "
            f"{_duration(time.casts_us)} ({count_of(time.measured_nodes, 'node')} measured)."
        )
    return f"Estimated time of a forward pass: {_estimated(time)}"


def _estimated(time: TimeReport) -> str:
    """Return what an estimate comes to, and the machine that it is of."""
    basis = "measured" if time.is_measured else "computed, not measured"
    said = f"float32 {_duration(time.float32_us)}"
    if time.casts_us or time.mixed_us != time.float32_us:
        said += f", mixed {_duration(time.mixed_us)}, of which casts {_duration(time.casts_us)}"
    return f"{said} (by costs of {time.machine}; {basis})."


def _race_lines(report: Report, width: int) -> list[str]:
    """Return the plans that were run against each other, a line each."""
    if not report.race:
        return []
    lines = paragraph("Plans run against each other here, as whole models:", width)
    columns = [
        Column("Plan", 16),
        Column("ms", right=True),
        Column("expected", right=True),
        Column("times as fast", right=True),
        Column("casts", right=True),
        *([Column("Problem", 12)] if any(plan.problem for plan in report.race) else []),
    ]
    rows = []
    for plan in report.race:
        time = "not run" if plan.median_ms is None else f"{plan.median_ms:.2f}"
        ratio = ""
        if plan.ratio is not None and plan.ratio_low is not None and plan.ratio_high is not None:
            ratio = f"{plan.ratio:.2f} ({plan.ratio_low:.2f} to {plan.ratio_high:.2f})"
        expected = "" if plan.estimated_ms is None else f"{plan.estimated_ms:.2f}"
        name = f"{plan.name} (won)" if plan.is_chosen else plan.name
        rows.append((name, time, expected, ratio, str(plan.casts), plan.problem)[: len(columns)])
    return [*lines, *(f"  {line}" for line in format_table(columns, rows, max(20, width - 2)))]


def _duration(microseconds: float) -> str:
    if microseconds < 1000:
        return f"{microseconds:.0f} us"
    return f"{microseconds / 1000:.3g} ms" if microseconds < 1e6 else f"{microseconds / 1e6:.3g} s"


def _percent(share: float) -> str:
    """Return a share as a percentage that says 100 only where it is all of it."""
    if share < 1 and round(100 * share, 1) == 100:
        return "more than 99.9 %"
    return f"{100 * share:.1f} %"


def _named_dtypes(pairs: Iterable[tuple[str, str | None]]) -> str:
    return ", ".join(f"{name} {dtype or '(known at run time)'}" for name, dtype in pairs) or "none"


def _parameter_line(report: Report) -> str:
    before, after = report.parameter_bytes_before, report.parameter_bytes_after
    if not before:
        return "Parameters: none."
    text = (
        f"Parameters: {format_bytes(before)} -> {format_bytes(after)} ({100 * after / before:.1f} %) "
        f"in {count_of(len({name for p in report.parameters for name in p.stored}), 'array')}."
    )
    twice = [p.name for p in report.parameters if len(set(p.stored.values())) > 1]
    if twice:
        text += f" Stored in two dtypes, because their readers disagree: {some_of(twice)}."
    return text


def range_lines(report: Report) -> list[str]:
    """Return as sentences what was done to values beyond the dtype's range."""
    lines = []
    clamped = [parameter for parameter in report.parameters if parameter.saturation is not None]
    low = report.target_dtype
    if report.saturated_values:
        worst = max(
            clamped, key=lambda parameter: parameter.saturation.largest if parameter.saturation else 0.0
        )
        assert worst.saturation is not None  # all of them have one
        names = [p.name for p in clamped if p.saturation is not None and p.saturation.count]
        lines.append(
            f"Clamped to {low}'s largest value {worst.saturation.limit:.5g}: "
            f"{count_of(report.saturated_values, 'value')} of {count_of(len(names), 'parameter')} "
            f"({some_of(names)}); the largest was {worst.saturation.largest:.5g}, in {worst.name}."
        )
    for what, found in (
        ("infinite", [p.name for p in clamped if p.saturation is not None and p.saturation.infs]),
        ("NaN", [p.name for p in clamped if p.saturation is not None and p.saturation.nans]),
    ):
        if found:
            lines.append(f"Values that were {what} in the original, and still are: in {some_of(found)}.")
    rewritten = [mask for mask in report.masks if mask.after is not None]
    if rewritten:
        names = [f"{mask.node} {mask.before:.5g} -> {mask.after:.5g}" for mask in rewritten]
        lines.append(f"{count_of(len(rewritten), 'mask')} rewritten to fit {low}: {some_of(names, 3)}.")
    for mask in [mask for mask in report.masks if mask.after is None][:_MASKS_SHOWN]:
        lines.append(f"{mask.before:.5g} of {mask.node} stays as it is, in float32: {mask.reason}.")
    return lines


_PREPARED = {
    "drop_no_ops": ("node", "without effect dropped"),
    "known_choices": ("choice", "between two tensors known now"),
    "one_spelling": ("node", "written as the operator that backends run best"),
    "common_subexpressions": ("node", "merged with an equal one"),
    "fold_constants": ("node", "of parameters alone computed now"),
    "move_transposes": ("node", "moved in front of a transpose or squeeze, or gone with one"),
    "dense_layer": ("product", "with a matrix of parameters written as FullyConnected"),
    "dense_convolution": ("layer", "of few rows and many weights written as a convolution"),
    "fold_scale": ("product", "with a number done by the layer that made it"),
    "fold_bias": ("sum", "with parameters done by the layer that made it"),
    "padding": ("Pad", "done by the layer that reads it"),
    "global_pooling": ("node", "written as global Pooling"),
    "depthwise_sequences": ("depthwise layer", "of sequences run as one of images"),
    "sequence_pooling": ("Pooling", "of sequences that are brought into blocks of channels before"),
    "full_width": ("layer", "taking rows of its image whole, as a sequence"),
    "columns": ("layer", "whose column of places is a row"),
    "second_axis_max": ("max", "along the second axis written as Pooling"),
    "short_sums": ("sum", "of two terms written as an addition"),
    "summed_products": ("node", "of summed products done by a product of matrices"),
    "hard_sigmoid": ("hard sigmoid", "computed by one operator"),
    "relu": ("relu", "written as Activation"),
    "gelu": ("node", "of GELUs written as LeakyReLU"),
    "plain_softmax": ("softmax", "computed in plain order"),
    "plain_sums": ("activation", "computed apart from a sum"),
    "layer_norm": ("node", "of normalisations written as LayerNorm"),
    "activations": ("activation", "written as Activation"),
    "leaky_relu": ("node", "of leaky relus written as LeakyReLU"),
    "bounds": ("node", "of bounds written as a clip that layers take"),
    "nearest_upsampling": ("upsampling", "written as a depthwise Deconvolution"),
    "bilinear_upsampling": ("upsampling", "written as a bilinear Deconvolution"),
    "bilinear_resize": ("resize", "written as products with weights"),
    "last_axis_concat": ("Concat", "with four axes, or of rows that are turned"),
    "last_axis_split": ("split", "along the last axis written as slices"),
    "last_axis_sum": ("sum", "written as a product with ones"),
    "second_axis_sum": ("sum", "along an axis between others written as a product with ones"),
    "last_axis_norm": ("LayerNorm", "computed along the last axis"),
    "last_axis_softmax": ("softmax", "computed along the last axis"),
    "pixel_shuffle": ("node", "of shuffled pixels written with four axes"),
    "few_axes": ("node", "moving values along fewer axes"),
    "take_rows": ("take", "turned to take along the first axis"),
    "stretch_axis": ("node", "repeating values along an axis"),
    "best_boxes": ("suppression", "of boxes among the best groups of them alone"),
    "scale_and_shift": ("product or sum", "with a number done by a BatchNorm"),
    "few_channels": ("layer", "reading a few channels apart from blocks of them"),
    "pad_channels": ("layer", "with zeros for whole blocks of channels"),
    "uneven_padding": ("layer", "that pads more at one end by zeros in a window"),
    "explicit_padding": ("layer", "whose image a Pad pads before"),
    "wide_pooling": ("pooling", "over wide windows done in two steps"),
    "activations_apart": ("activation", "kept apart from its layer"),
    "skipped_places": ("layer", "whose skipped places a Pooling leaves out before"),
    "instance_norm": ("InstanceNorm", "written as LayerNorm"),
    "group_norm": ("GroupNorm", "written as LayerNorm over rows"),
    "prelu": ("PReLU", "written as depthwise convolutions"),
    "deconvolution_bias": ("Deconvolution", "whose bias a depthwise convolution adds"),
    "hard_swish": ("hard swish", "whose gate is computed in blocks of channels"),
    "plain_for_pooling": ("Pooling", "reading plain planes instead of blocks it has no kernel for"),
    "plain_concat": ("Concat", "of plain images written with three axes"),
    "channel_slices": ("slice", "along channels cut in plain order"),
    "short_rows": ("slice", "of short rows written with the operator that copies them fast"),
    "share_layout": ("layer", "whose result is reordered once"),
    "dense_input": (
        "FullyConnected",
        "whose data is brought into plain order, or MXNet would run it only once",
    ),
    "keep_branches": ("node", "guarded against MXNet's fusion"),
}


def preparation_lines(report: Report) -> list[str]:
    """Return as sentences what was folded, and what dropped, merged and rewritten before the decisions."""
    folded = sum(node.rule == FOLDED for node in report.nodes)
    lines = [f"{count_of(folded, 'BatchNorm')} folded into the layers before."] if folded else []
    sentences = dict(_PREPARED)
    for change in report.preparations:
        sentences.setdefault(change.step, ("node", f"changed by {change.step}"))
    for step, (noun, what) in sentences.items():
        names = [
            change.node
            for change in report.preparations
            # A hard sigmoid is made of several nodes, one of which is a clip.
            if change.step == step and change.into and (step != "hard_sigmoid" or change.op == "clip")
        ]
        if names:
            lines.append(f"{count_of(len(names), noun)} {what}: {some_of(names, 3)}.")
    for change in [change for change in report.preparations if change.into is None][:_MASKS_SHOWN]:
        lines.append(f"{change.node} ({change.step}): {change.reason}.")
    return lines


def _color_table(report: Report, width: int) -> list[str]:
    counts = Counter((node.color, node.compute or "other") for node in report.nodes)
    found = {dtype for _, dtype in counts}
    dtypes = [dtype for dtype in (report.target_dtype, "float32") if dtype in found]
    dtypes += sorted(found.difference(dtypes))
    rows = [
        (color, *(str(counts.get((color, dtype), 0)) for dtype in dtypes))
        for color in _COLORS
        if any((color, dtype) in counts for dtype in dtypes)
    ]
    if not rows:
        return ["No operator nodes."]
    return format_table(
        (Column("Color"), *(Column(f"in {dtype}", right=True) for dtype in dtypes)), rows, width
    )


def reason_groups(report: Report) -> list[tuple[str, list[NodeReport]]]:
    """Return the nodes that are not low by the reason for it, the most frequent first.

    Without those that are folded, which compute no more, and are counted apart.
    """
    groups: dict[str, list[NodeReport]] = {}
    for node in report.nodes:
        if node.compute != report.target_dtype and node.rule != FOLDED:
            groups.setdefault(node.reason, []).append(node)
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def _reason_lines(report: Report, width: int) -> list[str]:
    ordered = reason_groups(report)
    if not ordered:
        return []
    lines = [f"Not in {report.target_dtype}, and why:"]
    shown = shown_of(ordered)
    for reason, nodes in ordered[:shown]:
        lines += paragraph(f"{count_of(len(nodes), 'node')}: {reason}", width, indent="  ", hanging="    ")
        lines += paragraph(some_of([node.name for node in nodes]), width, indent="      ")
    if len(ordered) > shown:
        left = sum(len(nodes) for _, nodes in ordered[shown:])
        lines += paragraph(
            f"and {count_of(left, 'node')} for {len(ordered) - shown} other reasons.",
            width,
            indent="  ",
        )
    return lines
