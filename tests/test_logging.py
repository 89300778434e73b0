"""mxamp logs under its own name, and is silent unless somebody listens."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

import mxamp
from tests.building import Net, parameters


def convert_and_save(folder: Path) -> None:
    net = Net()
    graph = net.graph(net.op("exp", net.conv(net.var("data"), "conv0"), name="exp0"))
    mxamp.convert_model(graph, parameters(net.params), {}, "bfloat16").save(folder / "out")


def test_a_conversion_and_a_save_are_told_at_info(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="mxamp"):
        convert_and_save(tmp_path)
    assert [record.name for record in caplog.records] == ["mxamp"] * 2
    converting, saved = (record.getMessage() for record in caplog.records)
    assert converting == "converting 2 operator nodes to bfloat16 for cpu-bf16"
    assert saved == f"saved {tmp_path / 'out-symbol.json'} and {tmp_path / 'out-0000.params'}"


def test_importing_configures_no_logging() -> None:
    code = (
        "import logging, mxamp\n"
        "assert logging.getLogger().handlers == []\n"
        "kinds = [type(handler) for handler in logging.getLogger('mxamp').handlers]\n"
        "assert kinds == [logging.NullHandler], kinds\n"
        "assert logging.getLogger('mxamp').level == logging.NOTSET\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
