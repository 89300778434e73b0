"""Read and write MXNet's ``symbol.json`` without MXNet.

The format is NNVM's ``SaveJSON`` (3rdparty/tvm/nnvm/src/pass/saveload_json.cc, MXNet 1.9.1), with the
spellings of older versions accepted: operator parameters under ``param`` (before 0.9), user attributes
under ``attr`` (before 1.0), inputs as pairs without a version, no ``node_row_ptr``. The graph attributes,
``mxnet_version`` among them, are kept, so MXNet upgrades an old graph on reading exactly as it would have
upgraded the original.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Mapping, Sequence

from mxamp.errors import GraphError, ModelFileNotFoundError, SymbolFormatError
from mxamp.files import existing_file
from mxamp.garbage import paused_collection
from mxamp.graph.graph import VARIABLE, Entry, Graph, Node

__all__ = ["parse_symbol", "read_symbol", "write_symbol"]

_ATTRIBUTE_KEYS = ("param", "attr", "attrs")
_MAX_NESTING = 32
_MAX_OUTPUTS = 2**16


def read_symbol(path: str | Path) -> Graph:
    """Read a ``symbol.json`` file.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    ModelFileNotFoundError
        When there is no such file; the message names similar files beside it.
    SymbolFormatError, GraphError
        When its content is not a symbol; see :func:`parse_symbol`.
    """
    try:
        path = existing_file(path, "symbol file")
    except ModelFileNotFoundError as error:
        raise ModelFileNotFoundError(
            f"{error} A model is a pair PREFIX-symbol.json and PREFIX-0000.params, as HybridBlock.export or "
            "model.save_checkpoint write it."
        ) from None
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SymbolFormatError(
            f"{str(path)!r} cannot be read: {error.strerror or error}. Check its permissions and the disk."
        ) from error
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SymbolFormatError(
            f"{str(path)!r} is not text: byte {error.start} is not UTF-8. A symbol file is JSON; "
            "was the .params file given in its place?"
        ) from None
    return parse_symbol(text, source=str(path))


@paused_collection()
def parse_symbol(text: str, *, source: str = "the symbol") -> Graph:
    """Parse the text of a ``symbol.json``.

    Parameters
    ----------
    text
        JSON as MXNet's ``Symbol.tojson`` or ``Symbol.save`` write it.
    source
        How messages call the text: a file name.

    Returns
    -------
    Graph
        The graph, its nodes in the file's order wherever that order is topological.

    Raises
    ------
    SymbolFormatError
        When the text is not JSON, or not a symbol; the message says where.
    GraphError
        When the graph has a cycle.

    Notes
    -----
    Linear in nodes and inputs, and without recursion over nodes; only nested control-flow bodies nest.
    """
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        # A string cannot hold a line break, so one without an end runs into the end of the file.
        ended = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        trouble = "it ends too early; the file is truncated" if ended else error.msg
        raise SymbolFormatError(
            f"{source} is not valid JSON: {trouble} (line {error.lineno}, column {error.colno}, "
            f"character {error.pos} of {len(text)}). Export the model again."
        ) from None
    except RecursionError:
        raise SymbolFormatError(f"{source} nests JSON too deeply to be a symbol.") from None
    except ValueError as error:  # e.g. an integer with more digits than Python agrees to read
        raise SymbolFormatError(f"{source} holds a value that no symbol has: {error}.") from None
    return _parse_graph(document, source, "$", 0)


def _parse_graph(document: Any, source: str, path: str, depth: int) -> Graph:
    if depth > _MAX_NESTING:
        raise SymbolFormatError(
            f"{source} nests control-flow bodies more than {_MAX_NESTING} deep, at {path}."
        )
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        found = (
            f"an object with the keys {sorted(document)[:6]}"
            if isinstance(document, dict)
            else (f"a JSON {type(document).__name__}")
        )
        raise SymbolFormatError(
            f"{source} is JSON but not a symbol: {path} is {found}, and a symbol is an object with the list "
            "'nodes' and the list 'heads'. Give the file that ends in -symbol.json."
        )
    raw_nodes = document["nodes"]
    count = len(raw_nodes)
    row_ptr = document.get("node_row_ptr")
    if not (isinstance(row_ptr, list) and len(row_ptr) == count + 1):
        row_ptr = None
    elif not all(type(number) is int for number in row_ptr):
        raise SymbolFormatError(f"{source}: {path}.node_row_ptr must hold whole numbers and nothing else.")
    nodes: list[Node] = []
    ordered = True
    for position, raw in enumerate(raw_nodes):
        node = _parse_node(raw, position, count, source, path, depth)
        for producer, _ in node.inputs:
            if producer >= position:
                ordered = False
        if node.control_deps and max(node.control_deps) >= position:
            ordered = False
        nodes.append(node)

    raw_heads = document.get("heads")
    if not isinstance(raw_heads, list) or not raw_heads:
        raise SymbolFormatError(f"{source} has no outputs: {path}.heads must be a list with an entry.")
    heads, head_versions = _parse_entries(raw_heads, count, source, f"{path}.heads")
    nodes = _with_output_counts(nodes, heads, row_ptr, source, path)

    attrs = document.get("attrs", {})
    if not isinstance(attrs, dict):
        raise SymbolFormatError(f"{source}: {path}.attrs must be an object, not {type(attrs).__name__}.")
    if not ordered:
        nodes, heads = _in_topological_order(nodes, heads, source)
    graph = Graph(tuple(nodes), heads, attrs, head_versions)
    _check_variable_names(graph, source)
    return graph


def _parse_node(raw: Any, position: int, count: int, source: str, path: str, depth: int) -> Node:
    where = f"{path}.nodes[{position}]"
    if not isinstance(raw, dict):
        raise SymbolFormatError(f"{source}: {where} must be an object, not {type(raw).__name__}.")
    op, name = raw.get("op"), raw.get("name")
    if not isinstance(op, str) or not isinstance(name, str):
        raise SymbolFormatError(f"{source}: {where} needs the strings 'op' and 'name'.")
    attrs: dict[str, str] = {}
    for key in _ATTRIBUTE_KEYS:
        group = raw.get(key)
        if group is None:
            continue
        if not isinstance(group, dict):
            raise SymbolFormatError(f"{source}: {where}.{key} (node {name!r}) must be an object of strings.")
        for attribute, value in group.items():
            if not isinstance(value, str):
                raise SymbolFormatError(
                    f"{source}: {where}.{key}.{attribute} (node {name!r}) must be a string, "
                    f"not {type(value).__name__}."
                )
        attrs.update(group)
    raw_inputs = raw.get("inputs", [])
    if not isinstance(raw_inputs, list):
        raise SymbolFormatError(f"{source}: {where}.inputs (node {name!r}) must be a list.")
    inputs: tuple[Entry, ...] = ()
    versions: tuple[int, ...] = ()
    if raw_inputs:
        if op == VARIABLE:
            raise SymbolFormatError(
                f"{source}: {where} is the variable {name!r}, and a variable reads nothing."
            )
        inputs, versions = _parse_entries(raw_inputs, count, source, f"{where}.inputs", name)
    control_deps: tuple[int, ...] = ()
    if raw.get("control_deps"):
        control_deps = _parse_control_deps(raw["control_deps"], count, source, where)
    subgraphs: tuple[Graph, ...] = ()
    if raw.get("subgraphs"):
        if not isinstance(raw["subgraphs"], list):
            raise SymbolFormatError(f"{source}: {where}.subgraphs (node {name!r}) must be a list.")
        subgraphs = tuple(
            _parse_graph(body, source, f"{where}.subgraphs[{number}]", depth + 1)
            for number, body in enumerate(raw["subgraphs"])
        )
    return Node(op, name, attrs, inputs, 1, subgraphs, control_deps, versions)


def _parse_entries(
    raw: Sequence[Any], count: int, source: str, where: str, name: str = ""
) -> tuple[tuple[Entry, ...], tuple[int, ...]]:
    entries = []
    versions = []
    for number, item in enumerate(raw):
        if isinstance(item, list) and 2 <= len(item) <= 3 and all(type(part) is int for part in item):
            producer, index = item[0], item[1]
            if 0 <= producer < count and 0 <= index < 2**31:
                entries.append(Entry(producer, index))
                versions.append(item[2] if len(item) == 3 else 0)
                continue
        of_node = f" (node {name!r})" if name else ""
        raise SymbolFormatError(
            f"{source}: {where}[{number}]{of_node} is {json.dumps(item)[:80]}, which names no entry of this "
            f"graph; it must be [node, output, version] with a node from 0 to {count - 1}."
        )
    return tuple(entries), (tuple(versions) if any(versions) else ())


def _parse_control_deps(raw: Any, count: int, source: str, where: str) -> tuple[int, ...]:
    if not isinstance(raw, list) or not all(type(dep) is int and 0 <= dep < count for dep in raw):
        raise SymbolFormatError(
            f"{source}: {where}.control_deps must be a list of node numbers from 0 to {count - 1}."
        )
    return tuple(raw)


def _with_output_counts(
    nodes: list[Node], heads: tuple[Entry, ...], row_ptr: Any, source: str, path: str
) -> list[Node]:
    """Set ``num_outputs`` from ``node_row_ptr``, or from the outputs that are read where it is absent."""
    read = [1] * len(nodes)
    for node in nodes:
        for producer, index in node.inputs:
            if index >= read[producer]:
                read[producer] = index + 1
    for producer, index in heads:
        read[producer] = max(read[producer], index + 1)
    counted = []
    for position, node in enumerate(nodes):
        outputs = read[position]
        if row_ptr is not None:
            declared = row_ptr[position + 1] - row_ptr[position]
            if declared < outputs:
                raise SymbolFormatError(
                    f"{source}: {path}.node_row_ptr gives {node} {declared} outputs, "
                    f"but its output {outputs - 1} is read."
                )
            if node.is_variable and declared > 1:
                raise SymbolFormatError(
                    f"{source}: {path}.node_row_ptr gives the variable {node.name!r} {declared} outputs."
                )
            outputs = declared
        elif node.is_variable and outputs > 1:
            raise SymbolFormatError(f"{source}: output {outputs - 1} of the variable {node.name!r} is read.")
        if outputs > _MAX_OUTPUTS:
            raise SymbolFormatError(f"{source}: {node} has {outputs} outputs, and no operator has that many.")
        counted.append(node if outputs == 1 else node._replace(num_outputs=outputs))
    return counted


def _in_topological_order(
    nodes: list[Node], heads: tuple[Entry, ...], source: str
) -> tuple[list[Node], tuple[Entry, ...]]:
    """Reorder nodes so that each comes after those it reads; keeps the file's order where it can."""
    waiting = [len({p for p, _ in node.inputs} | set(node.control_deps)) for node in nodes]
    readers: list[list[int]] = [[] for _ in nodes]
    for position, node in enumerate(nodes):
        for producer in {p for p, _ in node.inputs} | set(node.control_deps):
            readers[producer].append(position)
    ready = [position for position in range(len(nodes)) if not waiting[position]]
    order: list[int] = []
    for position in ready:  # grows while it is walked
        order.append(position)
        for reader in readers[position]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    if len(order) < len(nodes):
        raise GraphError(_cycle_message(nodes, waiting, source))
    new_position = [0] * len(nodes)
    for new, old in enumerate(order):
        new_position[old] = new
    moved = [
        nodes[old]._replace(
            inputs=tuple(Entry(new_position[p], index) for p, index in nodes[old].inputs),
            control_deps=tuple(new_position[dep] for dep in nodes[old].control_deps),
        )
        for old in order
    ]
    return moved, tuple(Entry(new_position[p], index) for p, index in heads)


def _cycle_message(nodes: list[Node], waiting: list[int], source: str) -> str:
    position = next(p for p, left in enumerate(waiting) if left)
    trail: list[int] = []
    seen: dict[int, int] = {}
    while position not in seen:
        seen[position] = len(trail)
        trail.append(position)
        node = nodes[position]
        position = next(p for p in [e.node for e in node.inputs] + list(node.control_deps) if waiting[p])
    names = [nodes[p].name for p in reversed(trail[seen[position] :])]
    shown = " -> ".join(names[:6]) + (" -> ..." if len(names) > 6 else "")
    return (
        f"{source} has a cycle, so it cannot be computed: {shown} -> {names[0]}. "
        "MXNet never writes one; the file was edited or damaged. Export the model again."
    )


def _check_variable_names(graph: Graph, source: str) -> None:
    if len(graph.variables) == sum(node.op == VARIABLE for node in graph.nodes):
        return
    seen: set[str] = set()
    for node in graph.nodes:
        if node.op == VARIABLE:
            if node.name in seen:
                raise GraphError(
                    f"{source} has two variables named {node.name!r}; MXNet cannot bind such a graph. "
                    "Rename one of them."
                )
            seen.add(node.name)


def write_symbol(graph: Graph) -> str:
    """Return the ``symbol.json`` text of a graph, one node a line.

    Returns
    -------
    str
        JSON that ``mx.sym.load_json`` reads. Parsing it again gives an equal graph.
    """
    return _write_graph(graph) + "\n"


def _write_graph(graph: Graph) -> str:
    encode = json.JSONEncoder(ensure_ascii=False).encode
    lines = []
    row_ptr = [0]
    for node in graph.nodes:
        parts = [f'"op": {encode(node.op)}, "name": {encode(node.name)}']
        if node.attrs:
            parts.append(f'"attrs": {encode(dict(node.attrs))}')
        parts.append(f'"inputs": {_entries_text(node.inputs, node.input_versions)}')
        if node.control_deps:
            parts.append(f'"control_deps": {list(node.control_deps)}')
        if node.subgraphs:
            parts.append('"subgraphs": [' + ", ".join(_write_graph(body) for body in node.subgraphs) + "]")
        lines.append("{" + ", ".join(parts) + "}")
        row_ptr.append(row_ptr[-1] + node.num_outputs)
    arg_nodes = [position for position, node in enumerate(graph.nodes) if node.op == VARIABLE]
    return (
        '{"nodes": [\n'
        + ",\n".join(lines)
        + f'\n],\n"arg_nodes": {arg_nodes},\n"node_row_ptr": {row_ptr},\n'
        + f'"heads": {_entries_text(graph.heads, graph.head_versions)},\n'
        + f'"attrs": {encode(_plain(graph.attrs))}}}'
    )


def _entries_text(entries: tuple[Entry, ...], versions: tuple[int, ...]) -> str:
    if versions:
        return str([[node, index, version] for (node, index), version in zip(entries, versions)])
    return "[" + ", ".join([f"[{node}, {index}, 0]" for node, index in entries]) + "]"


def _plain(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return dict(attrs)
