"""The program that races models of files: how often they are bound, and whose times are whose."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mxnet", reason="MXNet runs the models")

import mxnet as mx

from mxamp.compare.inputs import as_model
from mxamp.compare.race import write_for_race
from mxamp.compare.race_process import race_plans


def test_models_are_bound_again_in_another_order_and_keep_their_times(tmp_path: Path) -> None:
    """Two products of 8 rows and one of 4,096 by turns: the second takes longer, whoever is bound first."""
    prefixes = []
    for number, rows in enumerate((8, 4096, 8)):
        tiled = mx.sym.tile(mx.sym.var("data"), reps=(rows, 1))
        product = mx.sym.FullyConnected(tiled, num_hidden=64, no_bias=True, name="fc")
        model = as_model((product, {"fc_weight": mx.nd.ones((64, 64))}, {}), "model")
        prefixes.append(
            write_for_race(tmp_path / f"model{number}", model.graph, model.arg_params, model.aux_params)
        )
    np.savez(tmp_path / "data.npz", data=np.ones((1, 64), np.float32))
    job = {
        "models": prefixes,
        "labels": ["short", "long", "short again"],
        "data": str(tmp_path / "data.npz"),
        "ctx": "cpu",
        "rounds": 12,
        "at_least": 12,
        "bindings": 4,
        "seconds": 60,
    }
    found = race_plans(job)
    assert len(found["rounds"]) == 4
    assert {len(own) for own in found["seconds"]} == {sum(found["rounds"])}
    short, long, again = (np.array(own) for own in found["seconds"])
    assert np.median(long) > 2 * max(np.median(short), np.median(again))
    assert race_plans({**job, "bindings": 1})["rounds"] == [12]
