"""What the fuzzer feeds to the readers, and what it calls a failure; no fuzzer is needed to use it.

A target takes bytes and returns, unless mxamp fails in a way it must not: with an exception that is not its
own, or with an answer that contradicts itself. A mutator takes bytes and gives other bytes, most of which get
past the first checks of the reader, because it knows the format.
"""

from __future__ import annotations

import contextlib
import json
import random
import struct
import warnings
from pathlib import Path
from typing import Any, Callable, NamedTuple, Sequence

import numpy as np

from mxamp.convert import convert_model
from mxamp.errors import MxampError
from mxamp.graph.graph import Graph
from mxamp.graph.infer import infer_dtypes, variable_dtypes
from mxamp.graph.output_names import output_names
from mxamp.graph.symbol_reader import parse_symbol
from mxamp.graph.symbol_writer import write_symbol
from mxamp.graph.verify import verify_graph
from mxamp.params.index import parse_index
from mxamp.params.reader import ParamsFile
from mxamp.params.writer import ParamsEncoder

__all__ = ["TARGETS", "Target", "read_any_params", "read_any_symbol"]

SYMBOL, PARAMS = "symbol", "params"


class Target(NamedTuple):
    """One reader under test.

    Attributes
    ----------
    run
        Reads bytes; raises where mxamp fails.
    mutate
        ``mutate(data, random)`` gives other bytes.
    seeds
        Small files to begin with.
    """

    run: Callable[[bytes], None]
    mutate: Callable[[bytes, random.Random], bytes]
    seeds: Sequence[bytes]


# ---------------------------------------------------------------------- reading


def read_any_symbol(data: bytes) -> None:
    """Read a symbol; what was read must be a valid graph, and survive being written and read again."""
    try:
        graph = parse_symbol(data.decode("utf-8"))
    except (MxampError, UnicodeDecodeError):
        return
    verify_graph(graph)
    text = write_symbol(graph)
    text.encode("utf-8")
    if parse_symbol(text) != graph:
        raise AssertionError("the graph that was written is not the one that was read")
    with contextlib.suppress(MxampError):
        infer_dtypes(graph, variable_dtypes(graph, {}))
        output_names(graph)


def convert_any_symbol(data: bytes) -> None:
    """Convert whatever reads as a symbol, to both dtypes."""
    try:
        graph = parse_symbol(data.decode("utf-8"))
    except (MxampError, UnicodeDecodeError):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in ("float16", "bfloat16"):
            try:
                model = convert_model(graph, _parameters(graph), {}, target_dtype=dtype)
            except MxampError:
                continue
            if parse_symbol(model.symbol_json()) != model.graph:
                raise AssertionError("the converted graph does not read as it was written")
            str(model.report)


def _parameters(graph: Graph) -> dict[str, Any]:
    return {name: np.ones((4, 4, 3, 3), np.float32) for name in graph.variables if name not in ("data", "x")}


def read_any_params(data: bytes) -> None:
    """Read parameters: every tensor lies in the file, and the same bytes come back when they are written."""
    try:
        index = parse_index(Path("fuzz.params"), data)
    except MxampError:
        return
    file = ParamsFile(index, data)
    written = _Sink()
    encoder = ParamsEncoder(
        written,  # type: ignore[arg-type]
        len(index.tensors),
        numpy_shapes=index.numpy_shapes,
        has_names=index.has_names,
    )
    for name, header in index.tensors.items():
        if (
            not 24
            <= header.start
            <= header.offset
            <= header.offset + header.nbytes
            <= header.stop
            <= len(data)
        ):
            raise AssertionError(f"tensor {name!r} lies outside the file")
        encoder.add_record(name, file.record(name))
        try:
            tensor = file.tensor(name)
        except MxampError:
            continue  # a sparse one whose index arrays are damaged
        if tensor.shape != header.shape:
            raise AssertionError(f"tensor {name!r} has another shape than its header")
    encoder.finish()
    # The reserved field is not kept.
    if b"".join(written.parts)[16:] != data[16:]:
        raise AssertionError("the records that were written are not those that were read")
    with contextlib.suppress(MxampError):
        index.split()


class _Sink:
    """A file that keeps what is written to it."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def write(self, data: Any) -> None:
        """Keep some bytes."""
        self.parts.append(bytes(data))


# ---------------------------------------------------------------------- symbols to begin with


def _variable(name: str, **attrs: str) -> dict[str, Any]:
    return {"op": "null", "name": name, "inputs": [], **({"attrs": attrs} if attrs else {})}


def _operator(op: str, name: str, *inputs: Sequence[int], **attrs: Any) -> dict[str, Any]:
    return {"op": op, "name": name, "attrs": attrs, "inputs": [list(entry) for entry in inputs]}


def _document(*nodes: dict[str, Any], **rest: Any) -> dict[str, Any]:
    places = [position for position, node in enumerate(nodes) if node["op"] == "null"]
    last = [[len(nodes) - 1, 0, 0]]
    return {"nodes": list(nodes), "arg_nodes": places, "heads": last, **rest}


def _symbol_seeds() -> list[bytes]:
    plain = _document(
        _variable("data", __shape__="(1, 3, 8, 8)"),
        _variable("w", __init__='["zero", {}]'),
        _variable("g"),
        _operator(
            "Convolution", "conv", (0, 0, 0), (1, 0, 0), num_filter="4", kernel="(3, 3)", no_bias="True"
        ),
        _operator("BatchNorm", "bn", (3, 0, 0), (2, 0, 0), (2, 0, 0), (2, 0, 0), (2, 0, 0), eps="1e-5"),
        _operator("Activation", "act", (4, 0, 0), act_type="relu"),
        _operator("SliceChannel", "s", (5, 0, 0), num_outputs="2"),
        _operator("Concat", "cat", (6, 0, 0), (6, 1, 0), num_args="2", dim="1"),
        node_row_ptr=[0, 1, 2, 3, 4, 7, 8, 10, 11],
        attrs={"mxnet_version": ["int", 10901]},
    )
    casts = _document(
        _variable("data", __dtype__="0"),
        _operator("amp_cast", "down", (0, 0, 0), dtype="float16"),
        _operator("amp_multicast", "all", (1, 0, 0), (0, 0, 0), num_outputs="2"),
        _operator("_mul_scalar", "big", (2, 1, 0), scalar="1e30"),
        _operator("topk", "top", (3, 0, 0), k="2", ret_typ="both"),
    )
    body = _document(_variable("a"), _operator("exp", "e", (0, 0, 0)))
    loop = _operator(
        "_foreach", "loop", (0, 0, 0), (0, 0, 0), num_args="3", num_outputs="1", num_out_data="1"
    )
    loop["attrs"].update(in_data_locs="(0,)", in_state_locs="()", remain_locs="()")
    loop["subgraphs"] = [body]
    branch = _operator("_cond", "if", (0, 0, 0), num_args="4", num_outputs="1")
    branch["attrs"].update(cond_input_locs="(0,)", then_input_locs="(0,)", else_input_locs="(0,)")
    branch["subgraphs"] = [body, body, _document(_variable("x"), {**loop, "inputs": [[0, 0]]})]
    old = {
        "nodes": [
            {"op": "null", "param": {}, "name": "data", "inputs": [], "backward_source_id": -1},
            {"op": "clip", "param": {"a_min": "0"}, "attr": {"ctx": "1"}, "name": "c", "inputs": [[0, 0]]},
            {"op": "log", "name": "l", "inputs": [[1, 0, 3]], "control_deps": [1]},
        ],
        "arg_nodes": [0],
        "heads": [[2, 0]],
    }
    documents = [plain, casts, _document(_variable("x"), loop), _document(_variable("x"), branch), old]
    return [json.dumps(document).encode() for document in documents]


# ---------------------------------------------------------------------- parameters to begin with


def _shape(sizes: Sequence[int]) -> bytes:
    return struct.pack(f"<i{len(sizes)}q", len(sizes), *sizes)


def _dense(sizes: Sequence[int], data: bytes, *, version: int = 2, code: int = 0) -> bytes:
    rest = struct.pack("<iii", 1, 0, code) + data
    if version == 0:
        return struct.pack(f"<I{len(sizes)}I", len(sizes), *sizes) + rest
    magic = struct.pack("<I", 0xF993FAC7 + version)
    return magic + (b"" if version == 1 else bytes(4)) + _shape(sizes) + rest


def _sparse(storage: int, stored: Sequence[int], sizes: Sequence[int], *indices: Sequence[int]) -> bytes:
    head = (
        struct.pack("<Ii", 0xF993FAC9, storage)
        + _shape(stored)
        + _shape(sizes)
        + struct.pack("<iii", 1, 0, 0)
    )
    headers = b"".join(struct.pack("<i", 6) + _shape([len(index)]) for index in indices)
    values = bytes(4 * int(np.prod(stored)))
    return head + headers + values + b"".join(struct.pack(f"<{len(index)}q", *index) for index in indices)


def _list(records: Sequence[bytes], names: Sequence[bytes]) -> bytes:
    ending = b"".join(struct.pack("<Q", len(name)) + name for name in names)
    head = struct.pack("<QQQ", 0x112, 0, len(records))
    return head + b"".join(records) + struct.pack("<Q", len(names)) + ending


def _params_seeds() -> list[bytes]:
    two, codes = bytes(8), {1: 8, 2: 2, 3: 1, 4: 4, 5: 1, 6: 8, 7: 1, 12: 2}
    return [
        _list([_dense([2], two), _dense([1, 2], b"\1\2", code=3)], [b"arg:w", b"aux:s"]),
        _list([_dense([2], two, version=version) for version in (0, 1, 2)], [b"a", b"b", b"arg:c"]),
        _list([_dense([], bytes(4), version=3), _dense([0, 3], b"", version=3)], [b"a", b"b"]),
        _list([_dense([3], bytes(3 * size), code=code) for code, size in codes.items()], []),
        _list(
            [_sparse(1, (2, 3), (5, 3), [1, 3]), _sparse(2, (3,), (2, 4), [0, 2, 3], [0, 3, 1])],
            ["arg:größe".encode(), b"arg:csr"],
        ),
        _list([], []),
    ]


# ---------------------------------------------------------------------- mutation

_NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    12,
    13,
    33,
    255,
    2**16,
    2**16 + 1,
    2**31 - 1,
    2**31,
    2**32,
    2**60,
    2**63 - 1,
    2**64,
)
_TEXTS = (
    "",
    "(",
    "(1, 2)",
    "((((",
    "1e999",
    "nan",
    "None",
    "-1",
    "1" * 400,
    "float16",
    "\u0000",
    "\ud800",
    "../x",
)
_OPERATORS = (
    "null",
    "amp_cast",
    "amp_multicast",
    "Convolution",
    "BatchNorm",
    "_cond",
    "_foreach",
    "_while_loop",
)
_OPERATORS += (
    "Concat",
    "Cast",
    "topk",
    "RNN",
    "Embedding",
    "FullyConnected",
    "nobody_knows_this",
    "_mul_scalar",
)
_MAGICS = (0x112, 0xF993FAC8, 0xF993FAC9, 0xF993FACA, 0xF993FACB, *range(5))


def mutate_symbol(data: bytes, rng: random.Random) -> bytes:
    """Change the tree of a symbol, and now and then its text."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return mutate_bytes(data, rng)
    for _ in range(rng.randint(1, 4)):
        document = _changed(document, rng)
    try:
        text = json.dumps(document)
    except (ValueError, RecursionError):
        return data
    if rng.random() < 0.15:
        return mutate_text(text, rng).encode("utf-8", "surrogatepass")
    return text.encode()


def mutate_text(text: str, rng: random.Random) -> str:
    """Break the text of a JSON document: cut it, repeat a key, nest, put in what is no JSON."""
    place = rng.randrange(len(text) + 1)
    other = rng.randrange(len(text) + 1)
    first, last = min(place, other), max(place, other)
    kind = rng.randrange(6)
    if kind == 0:
        return text[:place]
    if kind == 1:
        return text[:first] + text[last:]
    if kind == 2:
        return text[:last] + text[first:]
    if kind == 3:  # a key twice
        return text.replace('"name":', '"name": "twice", "name":', 1)
    if kind == 4:
        inserted = rng.choice(
            ["NaN", "Infinity", "9" * 5000, "[" * 3000, '{"a":' * 500, "\ufeff", "\\ud800", "\\u0000"]
        )
        return text[:place] + inserted + text[place:]
    found = [number for number, character in enumerate(text) if character.isdigit()]
    if not found:
        return text
    place = rng.choice(found)
    return (
        text[:place] + rng.choice(["NaN", "-1", "1e5", "-0", "true", "null", str(2**64)]) + text[place + 1 :]
    )


def _changed(document: Any, rng: random.Random) -> Any:
    """Change one value of a JSON tree, found by walking down at random."""
    parent: Any = None
    key: Any = None
    value = document
    while isinstance(value, (dict, list)) and value and (parent is None or rng.random() < 0.85):
        parent = value
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        value = value[key]
    if parent is None:
        return rng.choice([document, [document], {"nodes": document}, None])
    kind = rng.randrange(8)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, list):
        parent.insert(rng.randrange(len(parent) + 1), json.loads(json.dumps(value)))
    elif kind == 2 and isinstance(parent, dict):
        parent[
            rng.choice(["op", "name", "attrs", "inputs", "subgraphs", "control_deps", "param", "heads", "x"])
        ] = value
    elif kind == 3 and key == "op":
        parent[key] = rng.choice(_OPERATORS)
    elif kind == 4 and isinstance(parent, dict) and "op" in parent and len(json.dumps(document)) < 20_000:
        parent["subgraphs"] = [json.loads(json.dumps(document))] * rng.randint(1, 3)
    elif kind == 5 and isinstance(value, int):
        parent[key] = value + rng.choice([-1, 1])
    else:
        parent[key] = rng.choice(
            [rng.choice(_NUMBERS), rng.choice(_TEXTS), None, True, 0.5, [], {}, [[0, 0, 0]]]
        )
    return document


def mutate_params(data: bytes, rng: random.Random) -> bytes:
    """Put another number in a place that a header may have, or cut and join records."""
    try:
        tensors = list(parse_index(Path("fuzz.params"), data).tensors.values())
    except MxampError:
        tensors = []
    kind = rng.randrange(6)
    if kind == 0 and tensors:  # records joined anew
        records = [data[tensor.start : tensor.stop] for tensor in rng.choices(tensors, k=rng.randint(1, 4))]
        return _list(records, [b"n%d" % number for number in range(len(records) - rng.randrange(2))])
    if kind < 4 and len(data) >= 32:
        place = 16 + 4 * rng.randrange((len(data) - 16) // 4)
        if tensors:
            tensor = rng.choice(tensors)
            place = tensor.start + 4 * rng.randrange(1 + (tensor.offset - tensor.start) // 4)
        if rng.random() < 0.5:
            return _with(data, place, struct.pack("<I", rng.choice((*_MAGICS, *_NUMBERS)) % 2**32))
        return _with(data, place, struct.pack("<Q", rng.choice(_NUMBERS) % 2**64))
    return mutate_bytes(data, rng)


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flip bits, cut, or join; knows nothing of any format."""
    if not data:
        return bytes(rng.randrange(256) for _ in range(rng.randint(1, 64)))
    first, last = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    kind = rng.randrange(4)
    if kind == 0:
        return data[:first] + data[last:]
    if kind == 1:
        return data[:last] + data[first:]
    if kind == 2:
        return data[:first]
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _with(data: bytes, place: int, piece: bytes) -> bytes:
    return data[:place] + piece + data[place + len(piece) :]


TARGETS = {
    SYMBOL: Target(read_any_symbol, mutate_symbol, _symbol_seeds()),
    "convert": Target(convert_any_symbol, mutate_symbol, _symbol_seeds()),
    PARAMS: Target(read_any_params, mutate_params, _params_seeds()),
}
"""Name -> what can be fuzzed."""
