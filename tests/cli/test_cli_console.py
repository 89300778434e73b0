"""Progress and color are for people at a terminal, and leave nothing behind."""

from __future__ import annotations

import io
import re
import shlex
import shutil
import subprocess
import sys
import time
import warnings

import pytest

from mxamp.cli.console import Steps, print_labelled, print_message, show_warnings
from mxamp.cli.main import main
from mxamp.errors import MxampWarning


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return Terminal()


def wait_for(stream: Terminal, text: str) -> None:
    deadline = time.monotonic() + 10
    while text not in stream.getvalue() and time.monotonic() < deadline:
        time.sleep(0.005)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def is_wiped_off(text: str) -> bool:
    """Whether the last thing that happens to the line is that it is erased."""
    return text.rstrip("\r\n").endswith("\x1b[2K")


def test_a_clock_runs_on_a_terminal_and_is_wiped_off(terminal):
    with Steps(quiet=False, terminal=terminal).step("casting"):
        wait_for(terminal, "0:00:00")
    assert "casting" in plain(terminal.getvalue())
    assert is_wiped_off(terminal.getvalue())


def test_a_bar_shows_how_far_it_is(terminal):
    with Steps(quiet=False, terminal=terminal).step("writing") as progress:
        progress(1_000_000_000, 4_000_000_000)
        wait_for(terminal, "25 % of 4.00 GB")
    assert "25 % of 4.00 GB" in plain(terminal.getvalue())
    assert is_wiped_off(terminal.getvalue())


def test_a_bar_fits_on_a_line(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with Steps(quiet=False, terminal=terminal).step(f"writing {'x' * 200}") as progress:
        progress(1, 1)
        wait_for(terminal, "100 % of")
    lines = re.split(r"[\r\n]", plain(terminal.getvalue()))
    assert any("100 % of" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_a_step_can_say_what_it_has_come_to(terminal):
    steps = Steps(quiet=False, terminal=terminal)
    with steps.step("reading"):
        steps.now("timing nodes")
        wait_for(terminal, "timing nodes")
    assert "timing nodes" in plain(terminal.getvalue())


@pytest.mark.parametrize("what", ["no terminal", "quiet", "dumb terminal"])
def test_no_clock(what, terminal, monkeypatch):
    stream = io.StringIO() if what == "no terminal" else terminal
    if what == "dumb terminal":
        monkeypatch.setenv("TERM", "dumb")
    with Steps(quiet=what == "quiet", terminal=stream).step("casting") as progress:
        progress(1, 2)
        time.sleep(0.05)
    assert stream.getvalue() == ""


def test_the_clock_is_wiped_off_after_an_error(terminal):
    def interrupted() -> None:
        with Steps(quiet=False, terminal=terminal).step("casting"):
            wait_for(terminal, "casting")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert is_wiped_off(terminal.getvalue())


def test_finished_steps_are_lines_on_standard_output(capsys):
    Steps(quiet=False).done("reading", "net")
    Steps(quiet=False, verbose=False).done("reading", "net")
    assert capsys.readouterr() == ("reading:    net\n", "")


def test_messages_are_in_color_on_a_terminal_and_nowhere_else(terminal, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", terminal)
    print_message("error", "no [bold] file")
    assert plain(terminal.getvalue()) == "mxamp: error: no [bold] file\n"
    assert "\x1b[" in terminal.getvalue()
    monkeypatch.undo()
    print_message("error", "no [bold] file")
    assert capsys.readouterr().err == "mxamp: error: no [bold] file\n"


def test_no_color_is_honoured(terminal, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", terminal)
    with show_warnings():
        warnings.warn("mind this", MxampWarning, stacklevel=1)
    # Bold is no color, and stays.
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", terminal.getvalue())
    assert plain(terminal.getvalue()) == "mxamp: warning: mind this\n"


def test_a_long_message_is_one_line_for_whoever_reads_it_from_a_pipe(capsys):
    print_message("warning", "word " * 100)
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("columns", [30, 80])
def test_labelled_lines_fit(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    print_labelled([("size", "word " * 30), ("speed", "fast")])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    assert lines[0].startswith("size:       word")
    assert lines[1].startswith("            word")
    assert lines[-1] == "speed:      fast"


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_shells_complete_every_command_and_option(shell, capsys):
    assert main(["completion", shell]) == 0
    out = capsys.readouterr().out
    for word in ("convert", "report", "--exclude-regex", "--latency-seconds"):
        assert word.lstrip("-") in out


COMPLETE = """
source /dev/stdin
function ask {
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
  _shtab_mxamp mxamp "${@: -1}" "${@: -2:1}"
}
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["mxamp", "con"], ["convert"]),
        (["mxamp", "convert", "--exclude-r"], ["--exclude-regex"]),
        (["mxamp", "convert", "net", "--dtype", "b"], ["bf16", "bfloat16"]),
        (["mxamp", "tune", "net", "--target", "onnx-tensor"], ["onnx-tensorrt-fp16"]),
        (["mxamp", "inspect", "net-s"], ["net-symbol.json"]),
        (["mxamp", "report", "net", "--data", "im"], ["images.npz"]),
    ],
)
def test_bash_completes_commands_options_values_and_files(line, expected, capsys, tmp_path):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash here")
    for name in ("net-symbol.json", "images.npz"):
        (tmp_path / name).write_text("")
    assert main(["completion", "bash"]) == 0
    asked = f"ask {' '.join(map(shlex.quote, line))}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(
        [bash, "--norc", "-c", COMPLETE + asked],
        input=capsys.readouterr().out,
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert sorted(done.stdout.split()) == expected
