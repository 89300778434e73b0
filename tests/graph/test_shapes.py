"""Shapes of entries, without MXNet; tests/runtime compares them with MXNet's."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any, Mapping

import pytest

from mxamp.errors import DataError, UnknownNameError
from mxamp.graph import Entry, Graph, Node
from mxamp.graph.shapes import infer_entry_shapes
from mxamp.model import Model, load
from mxamp.ops import FACTS
from mxamp.ops.control_flow import CONTROL_FLOW
from mxamp.ops.shapes import RULES

TRAINED = Path(__file__).resolve().parents[2] / "model_zoo_eval" / "trained"
RECORDED: Mapping[str, Any] = json.loads(Path(__file__).with_name("recorded_shapes.json").read_text())
"""What MXNet 1.9.1 infers for the trained networks: each node's first output, in the order of the graph."""

ATTRS = {"mxnet_version": ["int", 10901]}


def trained(name: str, folder: Path) -> Model:
    for ending in ("-symbol.json", "-0000.params"):
        packed = TRAINED / f"{name}{ending}.xz"
        (folder / f"{name}{ending}").write_bytes(lzma.decompress(packed.read_bytes()))
    return load(str(folder / name))


@pytest.mark.parametrize("name", RECORDED)
def test_trained_networks_have_the_shapes_that_mxnet_told(name: str, tmp_path: Path) -> None:
    model = trained(name, tmp_path)
    params = {**model.arg_params, **model.aux_params}
    inputs = {key: tuple(shape) for key, shape in RECORDED[name]["inputs"].items()}
    found = infer_entry_shapes(
        model.graph, inputs, {key: parameter.shape for key, parameter in params.items()}
    )
    assert not found.without_rule
    assert ["x".join(map(str, outputs[0] or ())) for outputs in found.entries] == RECORDED[name]["shapes"]


@pytest.mark.parametrize("name", RECORDED)
def test_what_is_recorded_is_what_mxnet_tells(name: str, tmp_path: Path) -> None:
    pytest.importorskip("mxnet")
    from mxamp.runtime.shapes import infer_shapes

    model = trained(name, tmp_path)
    inputs = {key: tuple(shape) for key, shape in RECORDED[name]["inputs"].items()}
    told = infer_shapes(model.graph, inputs, {**model.arg_params, **model.aux_params})
    assert ["x".join(map(str, outputs[0] or ())) for outputs in told] == RECORDED[name]["shapes"]


def chain(*nodes: Node, attrs: Mapping[str, Any] = ATTRS) -> Graph:
    return Graph((Node("null", "data"), *nodes), (Entry(len(nodes)),), dict(attrs))


def test_rules_are_of_operators_that_are_known_by_their_canonical_names() -> None:
    casts = {"amp_cast", "amp_multicast"}  # which have no record
    assert {op for op in RULES if op not in casts and FACTS.canonical(op) != op} == set()


def test_all_operators_that_can_be_exported_have_rules() -> None:
    pytest.importorskip("onnx", reason="ONNX is not installed: pip install '.[onnx]'")
    import mxamp.onnx.tables  # noqa: F401
    from mxamp.onnx.mapping import MAPPINGS

    assert set(MAPPINGS) - set(RULES) - set(CONTROL_FLOW) == set()


def test_behind_an_operator_without_a_rule_nothing_is_known() -> None:
    graph = chain(
        Node("relu", "known", {}, (Entry(0),)),
        Node("their_operator", "unknown", {}, (Entry(1),)),
        Node("relu", "behind", {}, (Entry(2),)),
    )
    found = infer_entry_shapes(graph, {"data": (2, 3)}, {})
    assert found.entries == [((2, 3),), ((2, 3),), (None,), (None,)]
    assert found.without_rule == {"their_operator": "unknown"}


def test_a_size_of_zero_is_unknown() -> None:
    graph = chain(Node("Flatten", "flat", {}, (Entry(0),)), Node("shape_array", "sizes", {}, (Entry(0),)))
    assert infer_entry_shapes(graph, {"data": (0, 3, 4)}, {}).entries == [(None,), (None,), (None,)]


def test_numpy_shapes_know_scalars_and_empty_arrays() -> None:
    total = Node("_np_sum", "sum", {"axis": "None", "keepdims": "False"}, (Entry(0),))
    numpy = {**ATTRS, "is_np_shape": ["int", 1]}
    assert infer_entry_shapes(chain(total, attrs=numpy), {"data": (2, 3)}, {}).entries[-1] == ((),)
    empty = Node("slice", "none", {"begin": "(2,)", "end": "(2,)"}, (Entry(0),))
    assert infer_entry_shapes(chain(empty, attrs=numpy), {"data": (4, 3)}, {}).entries[-1] == ((0, 3),)
    assert infer_entry_shapes(chain(empty), {"data": (4, 3)}, {}).entries[-1] == (None,)


@pytest.mark.parametrize(
    ("op", "attrs", "shape"),
    [
        ("sum", {}, (1,)),  # MXNet's own operators know no scalars
        ("argmax", {}, (1,)),
        ("_np_sum", {"axis": "()"}, (2, 3)),
        ("_npi_mean", {"axis": "None"}, ()),
        ("_npi_norm", {}, ()),
    ],
)
def test_numpys_operators_and_mxnets_own(op: str, attrs: dict[str, str], shape: tuple[int, ...]) -> None:
    graph = chain(Node(op, "y", attrs, (Entry(0),)), attrs={**ATTRS, "is_np_shape": ["int", 1]})
    assert infer_entry_shapes(graph, {"data": (2, 3)}, {}).entries[-1] == (shape,)


def test_the_fourth_input_of_a_gru_is_how_long_sequences_are() -> None:
    inputs = [Node("null", name, {}) for name in ("data", "weights", "state", "lengths")]
    rnn = Node(
        "RNN", "rnn", {"mode": "gru", "state_size": "3", "num_layers": "1"}, tuple(map(Entry, range(4)))
    )
    graph = Graph(
        (*inputs, rnn._replace(attrs={**rnn.attrs, "use_sequence_length": "1"})), (Entry(4),), ATTRS
    )
    given = {"data": (5, 2, 4), "state": (1, 2, 3), "lengths": (2,)}
    assert infer_entry_shapes(graph, given, {}).entries[-1][0] == (5, 2, 3)
    del given["lengths"]
    assert infer_entry_shapes(graph, given, {}).entries[3] == (None,)


def test_long_integers_of_python_2_are_read() -> None:
    part = Node("slice", "part", {"begin": "(0L, 1L)", "end": "(2L, None)"}, (Entry(0),))
    assert infer_entry_shapes(chain(part), {"data": (2, 3)}, {}).entries[-1] == ((2, 2),)


def test_what_a_variable_declares_counts() -> None:
    graph = Graph(
        (Node("null", "data", {"__shape__": "(0, 3)"}), Node("relu", "relu", {}, (Entry(0),))),
        (Entry(1),),
        ATTRS,
    )
    assert infer_entry_shapes(graph, {}, {}).entries[-1] == (None,)
    assert infer_entry_shapes(graph, {"data": (2, 3)}, {}).entries[-1] == ((2, 3),)
    with pytest.raises(DataError, match=r"node 'data' \(null\): it is declared as \(0, 3\)"):
        infer_entry_shapes(graph, {"data": (2, 4)}, {})


def test_a_second_output_that_nothing_reads_is_left_out() -> None:
    split = Node("SliceChannel", "split", {"num_outputs": "2", "axis": "1"}, (Entry(0),), 2)
    unread = chain(split)
    assert infer_entry_shapes(unread, {"data": (2, 6)}, {}).entries[-1] == ((2, 3), None)
    read = chain(split, Node("relu", "relu", {}, (Entry(1, 1),)))
    assert infer_entry_shapes(read, {"data": (2, 6)}, {}).entries[1] == ((2, 3), (2, 3))


@pytest.mark.parametrize(
    ("op", "attrs", "inputs", "message"),
    [
        (
            "Convolution",
            {"kernel": "(3, 3)", "num_filter": "4"},
            [(1, 3, 2, 8)],
            r"its kernel exceeds the input: 3 is more than 2",
        ),
        (
            "Convolution",
            {"kernel": "(3, 3)", "num_filter": "4"},
            [(1, 3, 8, 8), (4, 5, 3, 3)],
            r"the weight has the shape \(4, 5, 3, 3\), and \(4, 3, 3, 3\) is wanted",
        ),
        ("Convolution", {"num_filter": "4"}, [(1, 3, 8, 8)], "it has no attribute 'kernel'"),
        ("Convolution", {"kernel": "(3, x)", "num_filter": "4"}, [(1, 3, 8, 8)], "holds no integers"),
        ("FullyConnected", {"num_hidden": "4"}, [(2, 8), (4, 9)], r"\(4, 9\), and \(4, 8\) is wanted"),
        ("elemwise_add", {}, [(2, 3), (2, 4)], r"input 1 has the shape \(2, 4\)"),
        ("broadcast_add", {}, [(2, 3), (2, 4)], r"\(2, 3\) and \(2, 4\) cannot be broadcast"),
        ("Concat", {"dim": "1"}, [(1, 2, 4, 4), (1, 2, 5, 5)], r"input 1 has the shape \(1, 2, 5, 5\)"),
        ("Reshape", {"shape": "(5, -1)"}, [(2, 3)], r"\(2, 3\) cannot be reshaped to \(5, -1\)"),
        ("Reshape", {"shape": "(-4,)"}, [(2, 3)], r"its attributes \(shape=\(-4,\)\) do not fit"),
        ("Reshape", {"shape": "(-4, 0, 2)"}, [(2, 3)], "cannot be split into 0 and 2"),
        ("transpose", {"axes": "(0, 0)"}, [(2, 3)], r"its axes \(0, 0\) are not those"),
        ("pick", {}, [(3, 4), (2,)], r"the index has the shape \(2,\), and \(3,\) is wanted"),
        ("pick", {"axis": "0", "keepdims": "True"}, [(3, 4), (3, 4)], r"\(3, 4\), and \(1, 4\) is wanted"),
        ("sum", {"axis": "7"}, [(2, 3)], "it names the axis 7 of what has 2 axes"),
    ],
)
def test_what_does_not_fit_names_the_node_and_the_reason(
    op: str, attrs: Mapping[str, str], inputs: Any, message: str
) -> None:
    nodes = [Node("null", f"in{number}") for number in range(len(inputs))]
    node = Node(op, "n", attrs, tuple(Entry(number) for number in range(len(inputs))))
    graph = Graph((*nodes, node), (Entry(len(inputs)),), ATTRS)
    with pytest.raises(DataError, match=rf"at node 'n' \({op}\): .*{message}.* Given were in0=") as caught:
        infer_entry_shapes(graph, {f"in{number}": shape for number, shape in enumerate(inputs)}, {})
    assert "\n" not in str(caught.value)


def test_names_that_are_no_inputs_are_refused() -> None:
    graph = chain(Node("relu", "relu", {}, (Entry(0),)))
    with pytest.raises(UnknownNameError, match="'dat', which is no input"):
        infer_entry_shapes(graph, {"dat": (2, 3)}, {})


def test_a_chain_of_100000_nodes_needs_no_recursion() -> None:
    nodes = [Node("relu", f"relu{number}", {}, (Entry(number),)) for number in range(100_000)]
    assert infer_entry_shapes(chain(*nodes), {"data": (2, 3)}, {}).entries[-1] == ((2, 3),)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_state_of_images_has_the_batch_of_what_it_is_added_to(layout: str) -> None:
    """A recurrent cell of images begins with zeros of no batch, which a Convolution reads."""
    image = (0, 8, 16, 12) if layout == "NCHW" else (0, 16, 12, 8)
    wide = (5, 32, 14, 10) if layout == "NCHW" else (5, 14, 10, 32)
    weight = (32, 8, 3, 3) if layout == "NCHW" else (32, 3, 3, 8)
    attrs = {"kernel": "(3, 3)", "num_filter": "32", "no_bias": "True", "layout": layout}
    nodes = (
        Node("null", "data"),
        Node("null", "weight"),
        Node("_zeros", "state", {"shape": str(image)}),
        Node("Convolution", "layer", attrs, (Entry(2), Entry(1))),
        Node("elemwise_add", "gates", {}, (Entry(0), Entry(3))),
    )
    graph = Graph(nodes, (Entry(4),), ATTRS)
    found = infer_entry_shapes(graph, {"data": wide}, {"weight": weight}).entries
    assert found[2][0] == (5, *image[1:])
    assert found[3][0] == wide
