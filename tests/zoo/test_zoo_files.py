"""Networks of the zoo convert from files to the same bytes as from arrays in memory."""

from __future__ import annotations

import pytest

mx = pytest.importorskip("mxnet", reason="builds models of the zoo")
pytest.importorskip("gluoncv", reason="builds models of the zoo")

import mxamp
from mxamp.conversion.postponed import PostponedModel
from mxamp.model import load, model_paths
from mxamp.runtime.zoo import load_zoo
from tools.zoo_graphs import NETWORKS

pytestmark = pytest.mark.zoo

SMALL = ("resnet18_v1", "mobilenet1.0")


@pytest.mark.parametrize(
    "name", [name if name in SMALL else pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS]
)
def test_files_and_ndarrays_convert_to_the_same_bytes(tmp_path, name):
    size = NETWORKS[name]
    zoo = load_zoo(name, pretrained=False, input_shapes={"data": (1, 3, size, size)})
    zoo.model.save(tmp_path / "net")
    stored = load(tmp_path / "net")
    for dtype in ("float16", "bfloat16"):
        # What the user of Gluon has: a Symbol and NDArrays.
        sym, args, auxs = zoo.model
        held = mxamp.convert_model(sym, args, auxs, dtype)
        streamed = mxamp.convert_model(stored.graph, stored.arg_params, stored.aux_params, dtype)
        assert isinstance(streamed, PostponedModel)
        assert not isinstance(held, PostponedModel)
        held.save(tmp_path / "held")
        streamed.save(tmp_path / "streamed")
        for ours, theirs in zip(model_paths(tmp_path / "streamed"), model_paths(tmp_path / "held")):
            assert ours.read_bytes() == theirs.read_bytes()
        assert streamed.report == held.report
