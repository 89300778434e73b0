"""``mxamp inspect``: what runs in which precision, the casts, the sizes."""

from __future__ import annotations

import argparse
from typing import Any

from mxamp.cli.console import print_json
from mxamp.cli.source import add_source_options, read_source
from mxamp.errors import UnknownNameError, nearest_names
from mxamp.graph.infer import infer_dtypes, variable_dtypes
from mxamp.graph.printer import print_graph
from mxamp.model import Model
from mxamp.report.inspection import Inspection, inspect_model
from mxamp.report.inspection_text import cast_table, inspected_node_table, inspection_summary, select_nodes

__all__ = ["add_parser"]

_EPILOG = """\
examples:
  mxamp inspect resnet50-bf16                      the overview
  mxamp inspect resnet50-bf16 --casts              every cast: what, how, who reads it
  mxamp inspect resnet50-bf16 --nodes 'stage1_*'   the nodes whose name fits
  mxamp inspect resnet50-bf16 --nodes softmax      the nodes of an operator
  mxamp inspect resnet50-bf16 --graph              one line a node, with dtypes
  mxamp inspect resnet50-bf16 --json               everything, for a program

It reads the files alone, so it works for any MXNet model, converted or not, and needs no MXNet. Why a node
got its precision is known when a model is converted: mxamp convert --report FILE.json."""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "inspect",
        help="show what runs in which precision, the casts, the sizes",
        description="Show what a saved model runs in which precision, its casts and its sizes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "model",
        metavar="PREFIX",
        help="the files' path up to -symbol.json and -0000.params, or zoo:NAME",
    )
    add_source_options(parser)
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
    source = read_source(args.model, epoch=args.epoch, pretrained=args.pretrained, headers_only=True)
    if args.graph:
        print(_graph_text(source.model), end="")
        return 0
    inspection = inspect_model(source.model.graph, {**source.model.arg_params, **source.model.aux_params})
    if args.json:
        print_json({"model": source.label, "weights": source.weights, **inspection.to_mapping()})
    elif args.nodes is not None:
        print(inspected_node_table(_fitting(inspection, args.nodes), args.width))
    elif args.casts:
        print(cast_table(inspection.casts, args.width) if inspection.casts else "No casts.")
    else:
        print(source.label)
        if source.weights:
            print(f"Weights: {source.weights}.")
        print(inspection_summary(inspection, args.width))
    return 0


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
