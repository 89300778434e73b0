"""Symbols that mean harm, or were hit by something: an mxamp error with a place, at once, and no memory."""

from __future__ import annotations

import contextlib
import json
import random
import re
import time
import tracemalloc
from typing import Any, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mxamp
from mxamp.errors import GraphError, MxampError, SymbolFormatError
from mxamp.graph import parse_symbol, read_symbol, write_symbol
from tools.fuzz_targets import TARGETS

X = {"op": "null", "name": "x", "inputs": []}


def exp(name: str = "e", op: str = "exp", **attrs: Any) -> dict[str, Any]:
    return {"op": op, "name": name, "inputs": [[0, 0, 0]], "attrs": attrs}


def document(*nodes: Any, **rest: Any) -> dict[str, Any]:
    return {"nodes": list(nodes), "heads": [[len(nodes) - 1, 0, 0]], **rest}


def text(*nodes: Any, **rest: Any) -> str:
    return json.dumps(document(*nodes, **rest))


def complaint(given: str) -> str:
    with pytest.raises(GraphError) as caught:
        parse_symbol(given, source="net-symbol.json")
    message = str(caught.value)
    assert message.startswith("net-symbol.json")
    assert len(message) < 600
    assert message.isprintable()
    return message


@pytest.mark.parametrize(
    ("broken", "place"),
    [
        (text(X, exp()).replace('"e"', '"e", "name": "f"'), r"\$\.nodes\[1\] has the key 'name' twice"),
        (text(X, exp(a="1")).replace('"a"', '"a": "2", "a"'), r"\$\.nodes\[1\]\.attrs has the key 'a' twice"),
        (text(X, heads=[]).replace('"heads"', '"heads": 1, "heads"'), r"\$ has the key 'heads' twice"),
        (text(X, attrs={"a": [1]}).replace("[1]", "NaN"), r"\$\.attrs\.a is NaN"),
        (text(X, heads=[[0, 0, 0]]).replace("[[0", "[[-Infinity"), r"\$\.heads\[0\]\[0\] is -Infinity"),
        (
            text(X, exp(a="\ud800")),
            r"\$\.nodes\[1\]\.attrs\.a is a text that contains a lone surrogate, U\+D800",
        ),
        (text(X, exp(a="b\0")), r"\$\.nodes\[1\]\.attrs\.a is a text that contains a control .*U\+0000"),
        (
            text(X, exp(**{"b\x1b": "1"})),
            r"\$\.nodes\[1\]\.attrs has the key 'b\\x1b', which contains a control",
        ),
        ("\ufeff" + text(X), r"byte order mark \(character 0\)"),
        ("[" * 100_000, r"character 199 is 200 brackets deep"),
        (text(X).replace("[[0", "[[" + "9" * 5000), r"a number of hundreds of digits at character \d+"),
    ],
    ids=[
        *(
            "repeated key of a node",
            "repeated attribute",
            "repeated part",
            "NaN",
            "Infinity",
            "surrogate",
            "NUL",
        ),
        *("escape in a key", "byte order mark", "brackets", "digits"),
    ],
)
def test_json_that_is_none_or_means_two_things_is_refused_with_its_place(broken: str, place: str) -> None:
    assert re.search(place, complaint(broken))


def test_a_lone_surrogate_in_the_text_itself_has_a_place() -> None:
    assert "character 1 is a lone surrogate" in complaint('"\ud800"')


def test_escapes_that_mean_ordinary_characters_are_read() -> None:
    given = text(X, exp(name="größe", a="tab\tand\nline")).replace("exp", "\\u0065xp")
    assert parse_symbol(given).nodes[1][:3] == ("exp", "größe", {"a": "tab\tand\nline"})


@pytest.mark.parametrize(
    ("node", "place"),
    [
        ({**X, "name": "a\nb"}, r"nodes\[0\]\.name, 'a\\nb', contains a control character, U\+000A"),
        ({**exp("a"), "name": "a\tb"}, r"nodes\[0\]\.name, 'a\\tb', contains a control character, U\+0009"),
        ({**X, "name": "a\x7f"}, r"U\+007F"),
        ({**X, "name": "a\x9b31m"}, r"U\+009B"),
        ({**X, "name": "a\u2028b"}, r"U\+2028"),
        ({**X, "name": "../../etc/passwd"}, r"nodes\[0\]\.name.*leads out of a folder"),
        ({**X, "name": "..\\x"}, "leads out of a folder"),
        ({**X, "name": "n" * 70_000}, "has 70000 characters"),
        ({**X, "op": "e\rxp"}, r"nodes\[0\]\.op, 'e\\rxp', contains a control"),
    ],
    ids=[
        "line break",
        "tab of an operator",
        "DEL",
        "C1",
        "line separator",
        "parent",
        "parent, Windows",
        "long",
        "operator",
    ],
)
def test_names_that_no_file_or_terminal_should_see_are_refused(node: Any, place: str) -> None:
    assert re.search(place, complaint(text(node)))


@pytest.mark.parametrize("name", ["dense_1/kernel", "a..b", "onnx::Conv_12", "größe 層 😀", "a.b[0]:c"])
def test_names_that_other_tools_write_are_kept(name: str) -> None:
    assert parse_symbol(text({**X, "name": name})).nodes[0].name == name


@pytest.mark.parametrize(
    "attribute", ["num_args", "num_outputs", "num_weights", "num_arrays", "num_out_data"]
)
@pytest.mark.parametrize("value", ["1000000000", "-1", " 99999 ", "16385", "9" * 3000, "+20000"])
def test_counts_that_would_fill_memory_are_refused(attribute: str, value: str) -> None:
    message = complaint(text(X, exp(**{attribute: value})))
    assert f"$.nodes[1].attrs.{attribute} (node 'e')" in message


@pytest.mark.parametrize("value", ["2", "16384", "0", "00012", "x", "", "(2,)", "1e9"])
def test_counts_within_reason_are_kept_and_other_text_is_left_to_mxnet(value: str) -> None:
    assert parse_symbol(text(X, exp(num_args=value))).nodes[1].attrs == {"num_args": value}


@pytest.mark.parametrize(
    ("rest", "place"),
    [
        ({"heads": [[0, 0, 0]] * 70_000}, r"\$\.heads names 70000 outputs"),
        ({"heads": [[0, 0, 2**40]]}, r"\$\.heads\[0\]"),
        ({"heads": [[0, 0, -1]]}, r"\$\.heads\[0\]"),
        ({"heads": [[[[]], 0, 0]]}, r"\$\.heads\[0\]"),
        ({"node_row_ptr": [0, 10**30]}, r"\$\.node_row_ptr"),
        ({"node_row_ptr": [-5, -4]}, r"\$\.node_row_ptr"),
        ({"arg_nodes": [7]}, r"\$\.arg_nodes must be a list of node numbers from 0 to 0"),
        ({"arg_nodes": [-1]}, r"\$\.arg_nodes"),
        ({"attrs": {"a": [[[[[[1]]]]]]}}, r"\$\.attrs\.a nests more than 4 deep"),
        ({"attrs": {"a": ["int", 2**70]}}, r"\$\.attrs\.a holds 1180591620717411303424, more than 64 bits"),
        ({"attrs": {"a": [0] * 70_000}}, r"\$\.attrs\.a holds more than 65536 values"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_numbers_out_of_range_are_refused_with_their_place(rest: Any, place: str) -> None:
    assert re.search(place, complaint(text(X, **rest)))


def test_infinity_in_disguise_is_refused() -> None:
    assert "$.attrs.a holds a number beyond" in complaint(text(X, attrs={"a": [1]}).replace("[1]", "1e999"))


def test_outputs_of_all_nodes_together_have_a_limit() -> None:
    nodes = [X, *(exp(f"e{number}") for number in range(6))]
    heads = [[number, 60_000, 0] for number in range(1, 7)]
    assert "all nodes together" in complaint(json.dumps({"nodes": nodes, "heads": heads}))


def test_a_variable_with_bodies_is_refused() -> None:
    assert "cannot have bodies" in complaint(text({**X, "subgraphs": [document(X)]}))


def test_a_file_larger_than_any_symbol_is_not_read(tmp_path: Any) -> None:
    path = tmp_path / "net-symbol.json"
    with path.open("wb") as file:
        file.truncate(2**28 + 1)  # a hole: nothing is written
    with pytest.raises(SymbolFormatError, match="268435457 bytes"):
        read_symbol(path)


def nested(depth: int, op: str, bodies: int, attrs: dict[str, str]) -> dict[str, Any]:
    body = document({**X, "name": "a"})
    for number in range(depth):
        body = document({**X, "name": "a"}, {**exp(f"c{number}", op, **attrs), "subgraphs": [body] * bodies})
    return body


FOREACH = {
    "in_data_locs": "()",
    "in_state_locs": "()",
    "remain_locs": "(0,)",
    "num_args": "2",
    "num_outputs": "1",
}
WHILE = {"cond_input_locs": "(0,)", "func_input_locs": "(0,)", "func_var_locs": "()", "num_outputs": "1"}
CHAIN = [X, *({**exp(f"e{n}"), "inputs": [[n, 0, 0]]} for n in range(1000))]

COSTLY: dict[str, Callable[[], Any]] = {
    "bodies within bodies": lambda: nested(31, "_foreach", 1, FOREACH),
    "twice as many at each level": lambda: nested(7, "_while_loop", 2, WHILE),
    "bodies of an operator that has none": lambda: nested(31, "exp", 1, {}),
    "a body too many": lambda: nested(1, "_cond", 5, {}),
    "no body": lambda: document(X, exp(op="_cond")),
    "every output a head": lambda: {**document(X, exp()), "heads": [[1, 0, 0]] * 20_000},
    "an output number": lambda: {**document(X, exp("s", "SliceChannel")), "heads": [[1, 65_000, 0]]},
    "one node reads all": lambda: document(X, {**exp(op="add_n"), "inputs": [[0, 0, 0]] * 20_000}),
    "one name for all": lambda: document(*CHAIN[:1], *({**node, "name": "e"} for node in CHAIN[1:])),
    "brackets in an attribute": lambda: document(X, exp("r", "Reshape", shape="(" * 50_000)),
    "a kernel of digits": lambda: document(
        X, exp("c", "Convolution", kernel="9" * 9999, num_filter="9" * 4000)
    ),
    "no groups": lambda: document(
        X, {**exp("d", "Deconvolution", kernel="3", num_filter="4", num_group="0")}
    ),
    "a cast of nothing": lambda: document(X, {**exp("c", "amp_cast", dtype="float16"), "inputs": []}),
    "more casts than inputs": lambda: {**document(X, exp("m", "amp_multicast")), "heads": [[1, 4, 0]]},
    "statistics of nothing": lambda: document(X, {**exp("b", "BatchNorm"), "inputs": []}),
    "a shape beyond memory": lambda: document({**X, "attrs": {"__shape__": f"({2**62}, {2**62})"}}, exp()),
}


@pytest.mark.filterwarnings("ignore::mxamp.errors.MxampWarning")
@pytest.mark.parametrize("make", COSTLY.values(), ids=COSTLY)
def test_what_reads_as_a_symbol_converts_or_is_refused_in_little_time_and_memory(
    make: Callable[[], Any],
) -> None:
    given = json.dumps(make())
    tracemalloc.start()
    began = time.process_time()
    try:
        graph = parse_symbol(given)
        mxamp.convert_model(graph, {}, {}, target_dtype="bfloat16").symbol_json()
    except MxampError:
        pass
    finally:
        seconds, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
        tracemalloc.stop()
    # Tracing takes most of the time; without it each takes a fraction of a second.
    assert seconds < 20
    assert peak < 500e6


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 2**32))
def test_a_damaged_symbol_is_read_rightly_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    target = TARGETS["symbol"]
    data = rng.choice(target.seeds)
    for _ in range(rng.randint(1, 3)):
        data = target.mutate(data, rng)
    target.run(data)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_flipped_bits_and_missing_ends_are_read_rightly_or_refused(data: st.DataObject) -> None:
    changed = bytearray(data.draw(st.sampled_from(TARGETS["symbol"].seeds)))
    for _ in range(data.draw(st.integers(0, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    TARGETS["symbol"].run(bytes(changed[: data.draw(st.integers(0, len(changed)))]))


@settings(deadline=None, max_examples=100)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner)
    )
)
def test_any_json_in_place_of_a_graph_or_a_node_is_refused(value: Any) -> None:
    for given_text in (json.dumps(value), text(X, value), text(X, exp(a=value)), text(X, heads=value)):
        with contextlib.suppress(MxampError):
            write_symbol(parse_symbol(given_text))
