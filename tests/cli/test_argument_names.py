"""Messages call what was given by its option on a command line, and by its argument in Python."""

from __future__ import annotations

from typing import Any

import pytest

import mxamp
from mxamp.errors import ExportError
from mxamp.guard import Guard
from mxamp.guard.machine import why_not_here
from mxamp.messages.arguments import as_options
from mxamp.model import Model, model_paths
from mxamp.targets import Target
from tests.building import Net


def test_a_prefix_that_is_no_path() -> None:
    with pytest.raises(ExportError, match=r"^prefix must be a path"):
        model_paths("a\0b")
    with as_options(), pytest.raises(ExportError, match=r"^the prefix must be a path"):
        model_paths("a\0b")


def test_the_epoch_of_the_second_model_has_an_option_of_its_own(mxamp: Any, folder: Any) -> None:
    pytest.importorskip("mxnet", reason="without it, that is what is said")
    assert mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out", "--out-epoch", "7").status == 0
    for command in (
        ("compare", "net", "out", "--random", "--input-shape", "data=1,4,8,8"),
        ("debug", "net", "out", "--data", "data.npz"),
        ("evaluate", "net", "out", "--data", "data.npz"),
    ):
        assert "There is out-0007.params: give its number as --out-epoch." in mxamp(*command).err
        assert "--out-epoch must be from 0 to 9999" in mxamp(*command, "--out-epoch", "-1").err


def test_what_cannot_be_verified_may_be_another_epoch(mxamp: Any, folder: Any) -> None:
    assert mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out", "--out-epoch", "7").status == 0
    assert "There is out-0007.params: give its number as --epoch." in mxamp("verify", "out").err


def test_shapes_that_the_guard_needs() -> None:
    pytest.importorskip("mxnet", reason="without it, that is what is said")
    net = Net()
    graph = net.graph(net.conv(net.var("data"), "conv"))
    model = Model.of(graph, net.params, {})
    given: tuple[Any, ...] = (Guard(), model, Target.builtin("cpu-bf16"), None)
    assert (why_not_here(*given) or "").endswith("; give input_shapes")
    with as_options():
        assert (why_not_here(*given) or "").endswith("; give --input-shape")


@pytest.mark.parametrize("path", [".", "", "\ud800", "a\0b"], ids=repr)
def test_a_path_that_no_onnx_file_can_have(path: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx", reason="it writes files")
    monkeypatch.chdir(tmp_path)
    net = Net()
    graph = net.graph(net.op("tanh", net.var("data"), name="tanh"))
    with pytest.raises(ExportError):
        mxamp.export_onnx((graph, {}, {}), path, input_shapes={"data": (1, 2)})
    assert not list(tmp_path.iterdir())
