"""The tours: each is listed and documented, the one without MXNet runs, and a step that fails is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Callable

import pytest

from tours.__main__ import GROUPS, main, take_picture
from tours.steps import ROOT, TourError, mxamp, run

NAMES = [name for group in GROUPS.values() for name in group]


def test_every_tour_is_listed_and_documented() -> None:
    scripts = {path.stem for path in (ROOT / "tours").glob("*.py")} - {"__init__", "__main__", "steps"}
    assert scripts == set(NAMES)
    page = (ROOT / "docs" / "tours.md").read_text("utf-8")
    assert [name for name in NAMES if f"tours/{name}.py" not in page] == []


def test_the_pictures_in_the_documents_are_those_of_tours() -> None:
    shown = set()
    for page in (ROOT / "docs").glob("*.md"):
        shown |= set(re.findall(r"!\[[^\]]*\]\((tour-[^)]+)\)", page.read_text("utf-8")))
    assert shown == {path.name for path in (ROOT / "docs").glob("tour-*.png")}
    assert shown <= {f"tour-{name.replace('_', '-')}.png" for name in NAMES}


def test_a_picture_that_nothing_can_take_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXAMP_CHROMIUM", "true")
    with pytest.raises(TourError, match="true wrote no picture"):
        take_picture(tmp_path / "report.html", tmp_path / "picture.png")


def test_the_tour_without_mxnet_ends_in_a_report(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    assert main(["files_only", "-o", str(tmp_path)]) == 0
    page = (tmp_path / "files_only" / "report.html").read_text("utf-8")
    assert "digits-bf16" in page
    assert "as written" in capfd.readouterr().out


def test_what_needs_bfloat16_is_left_out_where_there_is_none(
    tmp_path: Path, a_cpu: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    a_cpu("avx2")
    assert main(["migration", "-o", str(tmp_path)]) == 0
    said = "migration is left out: MXNet computes in bfloat16 on CPUs with AVX-512, which this one (A CPU)"
    assert said in capsys.readouterr().out


def test_a_command_that_fails_ends_a_tour(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TourError, match="mxamp inspect ended with status 2"):
        mxamp("inspect", "no-such-model")
    assert "$ mxamp inspect no-such-model" in capsys.readouterr().out


def test_a_program_that_is_run_cannot_import_mxamp() -> None:
    assert run("print(sys.argv[1])", "x") == "x\n"
    with pytest.raises(TourError, match="status 1"):
        run("import mxamp")
