"""Progress is for people at a terminal, and leaves nothing behind."""

from __future__ import annotations

import io
import time

import pytest

from mxamp.cli import console
from mxamp.cli.console import Steps


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(console, "_PROGRESS_EVERY", 0.01)
    return Terminal()


def wait_for(stream: Terminal, text: str) -> None:
    deadline = time.monotonic() + 10
    while text not in stream.getvalue() and time.monotonic() < deadline:
        time.sleep(0.005)


def test_clock_runs_on_a_terminal_and_is_wiped_off(terminal):
    with Steps(quiet=False, terminal=terminal).step("casting"):
        wait_for(terminal, "casting ... 0 s")
    assert "\rcasting ... 0 s" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_bar_shows_how_far_it_is(terminal):
    with Steps(quiet=False, terminal=terminal).step("writing") as progress:
        progress(1_000_000_000, 4_000_000_000)
        wait_for(terminal, "25% of")
    assert "\rwriting [######..................] 25% of 4.00 GB, 0 s" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_bar_fits_on_a_line(terminal, monkeypatch):
    monkeypatch.setattr(console, "terminal_width", lambda: 80)
    with Steps(quiet=False, terminal=terminal).step(f"writing {'x' * 200}") as progress:
        progress(0, 0)
        wait_for(terminal, "100% of")
    lines = terminal.getvalue().replace("\x1b[K", "").split("\r")
    assert all(len(line) < 80 for line in lines if "100% of" in line)


def test_no_bar_where_there_is_no_terminal():
    stream = io.StringIO()
    with Steps(quiet=False, terminal=stream).step("casting") as progress:
        progress(1, 2)
        time.sleep(0.05)
    assert stream.getvalue() == ""


def test_clock_is_wiped_off_after_an_error(terminal):
    with pytest.raises(KeyboardInterrupt), Steps(quiet=False, terminal=terminal).step("casting"):
        raise KeyboardInterrupt
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_no_clock_when_quiet(terminal):
    with Steps(quiet=True, terminal=terminal).step("casting"):
        time.sleep(0.05)
    assert terminal.getvalue() == ""


def test_no_clock_on_a_dumb_terminal(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    with Steps(quiet=False, terminal=terminal).step("casting"):
        time.sleep(0.05)
    assert terminal.getvalue() == ""


def test_no_clock_where_there_is_no_terminal():
    stream = io.StringIO()
    with Steps(quiet=False, terminal=stream).step("casting"):
        time.sleep(0.05)
    assert stream.getvalue() == ""


def test_finished_steps_are_lines_on_standard_output(capsys):
    Steps(quiet=False).done("reading", "net")
    assert capsys.readouterr() == ("reading:    net\n", "")
