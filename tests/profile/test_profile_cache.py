"""Measurements are kept by content, and a broken file is no obstacle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mxamp.graph import Graph
from mxamp.params.parameter import ArrayParameter
from mxamp.profile.cache import MeasurementCache, cache_folder, environment, graph_content
from tests.building import Net, parameters


def layer(
    *, name: str = "conv", filters: int = 4, act: str = "relu", value: float = 1.0
) -> tuple[Graph, str]:
    """Return a layer and what its times depend on."""
    net = Net()
    head = net.op("Activation", net.conv(net.var("data"), name, filters), name=f"{name}_act", act_type=act)
    graph = net.graph(head)
    return graph, graph_content(graph, parameters({k: v * value for k, v in net.params.items()}))


def key_of(content: str, **more: object) -> str:
    return MeasurementCache.key("nodes", {"cpu": "a"}, [content], **more)


def test_a_result_comes_back(tmp_path: Path) -> None:
    cache = MeasurementCache(tmp_path / "new" / "folder")
    assert cache.read("nodes-1") is None
    cache.write("nodes-1", {"n1": 2.5})
    assert cache.read("nodes-1") == {"n1": 2.5}
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["nodes-1.json"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"key": "nodes-2", "result": 1}',
        '{"result": 1}',
        "\udcff".encode("utf-8", "surrogateescape").decode("latin-1"),
    ],
    ids=["empty", "cut off", "a list", "of another key", "without a key", "no JSON"],
)
def test_a_broken_file_is_ignored_and_replaced(tmp_path: Path, text: str) -> None:
    cache = MeasurementCache(tmp_path)
    (tmp_path / "nodes-1.json").write_text(text, "utf-8")
    assert cache.read("nodes-1") is None
    cache.write("nodes-1", 3)
    assert cache.read("nodes-1") == 3


def test_a_folder_that_cannot_be_written_to_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    cache = MeasurementCache(tmp_path / "file" / "below")
    cache.write("nodes-1", 3)
    assert cache.read("nodes-1") is None


def test_values_and_names_do_not_matter() -> None:
    _, content = layer()
    assert layer(value=3.0)[1] == content
    assert layer(name="another")[1] == content


@pytest.mark.parametrize(
    "other", [layer(act="sigmoid")[1], layer(filters=8)[1]], ids=["an attribute", "a shape"]
)
def test_what_times_depend_on_matters(other: str) -> None:
    assert key_of(other) != key_of(layer()[1])


def test_dtypes_inputs_and_machine_matter() -> None:
    graph, content = layer()
    low = {"conv_weight": ArrayParameter(np.zeros((4, 4, 1, 1), "bfloat16"))}
    assert graph_content(graph, low) != content
    assert key_of(content, inputs=[[1, 4, 5, 5]]) != key_of(content, inputs=[[2, 4, 5, 5]])
    assert MeasurementCache.key("nodes", {"cpu": "b"}, [content]) != key_of(content)
    assert MeasurementCache.key("race", {"cpu": "a"}, [content]) != key_of(content)


def test_threads_and_settings_of_the_machine_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    one = environment("1.9.1", "cpu(0)")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert environment("1.9.1", "cpu(0)") != one
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert environment("1.9.1", "cpu(0)") == one
    assert environment("1.9.0", "cpu(0)") != one
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NONE")
    assert environment("1.9.1", "cpu(0)") != one


def test_the_cache_lies_where_the_user_keeps_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "mxamp" / "profile"
