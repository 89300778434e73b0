"""What holds for every graph: soundness, fewest words, idempotence; on random graphs, without MXNet."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxamp.decisions import LowPrecision
from mxamp.dtypes import DType
from mxamp.errors import PolicyError
from mxamp.graph import Graph, parse_symbol, write_symbol
from mxamp.graph.output_names import output_names
from mxamp.model import Model
from mxamp.ops.casts import AMP_CAST, AMP_MULTICAST
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import LOW, assert_sound, convert, parameters, reconvert
from tests.passes.harness import insert_casts
from tests.property.strategies import Sample, kept_params, samples

pytestmark = [
    pytest.mark.parametrize("dtype", LOW, ids=str),
    pytest.mark.filterwarnings("ignore:mxamp knows nothing about the operator _mystery"),
]


def converted(sample: Sample, dtype: DType, **options: Any) -> Model:
    return convert(sample.graph, kept_params(sample), dtype, **options)


def inserted(before: Graph, model: Model) -> list[int]:
    """Return the positions of the casts that the conversion put in."""
    assert model.report is not None
    names = {cast.name for cast in model.report.casts}
    return [
        position
        for position, node in enumerate(model.graph.nodes)
        if node.op == AMP_CAST and node.name in names
    ]


@given(sample=samples(unknown=True))
def test_every_graph_converts_to_a_sound_one(dtype: DType, sample: Sample) -> None:
    assert_sound(sample.graph, converted(sample, dtype))


@given(sample=samples(unknown=True))
def test_every_graph_converts_on_the_built_in_target(dtype: DType, sample: Sample) -> None:
    assert_sound(sample.graph, converted(sample, dtype, target=Target.for_dtype(dtype), fold_batch_norm=True))


@given(sample=samples(unknown=True))
def test_every_graph_passes_the_harness(dtype: DType, sample: Sample) -> None:
    insert_casts(sample.graph, kept_params(sample), dtype)


@given(sample=samples(unknown=True), offline=st.booleans(), io_dtype=st.sampled_from([None, "low"]))
def test_every_combination_of_options_is_sound(
    dtype: DType, sample: Sample, offline: bool, io_dtype: str | None
) -> None:
    model = converted(sample, dtype, cast_offline=offline, io_dtype=io_dtype, fold_batch_norm=True)
    assert_sound(sample.graph, model)


@given(sample=samples(unknown=True))
def test_converting_a_converted_model_changes_nothing(dtype: DType, sample: Sample) -> None:
    model = converted(sample, dtype)
    again = reconvert(model, dtype)
    assert again.graph is model.graph
    assert dict(again.arg_params) == dict(model.arg_params)
    assert again.report is not None
    assert again.report.casts == ()


@given(sample=samples(unknown=True), everything=st.booleans(), data=st.data())
def test_neither_does_it_where_inputs_and_outputs_are_low(
    dtype: DType, sample: Sample, everything: bool, data: st.DataObject
) -> None:
    """With the same wish and without: a model says itself what arrives and leaves low."""
    inputs = [name for name in sample.graph.variables if name not in kept_params(sample)]
    names = sorted({*inputs, *output_names(sample.graph)})
    some = data.draw(st.sets(st.sampled_from(names)), label="names")
    io_dtype = "low" if everything else dict.fromkeys(sorted(some), "low")
    try:
        model = converted(sample, dtype, io_dtype=io_dtype)
    except PolicyError:  # a cast could not carry a name on
        return
    for again in (reconvert(model, dtype), reconvert(model, dtype, io_dtype=io_dtype)):
        assert write_symbol(again.graph) == write_symbol(model.graph)
        assert dict(again.arg_params) == dict(model.arg_params)


@given(sample=samples(unknown=True))
def test_neither_does_converting_what_was_written_and_read(dtype: DType, sample: Sample) -> None:
    model = converted(sample, dtype)
    read = parse_symbol(write_symbol(model.graph))
    assert read == model.graph
    args = parameters({name: value.numpy() for name, value in model.arg_params.items()})
    again = reconvert(Model(read, args, dict(model.aux_params)), dtype)
    assert again.graph is read


@given(sample=samples(unknown=True))
def test_common_subexpression_elimination_finds_no_cast_to_remove(dtype: DType, sample: Sample) -> None:
    model = converted(sample, dtype)
    ours = set(inserted(sample.graph, model))
    number: dict[tuple[Any, ...], int] = {}
    same_as: list[int] = []
    for position, node in enumerate(model.graph.nodes):
        inputs = tuple((same_as[entry.node], entry.output) for entry in node.inputs)
        own = node.name if node.is_variable or node.op == "BatchNorm" else ""
        key = (node.op, tuple(sorted(node.attrs.items())), inputs, own)
        first = number.setdefault(key, position)
        assert first == position or position not in ours, f"{node} repeats {model.graph.nodes[first]}"
        same_as.append(first)


@given(sample=samples(unknown=True))
def test_no_cast_undoes_another(dtype: DType, sample: Sample) -> None:
    model = converted(sample, dtype)
    ours = set(inserted(sample.graph, model))
    for position in ours:
        (source,) = model.graph.nodes[position].inputs
        assert source.node not in ours


@given(sample=samples(unknown=True))
def test_every_cast_is_read(dtype: DType, sample: Sample) -> None:
    model = converted(sample, dtype)
    heads = {head.node for head in model.graph.heads}
    for position in inserted(sample.graph, model):
        assert model.graph.uses[position] or position in heads
    for name in model.arg_params:
        if name not in sample.params:
            assert model.graph.uses[model.graph.variables[name]], f"the copy {name} is read by nobody"


@given(sample=samples())
def test_red_computes_in_fp32_and_green_in_low_precision(dtype: DType, sample: Sample) -> None:
    report = converted(sample, dtype, low_precision=LowPrecision.REQUIRED).report
    assert report is not None
    for node in report.nodes:
        if node.color == "red":
            assert node.compute != dtype.label or node.reason.endswith("already"), node
        if node.color == "green":
            assert node.compute == dtype.label or "already" in node.reason, node


@given(sample=samples())
def test_parameters_never_take_more_bytes(dtype: DType, sample: Sample) -> None:
    model = converted(sample, dtype)
    before = sum(values.nbytes for values in kept_params(sample).values())
    assert sum(p.nbytes for p in (*model.arg_params.values(), *model.aux_params.values())) <= before


@given(sample=samples(unknown=True))
def test_multicast_is_never_needed_where_dtypes_are_known(dtype: DType, sample: Sample) -> None:
    assert all(node.op != AMP_MULTICAST for node in converted(sample, dtype).graph.nodes)


@given(sample=samples(unknown=True))
def test_neither_graph_nor_parameters_of_the_caller_are_touched(dtype: DType, sample: Sample) -> None:
    text = write_symbol(sample.graph)
    values = {name: value.copy() for name, value in sample.params.items()}
    converted(sample, dtype)
    assert write_symbol(sample.graph) == text
    assert all((values[name] == value).all() for name, value in sample.params.items())


@given(sample=samples())
def test_excluding_every_node_changes_nothing(dtype: DType, sample: Sample) -> None:
    everything = Policy.default(dtype).excluding(globs=["*"])
    assert converted(sample, dtype, policy=everything).graph is sample.graph
