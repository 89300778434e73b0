"""The command line teaches, and every mistake gets an answer that says what to do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

from model_zoo_eval.cli import main
from model_zoo_eval.journal import read_results
from mxamp.cli.main import main as mxamp_main
from mxamp.messages.installation import install_hint
from tests.model_zoo_eval.rows import ok_row

Write = Callable[..., Path]


def test_help_shows_the_commands_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    said = capsys.readouterr().out
    for word in ("run", "list", "report", "diff", "export", "cluster", "onnx", "examples:", "Exit status"):
        assert word in said


@pytest.mark.parametrize("command", ["run", "list", "report", "diff", "export", "cluster", "onnx"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert "usage:" in capsys.readouterr().out


def test_mxamp_zoo_is_the_same_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert mxamp_main(["zoo", "list", "resnet50_v1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["published"] == ["ImageNet top-1", 77.36]
    with pytest.raises(SystemExit) as ended:
        mxamp_main(["zoo", "--help"])
    assert ended.value.code == 0
    assert "usage: mxamp zoo" in capsys.readouterr().out


def test_mxamp_zoo_outside_the_repository_says_where_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("mxamp.cli.zoo.ROOT", tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert mxamp_main(["zoo", "run"]) == 2
    assert "in mxamp's repository" in capsys.readouterr().err


def test_list_counts_and_gives_reasons(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    assert "332 models, of which 308 can be evaluated." in said
    assert "Its quantized weights can only be downloaded." in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--models", "resnet51_v1"], "Did you mean 'resnet50_v1'"),
        (["run", "--params", "no/such/folder"], "there is no folder 'no/such/folder'"),
        (["run", "--retry"], "--retry goes with --resume"),
        (["run", "--memory", "0"], "--memory must be a number of GiB above 0"),
        (["run", "--scheduler", "dask"], "needs --address"),
        (["report", "nowhere"], "There are no results 'nowhere"),
        (["diff", "nowhere"], "There are no results 'nowhere"),
        (["diff", "nowhere", "--tolerance-speed", "-1"], "--tolerance-speed must be a number from 0 on"),
        (["export", "resnet51_v1", "--dtype", "bfloat16", "-o", "x"], "Did you mean 'resnet50_v1'"),
        (
            ["export", "resnet50_v1_int8", "--dtype", "bfloat16", "-o", "x"],
            "cannot be exported. Its quantized",
        ),
        (["export", "vgg11+primitive", "--dtype", "bfloat16", "-o", "x"], "has no graph form 'primitive'"),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, list) else None,
)
def test_a_mistake_is_an_error_that_says_what_to_do(
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


def test_dask_that_is_missing_is_an_error_that_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    arguments = ["run", "--models", "alexnet", "-o", str(tmp_path / "out"), "--scheduler", "dask"]
    assert main([*arguments, "--address", "tcp://127.0.0.1:1"]) == 2
    hint = install_hint("dask")
    assert hint in " ".join(capsys.readouterr().err.split())
    assert main(["cluster"]) == 2
    assert hint in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_diff_ends_with_1_and_names_what_got_worse(
    write_journal: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    before = write_journal("before.jsonl", {"alexnet": ok_row()})
    after = write_journal("after.jsonl", {"alexnet": ok_row(casts=9)})
    assert main(["diff", str(before), str(after)]) == 1
    assert "alexnet: casts: bfloat16 had 2, and has 9" in capsys.readouterr().out
    assert main(["diff", str(before), str(before)]) == 0
    assert "1 compared, 0 not compared, 0 regressions." in capsys.readouterr().out


def test_diff_of_nothing_in_common_is_an_error(
    write_journal: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    before = write_journal("before.jsonl", {"alexnet": ok_row()})
    after = write_journal("after.jsonl", {"vgg11": ok_row()})
    assert main(["diff", str(before), str(after)]) == 2
    printed = capsys.readouterr()
    assert "0 compared, 1 not compared, 0 regressions." in printed.out
    assert "Nothing was compared" in printed.err


def test_diff_of_results_that_cannot_be_compared_is_no_success(
    write_journal: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("alexnet", "vgg11", "vgg13", "vgg16")
    before = write_journal("before.jsonl", {name: ok_row() for name in names})
    trained = {name: ok_row(weights="trained") for name in names}
    none = write_journal("none.jsonl", trained)
    for allowed in ([], ["--allow-uncompared"]):
        assert main(["diff", str(before), str(none), *allowed]) == 2
        assert "0 compared, 4 not compared, 0 regressions." in capsys.readouterr().out
    some = write_journal("some.jsonl", {**trained, "alexnet": ok_row(), "vgg19": ok_row()})
    assert main(["diff", str(before), str(some)]) == 1
    printed = capsys.readouterr().out
    assert "1 compared, 4 not compared, 0 regressions." in printed
    assert "Not all was compared: vgg19, vgg11, vgg13, vgg16." in printed
    assert main(["diff", str(before), str(some), "--allow-uncompared"]) == 0


def test_a_fresh_run_sets_earlier_results_aside(
    write_journal: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_journal("results.jsonl", {"resnet50_v1b_gn": ok_row()})
    arguments = ["run", "--models", "resnet50_v1b_gn", "-o", str(tmp_path)]
    assert main(arguments) == 2
    assert "holds 1 results. Continue with --resume, start anew with --fresh" in capsys.readouterr().err
    for _ in range(2):
        assert main([*arguments, "--fresh"]) == 0
    assert "1 unavailable." in capsys.readouterr().out
    assert read_results(tmp_path / "results-1.jsonl").rows["resnet50_v1b_gn"]["status"] == "ok"
    assert read_results(tmp_path / "results-2.jsonl").rows["resnet50_v1b_gn"]["status"] == "unavailable"
    with pytest.raises(SystemExit):
        main([*arguments, "--fresh", "--resume"])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_report_joins_parts(write_journal: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = [write_journal(f"{name}.jsonl", {name: ok_row()}) for name in ("alexnet", "vgg11")]
    assert main(["report", *map(str, parts), "-o", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "report.md").read_text("utf-8")
    assert "Classification: 2" in text
    assert str(tmp_path / "out" / "report.md") in capsys.readouterr().out
