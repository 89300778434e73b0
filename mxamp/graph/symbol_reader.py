"""Read MXNet's ``symbol.json`` without MXNet.

The format is NNVM's ``SaveJSON`` (3rdparty/tvm/nnvm/src/pass/saveload_json.cc, MXNet 1.9.1), with the
spellings of older versions accepted: operator parameters under ``param`` (before 0.9), user attributes
under ``attr`` (before 1.0), inputs as pairs without a version, no ``node_row_ptr``. The graph attributes,
``mxnet_version`` among them, are kept, so MXNet upgrades an old graph on reading exactly as it would have
upgraded the original.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterable, Sequence

from mxamp.errors import GraphError, ModelFileNotFoundError, SymbolFormatError
from mxamp.files import existing_file, why_unreadable
from mxamp.files.json_text import parse_json
from mxamp.files.names import MAX_NAME_LENGTH, name_fault, short
from mxamp.graph.garbage import paused_collection
from mxamp.graph.graph import VARIABLE, Entry, Graph, Node
from mxamp.graph.limits import (
    COUNTING_ATTRIBUTES,
    MAX_BYTES,
    MAX_HEADS,
    MAX_NESTING,
    MAX_NUMBER,
    MAX_OUTPUTS,
    MAX_TOTAL_OUTPUTS,
    attribute_fault,
    graph_attribute_fault,
)

_OLDER_ATTRIBUTE_KEYS = ("param", "attr")
_COMMON_KEYS = frozenset({"op", "name", "attrs", "inputs"})
_NO_INPUTS: list[Any] = []
_ONLY_TEXT = frozenset({str})
_COUNTING = frozenset(COUNTING_ATTRIBUTES)
_ADVICE = "Export the model again."


def read_symbol(path: str | Path) -> Graph:
    """Read a ``symbol.json`` file.

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
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise SymbolFormatError(
                f"{str(path)!r} has {size} bytes, and no symbol has more than {MAX_BYTES}. "
                "Was the .params file given in its place?"
            )
        data = path.read_bytes()
    except OSError as error:
        raise SymbolFormatError(f"{str(path)!r} cannot be read: {why_unreadable(error)}") from error
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SymbolFormatError(
            f"{str(path)!r} is not text: byte {error.start} is not UTF-8. A symbol file is JSON; "
            "was the .params file given in its place?"
        ) from None
    return parse_symbol(text, source=str(path))


@paused_collection()
def parse_symbol(text: str, *, source: str = "the symbol", is_from_mxnet: bool = False) -> Graph:
    """Parse the text of a ``symbol.json``.

    Parameters
    ----------
    text
        JSON as MXNet's ``Symbol.tojson`` or ``Symbol.save`` write it.
    source
        How messages call the text: a file name.
    is_from_mxnet
        Whether MXNet wrote it just now: it then repeats no key.

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
    document = parse_json(
        text, source=source, error=SymbolFormatError, advice=_ADVICE, has_unique_keys=is_from_mxnet
    )
    return _parse_graph(document, source, "$", 0)


def _parse_graph(document: Any, source: str, path: str, depth: int) -> Graph:
    if depth > MAX_NESTING:
        raise SymbolFormatError(
            f"{source} nests control-flow bodies more than {MAX_NESTING} deep, at {path}."
        )
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        found = (
            f"an object with the keys {short(sorted(document))}"
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
    elif not all(type(number) is int and 0 <= number < MAX_NUMBER for number in row_ptr):
        raise SymbolFormatError(
            f"{source}: {path}.node_row_ptr must hold whole numbers from 0 and nothing else."
        )
    nodes: list[Node] = []
    ordered = True
    read = [1] * count  # outputs, as far as they are read
    for position, raw in enumerate(raw_nodes):
        node = _parse_node(raw, position, count, source, path, depth)
        for producer, index in node.inputs:
            if producer >= position:
                ordered = False
            if index >= read[producer]:
                read[producer] = index + 1
        if node.control_deps and max(node.control_deps) >= position:
            ordered = False
        nodes.append(node)
    _check_names(nodes, source, path)
    heads, head_versions = _parse_heads(document.get("heads"), count, source, path)
    for producer, index in heads:
        if index >= read[producer]:
            read[producer] = index + 1
    nodes = _with_output_counts(nodes, read, row_ptr, source, path)

    attrs = document.get("attrs", {})
    if not isinstance(attrs, dict):
        raise SymbolFormatError(f"{source}: {path}.attrs must be an object, not {type(attrs).__name__}.")
    for key, value in attrs.items():
        fault = graph_attribute_fault(value)
        if fault:
            raise SymbolFormatError(f"{source}: {path}.attrs.{short(key)[1:-1]} {fault}. {_ADVICE}")
    if document.get("arg_nodes"):
        _parse_positions(document["arg_nodes"], count, source, f"{path}.arg_nodes")
    if not ordered:
        nodes, heads = _in_topological_order(nodes, heads, source)
    if any(node.subgraphs for node in nodes):
        nodes, heads = _with_variables_once(nodes, heads)
    graph = Graph(tuple(nodes), heads, attrs, head_versions)
    _check_variable_names(graph, source)
    return graph


def _parse_heads(raw: Any, count: int, source: str, path: str) -> tuple[tuple[Entry, ...], tuple[int, ...]]:
    if not isinstance(raw, list) or not raw:
        raise SymbolFormatError(f"{source} has no outputs: {path}.heads must be a list with an entry.")
    if len(raw) > MAX_HEADS:
        raise SymbolFormatError(
            f"{source}: {path}.heads names {len(raw)} outputs, and no model has more than {MAX_HEADS}. "
            f"{_ADVICE}"
        )
    return _parse_entries(raw, count, source, path)


def _parse_node(raw: Any, position: int, count: int, source: str, path: str, depth: int) -> Node:
    if not isinstance(raw, dict):
        raise SymbolFormatError(
            f"{source}: {path}.nodes[{position}] must be an object, not {type(raw).__name__}."
        )
    op, name = raw.get("op"), raw.get("name")
    if not isinstance(op, str) or not isinstance(name, str):
        raise SymbolFormatError(f"{source}: {path}.nodes[{position}] needs the strings 'op' and 'name'.")
    attrs = raw.get("attrs")
    if attrs is None:
        attrs = {}
    else:
        _check_attributes(attrs, source, path, position, "attrs", name)
    raw_inputs = raw.get("inputs", _NO_INPUTS)
    inputs: tuple[Entry, ...] = ()
    versions: tuple[int, ...] = ()
    if type(raw_inputs) is not list:
        raise SymbolFormatError(
            f"{source}: {path}.nodes[{position}].inputs (node {short(name)}) must be a list."
        )
    if raw_inputs:
        if op == VARIABLE:
            raise SymbolFormatError(
                f"{source}: {path}.nodes[{position}] is the variable {short(name)}, "
                "and a variable reads nothing."
            )
        inputs, versions = _parse_entries(raw_inputs, count, source, path, position, name)
    if _COMMON_KEYS.issuperset(raw):
        return Node(op, name, attrs, inputs, input_versions=versions)

    older = [key for key in _OLDER_ATTRIBUTE_KEYS if raw.get(key) is not None]
    for key in older:
        _check_attributes(raw[key], source, path, position, key, name)
    if older:
        attrs = {
            attribute: text
            for group in (*(raw[key] for key in older), attrs)
            for attribute, text in group.items()
        }
    control_deps: tuple[int, ...] = ()
    if raw.get("control_deps"):
        control_deps = _parse_positions(
            raw["control_deps"], count, source, f"{path}.nodes[{position}].control_deps"
        )
    subgraphs: tuple[Graph, ...] = ()
    if raw.get("subgraphs"):
        where = f"{path}.nodes[{position}].subgraphs"
        if not isinstance(raw["subgraphs"], list):
            raise SymbolFormatError(f"{source}: {where} (node {short(name)}) must be a list.")
        if op == VARIABLE:
            raise SymbolFormatError(f"{source}: {where}: the variable {short(name)} cannot have bodies.")
        subgraphs = tuple(
            _parse_graph(body, source, f"{where}[{number}]", depth + 1)
            for number, body in enumerate(raw["subgraphs"])
        )
    return Node(op, name, attrs, inputs, 1, subgraphs, control_deps, versions)


def _check_names(nodes: Sequence[Node], source: str, path: str) -> None:
    texts = [node.name for node in nodes] + [node.op for node in nodes]
    together = "".join(texts)
    if together.isprintable() and ".." not in together and max(map(len, texts), default=0) <= MAX_NAME_LENGTH:
        return
    for position, node in enumerate(nodes):
        for key, text in (("op", node.op), ("name", node.name)):
            fault = name_fault(text)
            if fault:
                raise SymbolFormatError(
                    f"{source}: {path}.nodes[{position}].{key}, {short(text)}, {fault}. {_ADVICE}"
                )


def _check_attributes(group: Any, source: str, path: str, position: int, key: str, name: str) -> None:
    """Check the attributes of one node, found under ``key``."""
    if type(group) is not dict:
        raise SymbolFormatError(
            f"{source}: {path}.nodes[{position}].{key} (node {short(name)}) must be an object of strings."
        )
    if not _ONLY_TEXT.issuperset(map(type, group.values())):
        for attribute, value in group.items():
            if not isinstance(value, str):
                raise SymbolFormatError(
                    f"{source}: {path}.nodes[{position}].{key}.{short(attribute)[1:-1]} (node {short(name)}) "
                    f"must be a string, not {type(value).__name__}."
                )
    if not _COUNTING.isdisjoint(group):
        for attribute in sorted(_COUNTING.intersection(group)):
            fault = attribute_fault(group[attribute])
            if fault:
                raise SymbolFormatError(
                    f"{source}: {path}.nodes[{position}].{key}.{attribute} (node {short(name)}) {fault}. "
                    f"{_ADVICE}"
                )


def _parse_entries(
    raw: Sequence[Any], count: int, source: str, path: str, position: int | None = None, name: str = ""
) -> tuple[tuple[Entry, ...], tuple[int, ...]]:
    """Read the inputs of the node at ``position``, or the heads."""
    entries: list[Entry] = []
    versions: list[int] = []
    for number, item in enumerate(raw):
        if type(item) is list:
            parts = len(item)
            producer, index, version = item if parts == 3 else (*item, 0) if parts == 2 else (-1, 0, 0)
            # bool is a subclass of int, and true is no number.
            if (
                type(producer) is type(index) is type(version) is int
                and 0 <= producer < count
                and 0 <= index < MAX_NUMBER
                and 0 <= version < MAX_NUMBER
            ):
                entries.append(Entry(producer, index))
                if version or versions:
                    versions = versions or [0] * number
                    versions.append(version)
                continue
        where = f"heads[{number}]" if position is None else f"nodes[{position}].inputs[{number}]"
        of_node = f" (node {short(name)})" if name else ""
        raise SymbolFormatError(
            f"{source}: {path}.{where}{of_node} is {short(item)}, which names no entry of this "
            f"graph; it must be [node, output, version] with a node from 0 to {count - 1}."
        )
    return tuple(entries), tuple(versions)


def _parse_positions(raw: Any, count: int, source: str, where: str) -> tuple[int, ...]:
    if not isinstance(raw, list) or not all(type(number) is int and 0 <= number < count for number in raw):
        raise SymbolFormatError(f"{source}: {where} must be a list of node numbers from 0 to {count - 1}.")
    return tuple(raw)


def _with_output_counts(
    nodes: list[Node], read: Sequence[int], row_ptr: Any, source: str, path: str
) -> list[Node]:
    """Set ``num_outputs`` from ``node_row_ptr``, or from the outputs that are read where it is absent."""
    counted = []
    total = 0
    for position, (node, outputs) in enumerate(zip(nodes, read)):
        if row_ptr is not None:
            declared = row_ptr[position + 1] - row_ptr[position]
            if declared < outputs:
                raise SymbolFormatError(
                    f"{source}: {path}.node_row_ptr gives {node} {declared} outputs, "
                    f"but its output {outputs - 1} is read."
                )
            outputs = declared
        if outputs == 1:
            counted.append(node)
            continue
        if node.is_variable:
            says = "is read" if row_ptr is None else f"exists, says {path}.node_row_ptr"
            raise SymbolFormatError(
                f"{source}: output {outputs - 1} of the variable {node.name!r} {says}, "
                f"and a variable has one. {_ADVICE}"
            )
        total += outputs
        if outputs > MAX_OUTPUTS or total > MAX_TOTAL_OUTPUTS + len(nodes):
            raise SymbolFormatError(
                f"{source}: {path}.nodes[{position}]: {node} has {outputs} outputs, and no operator has that "
                f"many; or all nodes together have more than {MAX_TOTAL_OUTPUTS}. {_ADVICE}"
            )
        counted.append(node._replace(num_outputs=outputs))
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
    return _renumbered([nodes[old] for old in order], heads, new_position)


def _with_variables_once(nodes: list[Node], heads: tuple[Entry, ...]) -> tuple[list[Node], tuple[Entry, ...]]:
    """Merge variables of one name: a loop that reads a layer's parameters gets variables of its own for them.

    Gluon runs such a graph, for it feeds variables by their names. Where two say different things, they stay.
    """
    new_position: list[int] = []
    first: dict[str, int] = {}
    kept: list[Node] = []
    for node in nodes:
        other = first.get(node.name) if node.op == VARIABLE else None
        if other is not None and all(
            node.attrs[key] == value for key, value in kept[other].attrs.items() if key in node.attrs
        ):
            kept[other] = kept[other]._replace(attrs={**node.attrs, **kept[other].attrs})
            new_position.append(other)
            continue
        if node.op == VARIABLE:
            first.setdefault(node.name, len(kept))
        new_position.append(len(kept))
        kept.append(node)
    if len(kept) == len(nodes):
        return nodes, heads
    return _renumbered(kept, heads, new_position)


def _renumbered(
    nodes: Iterable[Node], heads: tuple[Entry, ...], new_position: Sequence[int]
) -> tuple[list[Node], tuple[Entry, ...]]:
    """Return nodes and heads that read where others are now: old position -> new one."""
    moved = [
        node._replace(
            inputs=tuple([Entry(new_position[p], index) for p, index in node.inputs]),
            control_deps=tuple([new_position[dep] for dep in node.control_deps]),
        )
        for node in nodes
    ]
    return moved, tuple([Entry(new_position[p], index) for p, index in heads])


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
                    f"{source} has two variables named {node.name!r}; Module and bind refuse such a graph, "
                    "and SymbolBlock alone runs it, with one value for both. Make the variable once and read "
                    "it in both places, or rename one of them."
                )
            seen.add(node.name)
