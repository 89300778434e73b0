"""A stable text form of a graph, for tests, documentation and ``mxamp inspect --graph``."""

from __future__ import annotations

from typing import Sequence

from mxamp.dtypes import DType
from mxamp.graph.graph import Graph
from mxamp.ops.rounding import is_rounding


def print_graph(
    graph: Graph,
    *,
    dtypes: Sequence[Sequence[DType | None]] | None = None,
    attrs: bool = False,
    indent: str = "",
) -> str:
    """Return one line a node, ``name = Op(inputs)``, and the heads.

    Parameters
    ----------
    graph
        The graph.
    dtypes
        Dtype of every entry, as :func:`mxamp.graph.infer.infer_dtypes` gives it; shown after a colon.
    attrs
        Whether to show operator attributes (hidden ``__key__`` attributes never are).
    indent
        Put before every line.

    Examples
    --------
    ::

        data: float32
        conv0_weight: bfloat16
        data_amp_cast_bfloat16: bfloat16 = amp_cast(data)
        conv0: bfloat16 = Convolution(data_amp_cast_bfloat16, conv0_weight)
        return conv0
    """
    lines = []
    for position, node in enumerate(graph.nodes):
        line = indent + node.name
        if dtypes is not None:
            known = [str(dtype) if dtype is not None else "?" for dtype in dtypes[position]]
            # Hidden outputs repeat the first one's dtype more often than not; one word is enough then.
            line += ": " + (known[0] if len(set(known)) == 1 else ", ".join(known))
        if not node.is_variable:
            line += f" = {node.op}({', '.join(graph.describe(entry) for entry in node.inputs)})"
        if attrs:
            shown = {key: value for key, value in sorted(node.attrs.items()) if not key.startswith("__")}
            if shown:
                line += " {" + ", ".join(f"{key}: {value}" for key, value in shown.items()) + "}"
        lines.append(line)
        # A rounding's subgraph is for MXNet's inference of shapes, and says nothing.
        for number, body in enumerate(() if is_rounding(node.op) else node.subgraphs):
            lines.append(f"{indent}  body {number}:")
            lines.append(print_graph(body, attrs=attrs, indent=indent + "    ").rstrip("\n"))
    lines.append(f"{indent}return {', '.join(graph.describe(head) for head in graph.heads)}")
    return "\n".join(lines) + "\n"
