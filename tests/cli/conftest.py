"""A small model on disk, and the command line as a function."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, NamedTuple

import pytest

from mxamp.cli.main import main
from tests.cli.models import small_model
from tests.machines import why_no_bfloat16


class Result(NamedTuple):
    """What a command left behind: exit status, standard output, standard error."""

    status: int
    out: str
    err: str


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
        result = Result(status, *capsys.readouterr())
        reason = why_no_bfloat16(result.err) if status else ""
        if reason:
            pytest.skip(reason)
        return result

    return run
