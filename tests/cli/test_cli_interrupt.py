"""Ctrl-C at any time: one line and the status that shells know, no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(sys.version_info < (3, 10), reason="nothing says there which module is run"),
    pytest.mark.skipif(os.name == "nt", reason="interrupts a process by a signal"),
]

_ROOT = Path(__file__).resolve().parents[2]

_SITE = """
import os, signal, sys

# Where the tests run in the background of a shell, interrupts are ignored, and that is inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
        return None

sys.meta_path.insert(0, Interrupting())
"""


@pytest.mark.parametrize(
    "module",
    [
        "mxamp.calibration",
        "mxamp.graph.symbol_reader",
        "scipy.sparse",
        "mxamp.__main__",
        "mxamp.cli.main",
        "mxamp.cli.zoo",
    ],
)
@pytest.mark.parametrize("program", [["-m", "mxamp"], ["-W", "ignore", "-m", "mxamp"]], ids=["-m", "options"])
def test_an_interrupt_while_the_package_is_imported_is_one_line(
    program: list[str], module: str, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_SITE.format(module=module))
    done = subprocess.run(
        [sys.executable, *program, "targets"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(_ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == "mxamp: interrupted; nothing half-written is left behind.\n"
    assert (done.returncode, done.stdout) == (130, "")


@pytest.mark.parametrize(
    "arguments", [["-c", "import mxamp"], ["-m", "other"]], ids=["a program's", "another module's"]
)
def test_who_imports_mxamp_keeps_its_own_way_with_interrupts(arguments: list[str], tmp_path: Path) -> None:
    package = tmp_path / "other"
    package.mkdir()
    (package / "__init__.py").write_text("import mxamp\n")
    (package / "__main__.py").write_text("")
    (tmp_path / "sitecustomize.py").write_text(_SITE.format(module="mxamp.graph.symbol_reader"))
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(_ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "KeyboardInterrupt" in done.stderr
    assert done.returncode in (1, 130, -signal.SIGINT)
