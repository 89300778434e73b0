"""``mxamp inspect``: what runs in which precision, the casts, the sizes."""

from __future__ import annotations

import argparse
from typing import Any, Mapping

from mxamp.cli.console import print_json
from mxamp.cli.source import add_input_option, add_source_options, read_source, recorded_provenance
from mxamp.errors import UnknownNameError, nearest_names
from mxamp.graph.infer import infer_dtypes, variable_dtypes
from mxamp.graph.printer import print_graph
from mxamp.messages.warn import warn_user
from mxamp.model import Model
from mxamp.model.provenance import Provenance
from mxamp.model.source_files import FileRecord
from mxamp.params.check import declared_inputs
from mxamp.report.guard import NOT_RUN, guard_lines
from mxamp.report.inspection import Inspection, inspect_model, lost_casts
from mxamp.report.inspection_text import cast_table, inspected_node_table, inspection_summary, select_nodes
from mxamp.report.table import paragraph, terminal_width

_EPILOG = """\
examples:
  mxamp inspect resnet50-bf16                      the overview
  mxamp inspect resnet50-bf16 --casts              every cast: what, how, who reads it
  mxamp inspect resnet50-bf16 --nodes 'stage1_*'   the nodes whose name fits
  mxamp inspect resnet50-bf16 --nodes softmax      the nodes of an operator
  mxamp inspect resnet50-bf16 --graph              one line a node, with dtypes
  mxamp inspect resnet50-bf16 --json               everything, for a program

It reads the files alone, so it works for any MXNet model, converted or not, and needs no MXNet. What a model
was made from, and why a node has its precision, is told where PREFIX-mxamp.json is there, which mxamp convert
writes."""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "inspect",
        help="show what runs in which precision, the casts, the sizes",
        description="Show what a saved model runs in which precision, its casts and its sizes.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "model",
        metavar="PREFIX",
        help="the files' path up to -symbol.json and -0000.params, or zoo:NAME",
    )
    add_source_options(parser)
    add_input_option(parser)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="print everything as JSON")
    shown.add_argument("--graph", action="store_true", help="print the graph, one line a node")
    shown.add_argument(
        "--nodes",
        nargs="?",
        const="*",
        metavar="GLOB",
        help="print a table of the nodes whose name or operator fits the shell pattern (default: all)",
    )
    shown.add_argument("--casts", action="store_true", help="print a table of all casts")
    parser.add_argument(
        "--width", type=int, metavar="N", help="lay out for N columns (default: the terminal's)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Inspect a model."""
    source = read_source(args.model, epoch=args.epoch, pretrained=args.pretrained)
    if args.graph:
        print(_graph_text(source.model), end="")
        return 0
    provenance = recorded_provenance(source)
    graph, params = source.model.graph, {**source.model.arg_params, **source.model.aux_params}
    inputs = declared_inputs(graph, params, args.input)
    if provenance is not None and provenance.report is not None:
        inputs += provenance.report.inputs
    inspection = inspect_model(graph, params, inputs=inputs)
    broken = lost_casts(graph, params)
    if broken is not None:
        warn_user(broken)
    if args.json:
        known = None if provenance is None else provenance.to_mapping()
        document = inspection.to_mapping()
        print_json({"model": source.label, "weights": source.weights, **document, "provenance": known})
    elif args.nodes is not None:
        reasons = _reasons(provenance)
        print(inspected_node_table(_fitting(inspection, args.nodes), args.width, reasons=reasons))
    elif args.casts:
        print(cast_table(inspection.casts, args.width) if inspection.casts else "No casts.")
    else:
        print(source.label)
        if source.weights:
            print(f"Weights: {source.weights}.")
        print(inspection_summary(inspection, args.width))
        if provenance is not None:
            print()
            for sentence in _origin(provenance):
                print("\n".join(paragraph(sentence, terminal_width(args.width), hanging="  ")))
    return 0


def _origin(provenance: Provenance) -> list[str]:
    """Say what a model was made from, and how."""

    def described(record: FileRecord) -> str:
        return f"{record.name} ({record.short_digest})"

    source = "a model in memory"
    if provenance.source_symbol is not None and provenance.source_params is not None:
        source = f"{described(provenance.source_symbol)} and {described(provenance.source_params)}"
    report, policy = provenance.report, provenance.policy
    if report is None:
        return [f"Written by mxamp {provenance.mxamp}, not converted, from {source}."]
    lines = [
        f"Converted by mxamp {provenance.mxamp} to {report.target_dtype} for the target {report.target}, "
        f"from {source}."
    ]
    if policy is not None:
        kind = "the built-in one" if policy.name == "default" else policy.name
        function = f", with the color function {policy.color_function}" if policy.color_function else ""
        lines.append(f"Policy: {kind}{function}.")
    if report.guard is not None and report.guard.outcome != NOT_RUN:
        lines += guard_lines(report.guard)
    lines.append("Why each node computes in what it does: mxamp inspect --nodes.")
    return lines


def _reasons(provenance: Provenance | None) -> Mapping[str, str]:
    """Return node name -> why it computes in what it does, as far as that is known."""
    if provenance is None or provenance.report is None:
        return {}
    nodes = provenance.report.nodes
    # A layer also has the names of what was folded into it; its own reason is the one to tell.
    return {
        **{node.name_after: node.reason for node in nodes},
        **{node.name: node.reason for node in nodes if node.name == node.name_after},
    }


def _graph_text(model: Model) -> str:
    stored = {name: value.dtype for name, value in {**model.arg_params, **model.aux_params}.items()}
    dtypes = infer_dtypes(model.graph, variable_dtypes(model.graph, stored))
    return print_graph(model.graph, dtypes=dtypes)


def _fitting(inspection: Inspection, glob: str) -> Any:
    nodes = select_nodes(inspection, glob)
    if not nodes and inspection.nodes:
        known = [
            *dict.fromkeys(node.op for node in inspection.nodes),
            *(node.name for node in inspection.nodes),
        ]
        raise UnknownNameError(
            f"No node has a name or operator that fits {glob!r}.{nearest_names(glob.strip('*'), known)} "
            "Put the pattern in quotes, so that the shell does not expand it."
        )
    return nodes
