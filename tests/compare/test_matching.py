from __future__ import annotations

from mxamp.compare.matching import match_entries
from mxamp.graph.graph import VARIABLE, Entry, Graph, Node


def graph(*nodes, heads):
    return Graph(tuple(nodes), tuple(heads))


DATA = Node(VARIABLE, "data")
EXP, LOG = Node("exp", "e0", {}, (Entry(0),)), Node("log", "l0", {}, (Entry(1),))
CHAIN = graph(DATA, EXP, LOG, heads=[Entry(2)])


def names(reference, converted):
    matched, unmatched, _ = match_entries(reference, converted)
    return (
        {reference.describe(m.reference): converted.describe(m.converted) for m in matched},
        [reference.describe(entry) for entry in unmatched],
    )


def test_nodes_of_one_name_match_across_inserted_casts():
    cast = Node("amp_cast", "e0_amp_cast_bfloat16", {"dtype": "bfloat16"}, (Entry(1),))
    after = graph(DATA, EXP, cast, Node("log", "l0", {}, (Entry(2),)), heads=[Entry(3)])
    assert names(CHAIN, after) == ({"e0": "e0", "l0": "l0"}, [])


def test_an_output_that_is_cast_back_matches_its_cast_and_knows_its_producer():
    low = Node("log", "l0_bfloat16", {}, (Entry(1),))
    cast = Node("amp_cast", "l0", {"dtype": "float32"}, (Entry(2),))
    after = graph(DATA, EXP, low, cast, heads=[Entry(3)])
    matched, unmatched, _ = match_entries(CHAIN, after)
    assert (matched[1].converted, matched[1].producer) == (Entry(3), Entry(2))
    assert not unmatched


def test_a_renamed_node_without_its_cast_matches():
    after = graph(DATA, EXP, Node("log", "l0_float16", {}, (Entry(1),)), heads=[Entry(2)])
    assert names(CHAIN, after) == ({"e0": "e0", "l0": "l0_float16"}, [])


def test_a_cast_of_the_users_own_matches_itself():
    cast = Node("amp_cast", "c0", {"dtype": "float16"}, (Entry(0),))
    reference = graph(DATA, cast, heads=[Entry(1)])
    assert names(reference, reference) == ({"c0": "c0"}, [])


def test_a_node_that_is_gone_is_reported():
    after = graph(DATA, Node("log", "l0", {}, (Entry(0),)), heads=[Entry(1)])
    assert names(CHAIN, after) == ({"l0": "l0"}, ["e0"])


def test_outputs_nobody_reads_are_left_out():
    norm = Node("BatchNorm", "bn", {}, (Entry(0),), num_outputs=3)
    split = Node("SliceChannel", "sp", {}, (Entry(1),), num_outputs=2)
    reference = graph(DATA, norm, split, heads=[Entry(2, 0), Entry(2, 1)])
    assert names(reference, reference) == ({"bn": "bn", "sp": "sp", "sp[1]": "sp[1]"}, [])


def test_another_output_of_a_node_that_was_cast_back_matches_the_renamed_node():
    norm = Node("BatchNorm", "bn", {}, (Entry(0),), num_outputs=3)
    reference = graph(DATA, norm, heads=[Entry(1), Entry(1, 1)])
    low = norm._replace(name="bn_bfloat16")
    cast = Node("amp_cast", "bn", {"dtype": "float32"}, (Entry(1),))
    after = graph(DATA, low, cast, heads=[Entry(2), Entry(1, 1)])
    assert names(reference, after) == ({"bn": "bn", "bn[1]": "bn_bfloat16[1]"}, [])


def test_a_folded_batch_norm_is_carried_by_the_layer_before_it():
    weight = Node(VARIABLE, "w")
    conv = Node("Convolution", "conv", {}, (Entry(0), Entry(1)))
    norm = Node("BatchNorm", "bn", {}, (Entry(2),), num_outputs=3)
    reference = graph(DATA, weight, conv, norm, heads=[Entry(3)])
    after = graph(DATA, weight, conv, heads=[Entry(2)])
    assert names(reference, after) == ({"bn": "conv"}, [])
    assert match_entries(reference, after).folded == {3: 2}


def test_a_layer_whose_batch_norm_is_still_there_matches_itself():
    weight = Node(VARIABLE, "w")
    conv = Node("Convolution", "conv", {}, (Entry(0), Entry(1)))
    norm = Node("BatchNorm", "bn", {}, (Entry(2),), num_outputs=3)
    reference = graph(DATA, weight, conv, norm, heads=[Entry(3)])
    assert names(reference, reference) == ({"conv": "conv", "bn": "bn"}, [])


def test_nodes_of_one_name_match_in_their_order():
    twice = graph(DATA, EXP, Node("exp", "e0", {}, (Entry(1),)), heads=[Entry(2)])
    matched, unmatched, _ = match_entries(twice, twice)
    assert [(match.reference, match.converted) for match in matched] == [(Entry(1),) * 2, (Entry(2),) * 2]
    assert not unmatched


def test_of_nodes_of_one_name_none_matches_where_one_is_gone():
    twice = graph(DATA, EXP, Node("exp", "e0", {}, (Entry(1),)), heads=[Entry(2)])
    assert names(twice, graph(DATA, EXP, heads=[Entry(1)])) == ({}, ["e0", "e0"])


def test_layers_of_one_name_that_norms_were_folded_into_carry_their_results():
    nodes = [DATA]
    for source in (0, 0):
        layer = Node("Convolution", "conv", {}, (Entry(source),))
        nodes += [layer, Node("BatchNorm", "bn", {}, (Entry(len(nodes)),), num_outputs=3)]
    reference = graph(*nodes, heads=[Entry(2), Entry(4)])
    after = graph(DATA, nodes[1], nodes[3]._replace(inputs=(Entry(0),)), heads=[Entry(1), Entry(2)])
    matched, unmatched, folded = match_entries(reference, after)
    assert folded == {2: 1, 4: 3}
    assert [(match.reference, match.converted) for match in matched] == [
        (Entry(2), Entry(1)),
        (Entry(4), Entry(2)),
    ]
    assert not unmatched


def test_roundings_of_nodes_of_one_name_are_found():
    twice = graph(DATA, EXP, Node("exp", "e0", {}, (Entry(1),)), heads=[Entry(2)])
    first = Node("_mxamp_round", "e0_round_bfloat16", {}, (Entry(1),))
    second = Node("_mxamp_round", "e0_round_bfloat16_1", {}, (Entry(3),))
    after = graph(DATA, EXP, first, Node("exp", "e0", {}, (Entry(2),)), second, heads=[Entry(4)])
    matched, _, _ = match_entries(twice, after)
    assert [match.converted for match in matched] == [Entry(2), Entry(4)]
