"""The command line as such: help, versions, exit statuses, warnings."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Callable

import pytest

from mxamp.cli import inspect
from mxamp.cli.main import build_parser
from mxamp.errors import MxampWarning
from mxamp.model import Model
from mxamp.version import __version__
from tests.building import Net

ROOT = Path(__file__).resolve().parents[2]

COMMANDS = ("convert", "inspect", "compare", "verify", "policy")


def replace_run(monkeypatch: pytest.MonkeyPatch, action: Callable[..., int]) -> None:
    monkeypatch.setattr(inspect, "read_source", action)


def test_version_is_printed(mxamp):
    result = mxamp("--version")
    assert (result.status, result.out) == (0, f"mxamp {__version__}\n")


def test_help_names_every_command_and_gives_examples(mxamp):
    result = mxamp("--help")
    assert result.status == 0
    for command in COMMANDS:
        assert command in result.out
    assert "mxamp convert resnet50 --dtype bfloat16 -o resnet50-bf16" in result.out


@pytest.mark.parametrize("command", ["convert", "inspect", "verify", "policy"])
def test_help_of_a_command_has_examples(mxamp, command):
    result = mxamp(command, "--help")
    assert result.status == 0
    assert f"mxamp {command} " in result.out.partition("examples:")[2]


def test_examples_in_the_help_parse():
    """Every example line of an epilog is a command line that argparse accepts."""
    parser = build_parser()
    subparsers = next(action for action in parser._actions if action.dest == "command").choices
    for name in ("convert", "inspect", "verify", "policy"):
        lines = [line.strip() for line in subparsers[name].epilog.splitlines()]
        examples = [line for line in lines if line.startswith("mxamp ")]
        assert examples
        for example in examples:
            words = example.replace("'", "").split("  ")[0].split("|")[0].split(">")[0].split()[1:]
            parser.parse_args(words)


def test_no_command_prints_the_help(mxamp):
    result = mxamp()
    assert result.status == 2
    assert "commands:" in result.out


def test_warnings_are_one_line_on_standard_error(mxamp, folder, monkeypatch):
    def warn(*_: object, **__: object) -> int:
        warnings.warn("look out", MxampWarning, stacklevel=2)
        raise KeyboardInterrupt

    replace_run(monkeypatch, warn)
    result = mxamp("inspect", "net")
    assert result.err.splitlines()[0] == "mxamp: warning: look out"


def test_interruption_exits_with_130(mxamp, folder, monkeypatch):
    def interrupt(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    replace_run(monkeypatch, interrupt)
    result = mxamp("inspect", "net")
    assert result.status == 130
    assert result.err == "mxamp: interrupted; nothing half-written is left behind.\n"


def fail(*_: object, **__: object) -> int:
    raise RuntimeError("a\nmishap")


def test_unexpected_error_is_one_line_that_asks_for_a_report(mxamp, folder, monkeypatch):
    replace_run(monkeypatch, fail)
    result = mxamp("inspect", "net")
    assert result.status == 70
    assert result.err.count("\n") == 1
    assert result.err.startswith("mxamp: internal error: RuntimeError: a mishap (test_cli_main.py, line ")
    assert "--traceback" in result.err
    assert "report it" in result.err


@pytest.mark.parametrize(
    "arguments",
    [["--traceback", "inspect", "net"], ["inspect", "net", "--traceback"]],
    ids=["before", "after"],
)
def test_traceback_option_shows_where_it_came_from(mxamp, folder, monkeypatch, arguments):
    replace_run(monkeypatch, fail)
    result = mxamp(*arguments)
    assert result.status == 70
    assert result.err.startswith("Traceback (most recent call last)")


def test_debug_variable_shows_where_it_came_from(mxamp, folder, monkeypatch):
    monkeypatch.setenv("MXAMP_DEBUG", "1")
    result = mxamp("inspect", "missing")
    assert result.status == 2
    assert result.err.startswith("Traceback (most recent call last)")
    assert "mxamp: error: " in result.err


def test_unreadable_file_is_an_error_not_a_bug(mxamp, folder, monkeypatch):
    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied", "net-symbol.json")

    replace_run(monkeypatch, refuse)
    result = mxamp("inspect", "net")
    assert result.status == 2
    assert result.err == "mxamp: error: [Errno 13] Permission denied: 'net-symbol.json'\n"


def test_names_beyond_the_encoding_of_the_terminal_are_escaped(folder):
    net = Net()
    graph = net.graph(net.op("exp", net.var("données"), name="größe"))
    Model(graph, {}, {}).save("unicode")
    completed = subprocess.run(
        [sys.executable, "-m", "mxamp", "inspect", "unicode", "--nodes"],
        check=False,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"},
    )
    assert completed.returncode == 0, completed.stderr
    assert rb"gr\xf6\xdfe" in completed.stdout


def test_python_m_mxamp_is_the_command_line():
    completed = subprocess.run(
        [sys.executable, "-m", "mxamp", "--version"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert completed.stdout == f"mxamp {__version__}\n", completed.stderr


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGPIPE")
def test_closed_pipe_ends_quietly(folder):
    """As in ``mxamp policy ... | head -1``."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-m", "mxamp", "policy", "--dtype", "bfloat16"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    assert process.wait() == 141
    assert errors == b""


def test_policy_prints_toml_that_convert_reads(mxamp, folder):
    printed = mxamp("policy", "--dtype", "bfloat16")
    assert printed.status == 0
    (folder / "my.toml").write_text(printed.out)
    result = mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out", "--policy", "my.toml")
    assert result.status == 0, result.err


def test_an_option_that_a_command_does_not_know_is_told_with_the_usage_of_that_command(mxamp):
    result = mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out", "--exclude-opp", "exp")
    assert result.status == 2
    assert result.err.startswith("usage: mxamp convert ")
    assert "unrecognized arguments: --exclude-opp exp. Did you mean '--exclude-op'" in result.err
    assert mxamp("--nonsense").err.startswith("usage: mxamp [-h]")


def test_an_interruption_while_the_package_is_imported_shows_no_traceback(tmp_path):
    (tmp_path / "mxamp").mkdir()
    (tmp_path / "mxamp" / "__init__.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [sys.executable, str(ROOT / "mxamp_command.py")],
        check=False,
        capture_output=True,
        text=True,
        # The folder of the script comes first in the path, and has the package that works.
        env={**os.environ, "PYTHONSTARTUP": "", "PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"},
    )
    if sys.version_info < (3, 11):
        pytest.skip("needs PYTHONSAFEPATH of Python 3.11")
    assert done.returncode == 130
    assert done.stderr == "mxamp: interrupted; nothing half-written is left behind.\n"


def test_the_program_is_what_runs_the_command_line(mxamp, monkeypatch):
    import mxamp_command

    monkeypatch.setattr(sys, "argv", ["mxamp", "--version"])
    with pytest.raises(SystemExit) as ended:
        mxamp_command.main()
    assert ended.value.code == 0
    assert "mxamp_command:main" in (ROOT / "setup.py").read_text("utf-8")
