"""BatchNorms that share oneDNN's primitive in MXNet are kept apart where models are run."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from mxamp.graph import Graph
from mxamp.runtime.batch_norm_cache import keep_norms_apart
from tests.building import Net, reads

pytest.importorskip("mxnet", reason="what fails is MXNet")

from mxamp.runtime.executor import BoundModel
from mxamp.runtime.shapes import infer_shapes
from tests.building import parameters
from tests.runtime.face_network import CHANNELS, PIXELS, face_network, model_of, norm


def apart(net: Net, graph: Graph, **shapes: tuple[int, ...]) -> Graph:
    return keep_norms_apart(graph, infer_shapes(graph, shapes, parameters(net.params)))


def test_a_matrix_is_normalised_as_a_plane() -> None:
    net, graph = face_network()
    after = apart(net, graph, data=PIXELS)
    matrix = after.nodes[after.heads[0].node]
    assert (matrix.op, matrix.attrs["shape"]) == ("Reshape", "(2, 32)")
    (between,) = [node for node in after.nodes if node.name == reads(after, matrix.name)[0]]
    (plane,) = [node for node in after.nodes if node.name == reads(after, between.name)[0]]
    assert (between.op, plane.op, plane.attrs["shape"]) == ("BatchNorm", "Reshape", "(2, 32, 1, 1)")
    assert graph.variables == after.variables


def test_what_is_a_plane_already_stays() -> None:
    net = Net()
    graph = net.graph(norm(net, net.var("data"), "bn"))
    assert apart(net, graph, data=(2, CHANNELS, 5, 5)) is graph
    assert apart(net, graph, data=(2, CHANNELS, 1, 1)) is graph
    assert apart(net, graph, data=(2, CHANNELS, 7)) is graph


@pytest.mark.parametrize("shape", [(2, 3, CHANNELS), (2, 1, 5, CHANNELS), (7, CHANNELS)])
def test_the_last_axis_of_any_shape_may_hold_the_channels(shape: tuple[int, ...]) -> None:
    net = Net()
    graph = net.graph(norm(net, net.var("data"), "bn", axis=-1))
    after = apart(net, graph, data=shape)
    back = after.nodes[after.heads[0].node]
    assert (back.op, back.attrs["shape"]) == ("Reshape", str(shape))
    data = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    found = BoundModel(model_of(net, graph)).run({"data": data})[0]
    expected = (data - np.float64(0.5)) / np.sqrt(2.0 + 1e-3) * 1.5 + 0.25
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


_BOTH_WAYS = """
import sys
sys.path[:] = {path!r}
import numpy as np
from tests.runtime.face_network import PIXELS, face_network, model_of
from mxamp.runtime.executor import BoundModel
data = {{"data": np.random.default_rng(0).normal(size=PIXELS).astype(np.float32)}}
outputs = [BoundModel(model_of(*face_network()), fusion=fusion).run(data)[0] for fusion in (False, True)]
np.testing.assert_allclose(outputs[0], outputs[1], rtol=1e-4, atol=1e-5)
print("ran")
"""


def test_a_face_network_runs_without_fusion_and_then_with_it() -> None:
    """In a process of its own: MXNet ended it, where the CPU has AVX-512."""
    code = _BOTH_WAYS.format(path=sys.path)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout.endswith("ran\n"), done.stderr[-2000:]


def test_it_computes_the_same_bits() -> None:
    net, _ = face_network()
    graph = net.graph(norm(net, net.var("matrix"), "own"))
    arrays = model_of(net, graph)
    data = np.random.default_rng(1).normal(size=(2, CHANNELS)).astype(np.float32)
    plane = Net()
    source = plane.op("Reshape", plane.var("matrix"), shape=(0, 0, 1, 1), name="plane")
    other = plane.graph(plane.op("Reshape", norm(plane, source, "own"), shape=(0, 0), name="back"))
    expected = BoundModel(arrays).run({"matrix": data})[0]
    found = BoundModel(model_of(plane, other)).run({"matrix": data})[0]
    np.testing.assert_array_equal(found, expected)
