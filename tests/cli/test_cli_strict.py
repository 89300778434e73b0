"""``--strict`` makes warnings errors, and one run tells every mistake of a command line."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

from mxamp.cli import inspect, policy, targets, verify
from mxamp.errors import MxampWarning
from tests.cli.models import small_model

CONVERT = ("convert", "net", "--dtype", "bfloat16", "-o", "out")


@pytest.mark.parametrize(
    "options", [("--exclude", "stage9_*"), ("--exclude-regex", "stage9"), ("--exclude-op", "dot")], ids=str
)
def test_a_rule_that_picks_nothing_is_a_warning_and_strict_makes_it_an_error(
    mxamp: Any, folder: Any, options: tuple[str, ...]
) -> None:
    before = sorted(path.name for path in folder.iterdir())
    strict = mxamp(*CONVERT, *options, "--strict")
    assert strict.status == 2
    warning, error = strict.err.splitlines()
    assert warning.startswith("mxamp: warning: The rule for ")
    assert error == ("mxamp: error: With --strict the warning above is an error. Nothing was written.")
    assert sorted(path.name for path in folder.iterdir()) == before
    lenient = mxamp(*CONVERT, *options, "--json")
    assert lenient.status == 0
    assert [text in lenient.err for text in json.loads(lenient.out)["report"]["warnings"]] == [True]


def test_without_warnings_strict_changes_nothing(mxamp: Any, folder: Any) -> None:
    assert mxamp(*CONVERT, "--strict").status == 0


@pytest.mark.parametrize("place", ["before", "after"])
def test_several_warnings_are_counted(mxamp: Any, folder: Any, place: str) -> None:
    options = (*CONVERT, "--exclude", "a*", "--exclude", "z*")
    result = mxamp("--strict", *options) if place == "before" else mxamp(*options, "--strict")
    assert result.status == 2
    assert "With --strict the 2 warnings above are errors." in result.err


COMMANDS = {
    "inspect": (inspect, ("net",)),
    "verify": (verify, ("net",)),
    "targets": (targets, ()),
    "policy": (policy, ("--dtype", "bfloat16")),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_it(mxamp: Any, folder: Any, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    module, arguments = COMMANDS[command]

    def warn(args: Any) -> int:
        warnings.warn("look out", MxampWarning, stacklevel=1)
        return 0

    monkeypatch.setattr(module, "run", warn)
    assert mxamp(command, *arguments).status == 0
    strict = mxamp(command, *arguments, "--strict")
    assert (strict.status, strict.err.count("mxamp: error: ")) == (2, 1)


def test_the_zoo_has_it_too(mxamp: Any, folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from model_zoo_eval import cli

    def warn(argv: Any, program: str) -> int:
        assert argv == ["list"]
        warnings.warn("look out", MxampWarning, stacklevel=1)
        return 0

    monkeypatch.setattr(cli, "main", warn)
    assert mxamp("zoo", "list").status == 0
    assert mxamp("zoo", "list", "--strict").status == 2


def test_one_run_tells_every_mistake_and_files_that_exist_last(mxamp: Any, folder: Any) -> None:
    small_model().save("out")
    result = mxamp(
        *CONVERT,
        *("--input-shape", "data=1x"),
        *("--io-dtype", "low", "--io-dtype", "float32"),
        *("--target", "cpu-bf17"),
        *("--guard-seconds", "0"),
        *("--policy", "missing.toml"),
    )
    assert result.status == 2
    lines = result.err.splitlines()
    assert len(lines) == 6
    assert all(line.startswith("mxamp: error: ") for line in lines)
    for line, words in zip(
        lines, ["missing.toml", "--input-shape", "seconds", "--io-dtype", "cpu-bf17", "already exist"]
    ):
        assert words in line
