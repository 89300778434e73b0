"""A small model on disk, and the command line as a function."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, NamedTuple

import pytest

from mxamp.cli.main import main
from mxamp.model import Model
from tests.building import Net, parameters


class Result(NamedTuple):
    """What a command left behind: exit status, standard output, standard error."""

    status: int
    out: str
    err: str


def small_model() -> Model:
    """Two convolutions around a BatchNorm, and exp, which stays in float32."""
    net = Net()
    relu = net.op("Activation", net.conv(net.var("data"), "conv0"), name="relu0", act_type="relu")
    # Behind the activation, where it cannot be folded into the convolution.
    second = net.conv(net.bn(relu, "bn0"), "conv1")
    graph = net.graph(net.op("exp", second, name="exp0"))
    auxs = {name: value for name, value in net.params.items() if "moving" in name}
    args = {name: value for name, value in net.params.items() if name not in auxs}
    return Model(graph, parameters(args), parameters(auxs))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, which holds ``net-symbol.json`` and ``net-0000.params``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MXAMP_DEBUG", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    small_model().save("net")
    return tmp_path


@pytest.fixture
def mxamp(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run a command line in this process."""

    def run(*argv: str) -> Result:
        capsys.readouterr()
        try:
            status = main(argv)
        except SystemExit as error:  # argparse: --help, --version, usage errors
            status = int(error.code or 0)
        return Result(status, *capsys.readouterr())

    return run
