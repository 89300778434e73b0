"""Casts inside control-flow bodies are in the report too."""

from __future__ import annotations

import numpy as np

import mxamp
from mxamp.graph import Entry, Graph, Node
from mxamp.report.model import Report


def loop_report() -> Report:
    body = Graph(
        (
            Node("null", "slice"),
            Node("null", "w"),
            Node("null", "state"),
            Node("FullyConnected", "fc", {"num_hidden": "4", "no_bias": "True"}, (Entry(0), Entry(1))),
            Node("_copy", "next", {}, (Entry(2),)),
        ),
        (Entry(3), Entry(4)),
    )
    attrs = {"in_data_locs": "[0]", "in_state_locs": "[2]", "remain_locs": "[1]"}
    graph = Graph(
        (
            Node("null", "data"),
            Node("null", "init"),
            Node("null", "w"),
            Node("_foreach", "loop", attrs, (Entry(0), Entry(1), Entry(2)), num_outputs=2, subgraphs=(body,)),
        ),
        (Entry(3, 0), Entry(3, 1)),
    )
    model = mxamp.convert_model(graph, {"w": np.ones((4, 4), np.float32)}, {}, "float16")
    assert model.report is not None
    return model.report


def test_each_cast_in_a_body_names_its_entry_and_readers() -> None:
    casts = {cast.name: cast for cast in loop_report().casts}
    down, up = casts["loop/slice_amp_cast_float16"], casts["loop/fc_amp_cast_float32"]
    assert (down.entry, down.direction, down.consumers) == ("loop/slice", "down", ("loop/fc",))
    assert (up.entry, up.direction, up.consumers) == ("loop/fc", "up", ("loop (result)",))
    assert (down.from_dtype, down.to_dtype) == ("float32", "float16")


def test_report_with_body_casts_survives_json_and_prints() -> None:
    report = loop_report()
    assert Report.from_json(report.to_json()) == report
    text = " ".join(str(report).split())
    assert "an input of a control-flow body, which stays float32" in text
    assert "a result of a control-flow body, which stays float32" in text
