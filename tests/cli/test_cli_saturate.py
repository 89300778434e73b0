"""``mxamp convert --saturate`` and ``--no-rewrite-masks``: what they write and what they say."""

from __future__ import annotations

import json

import numpy as np

from mxamp.model import Model, load
from tests.building import Net, parameters


def save_large() -> None:
    """Write a model whose first layer does not fit float16."""
    net = Net()
    first = net.fc(net.var("data"), "fc0")
    net.params["fc0_weight"][0, :2] = [1e6, -7e4]
    graph = net.graph(net.fc(first, "fc1"))
    Model(graph, parameters(net.params), {}).save("large")


def save_masked() -> None:
    """Write a model with a mask of -1e18."""
    net = Net()
    scores = net.fc(net.var("data"), "scores")
    least = net.op("_mul_scalar", net.op("ones_like", scores, name="ones"), name="least", scalar=-1e18)
    masked = net.op("where", net.var("mask"), scores, least, name="masked")
    graph = net.graph(net.op("softmax", masked, name="weights"))
    Model(graph, parameters(net.params), {}).save("masked")


def test_saturate_clamps_and_says_so(mxamp, folder):
    save_large()
    result = mxamp("convert", "large", "--dtype", "float16", "-o", "out", "--saturate", "-v")
    assert result.status == 0, result.err
    assert "2 parameters stored in float16, 2 values clamped, " in " ".join((result.out + result.err).split())
    said = " ".join(result.out.split())
    assert "Clamped to float16's largest value 65504: 2 values of 1 parameter (fc0_weight);" in said
    assert "the largest was 1e+06, in fc0_weight." in said
    stored = load("out").arg_params["fc0_weight"].numpy()
    np.testing.assert_array_equal(stored[0, :2], np.float16([65504, -65504]))


def test_without_it_the_layer_stays_float32(mxamp, folder):
    save_large()
    result = mxamp("convert", "large", "--dtype", "float16", "-o", "out", "-v")
    assert result.status == 0, result.err
    assert "lamped" not in result.out + result.err
    assert load("out").arg_params["fc0_weight"].numpy().dtype == np.float32


def test_json_counts_clamped_values_and_masks(mxamp, folder):
    save_large()
    document = json.loads(
        mxamp("convert", "large", "--dtype", "float16", "-o", "out", "--saturate", "--json").out
    )
    assert document["saturated_values"] == 2
    (found,) = [each for each in document["report"]["parameters"] if each["name"] == "fc0_weight"]
    assert found["saturation"] == {"count": 2, "largest": 1e6, "limit": 65504.0, "infs": 0, "nans": 0}
    save_masked()
    document = json.loads(mxamp("convert", "masked", "--dtype", "float16", "-o", "out2", "--json").out)
    assert document["masks_rewritten"] == 1
    (mask,) = document["report"]["masks"]
    assert (mask["node"], mask["before"], mask["after"]) == ("least", -1e18, -65504.0)


def test_masks_are_rewritten_unless_told_not_to(mxamp, folder):
    save_masked()
    result = mxamp("convert", "masked", "--dtype", "float16", "-o", "out", "-v")
    assert "1 mask rewritten to fit float16: least -1e+18 -> -65504." in result.out
    result = mxamp("convert", "masked", "--dtype", "float16", "-o", "kept", "-v", "--no-rewrite-masks")
    assert result.status == 0, result.err
    assert "rewritten" not in result.out
    scalars = {
        prefix: next(node.attrs["scalar"] for node in load(prefix).graph.nodes if node.name == "least")
        for prefix in ("out", "kept")
    }
    assert scalars == {"out": "-65504.0", "kept": "-1e+18"}
