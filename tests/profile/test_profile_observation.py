"""Times of a converted graph are read back onto the nodes that were decided on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping

import pytest

from mxamp.decisions.placing import MeasuredTimes
from mxamp.errors import GraphError
from mxamp.graph import Entry
from mxamp.profile.candidate import Candidate
from mxamp.profile.choices import alternating, everything_low, float32
from mxamp.profile.observation import Observation, combine, observation, refined, with_positions_as_names
from tests.building import Net
from tests.profile.profiling import SHAPE, candidates_of, three_layers

NOTHING: Mapping[Any, Any] = {}


def names_in(candidate: Candidate) -> dict[str, str]:
    """Return the user's name of every operator and ``source->dtype`` of every cast -> its name in the run."""
    after = candidate.rewrites.converted.graph
    found = {}
    for position, node in enumerate(after.nodes):
        if node.op == "amp_cast":
            found[f"{after.describe(node.inputs[0])}->{node.attrs['dtype']}"] = f"n{position}"
        elif not node.is_variable:
            found[node.name] = f"n{position}"
    return found


def seen(times: Mapping[int, float], **more: Any) -> Observation:
    """Return an observation in which nothing but this happened."""
    return Observation(
        times, more.get("kernels", {}), more.get("casts", {}), more.get("readers", {}), sum(times.values())
    )


def test_operators_are_called_by_their_positions_and_variables_keep_their_names() -> None:
    net = Net()
    first = net.op("exp", net.var("data"), name="same")
    graph = with_positions_as_names(net.graph(net.op("exp", first, name="same")))
    assert [node.name for node in graph.nodes] == ["data", "n1", "n2"]


def test_times_find_their_nodes_and_casts_their_entries(tmp_path: Path) -> None:
    candidate = candidates_of(tmp_path, *three_layers()).make(everything_low)
    names = names_in(candidate)
    run = observation(
        candidate.rewrites,
        {
            "microseconds": {names["conv0"]: 7.0, names["exp"]: 3.0, names["data->bfloat16"]: 2.0},
            "fused": {},
        },
    )
    before = candidate.rewrites.decided.graph
    position = {node.name: number for number, node in enumerate(before.nodes)}
    assert run.times == {
        position["conv0"]: 7.0,
        position["exp"]: 3.0,
        position["conv1"]: 0.0,  # what the run does not name took no time of its own
        position["relu"]: 0.0,
    }
    assert run.casts == {(Entry(position["data"]), True): 2.0}
    assert run.readers[Entry(position["data"]), True] == (position["conv0"],)
    assert run.total == 12.0


def test_a_fused_node_counts_at_its_first_member(tmp_path: Path) -> None:
    candidate = candidates_of(tmp_path, *three_layers()).make(float32)
    names = names_in(candidate)
    run = observation(
        candidate.rewrites,
        {
            "microseconds": {"sg_mkldnn_conv_act_0": 9.0},
            "fused": {"sg_mkldnn_conv_act_0": [names["conv1"], names["relu"]]},
        },
    )
    position = {node.name: number for number, node in enumerate(candidate.rewrites.decided.graph.nodes)}
    assert run.times[position["conv1"]] == 9.0
    assert run.times[position["relu"]] == 0.0
    assert run.kernels == {position["conv1"]: (position["conv1"], position["relu"])}


def test_a_name_of_nobody_is_an_error(tmp_path: Path) -> None:
    candidate = candidates_of(tmp_path, *three_layers()).make(float32)
    with pytest.raises(GraphError, match="'fused_op_3', which is none of the graph's"):
        observation(candidate.rewrites, {"microseconds": {"fused_op_3": 1.0}, "fused": {}})


def test_what_a_reader_takes_longer_belongs_to_the_casts_it_reads() -> None:
    cast = (Entry(0), True)
    times = combine(
        seen({1: 20.0, 2: 5.0}),
        seen({1: 10.0, 2: 5.0}),
        [(seen({1: 14.0, 2: 5.0}, casts={cast: 3.0}, readers={cast: (1,)}), frozenset({1}))],
        [(SHAPE,)] * 3,
    )
    assert times.casts_down == {Entry(0): 7.0}
    assert times.low == {1: 10.0, 2: 5.0}


def test_a_kernel_that_fell_apart_says_nothing_about_casts() -> None:
    cast = (Entry(0), True)
    fused = {1: (1, 2)}
    times = combine(
        seen({1: 20.0, 2: 0.0}, kernels=fused),
        seen({1: 10.0, 2: 0.0}, kernels=fused),
        [(seen({1: 14.0, 2: 5.0}, casts={cast: 3.0}, readers={cast: (1,)}), frozenset({1}))],
        [(SHAPE,)] * 3,
    )
    assert times.casts_down == {Entry(0): 3.0}


def test_casts_that_were_not_measured_cost_what_their_size_says() -> None:
    small, large = (Entry(0), True), (Entry(1), True)
    times = combine(
        seen({2: 1.0}), seen({2: 1.0}, casts={small: 12.0, large: 112.0}), [], [((10,),), ((110,),), ((1,),)]
    )
    assert times.cast_overhead == pytest.approx(2.0)
    assert times.cast_per_element == pytest.approx(1.0)


@pytest.mark.parametrize("costs", [(5.0, 1.0), (1.0, 100.0)], ids=["falling", "negative overhead"])
def test_sizes_that_fit_no_line_still_cost_something(costs: tuple[float, float]) -> None:
    casts = {(Entry(0), True): costs[0], (Entry(1), True): costs[1]}
    times = combine(seen({2: 1.0}), seen({2: 1.0}, casts=casts), [], [((10,),), ((110,),), ((1,),)])
    assert times.cast_overhead is not None
    assert times.cast_per_element is not None
    assert times.cast_overhead >= 0
    assert times.cast_per_element >= 0
    assert times.cast_overhead + times.cast_per_element > 0


def test_without_a_low_run_times_come_from_the_runs_in_which_nodes_were_low() -> None:
    runs = [(seen({1: 4.0, 2: 9.0}), frozenset({1})), (seen({1: 8.0, 2: 2.0}), frozenset({2}))]
    assert combine(seen({1: 8.0, 2: 9.0}), None, runs, [(SHAPE,)] * 3).low == {1: 4.0, 2: 2.0}


def test_a_plan_that_was_measured_itself_costs_what_it_took() -> None:
    cast = (Entry(0), True)
    alone = MeasuredTimes(float32={1: 20.0, 2: 5.0}, low={1: 10.0, 2: 4.0}, casts_down={Entry(0): 6.0})
    run = seen({1: 12.0, 2: 5.5}, casts={cast: 3.0}, readers={cast: (1,)})
    times = refined(alone, run, frozenset({1}), seen(alone.float32), seen(alone.low))
    assert times.low == {1: 12.0, 2: 4.0}
    assert times.float32 == {1: 20.0, 2: 5.0}
    assert times.float32_beside == {1: 20.0, 2: 5.5}
    assert times.casts_down == {Entry(0): 3.0}


def test_a_candidate_that_was_made_twice_is_kept_until_it_was_discarded_twice(tmp_path: Path) -> None:
    candidates = candidates_of(tmp_path, *three_layers())
    once, twice = candidates.make(float32), candidates.make(float32)
    assert once.prefix == twice.prefix
    candidates.discard(once)
    assert Path(f"{once.prefix}-0000.params").is_file()
    candidates.discard(twice)
    assert not list(tmp_path.iterdir())
    assert Path(f"{candidates.make(float32).prefix}-0000.params").is_file()


def test_most_edges_carry_a_cast_where_every_other_unit_is_low(tmp_path: Path) -> None:
    net = Net()
    entry = net.var("data")
    for number in range(6):
        entry = net.conv(entry, f"conv{number}")
    candidates = candidates_of(tmp_path, net.graph(entry), net.params)
    even, odd = candidates.make(alternating(0)), candidates.make(alternating(1))
    assert even.low.isdisjoint(odd.low)
    assert len(even.low) == len(odd.low) == 3
    assert even.casts + odd.casts == 2 * 5 + 2  # both ways inside, down at the start, up at the end
