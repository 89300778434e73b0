"""``mxamp probe``: what it asks of the probe, what it prints, and what a bad command line is told."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import pytest

from mxamp.cli.probe import ProbeProgress
from mxamp.dtypes import DType
from mxamp.probe import ProbeSettings
from mxamp.probe.jobs import Unit
from mxamp.probe.journal import journal_path
from mxamp.targets import Target


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what the command asks of a probe that measures nothing."""
    found: dict[str, Any] = {}

    def run_probe(output: str, settings: ProbeSettings, **options: Any) -> Target:
        found.update(output=output, settings=settings, **options)
        return dataclasses.replace(Target.builtin("cpu-bf16"), name="mine")

    monkeypatch.setattr("mxamp.probe.run_probe", run_probe)
    return found


def test_the_result_is_summed_up_and_its_use_is_told(mxamp: Any, folder: Any, asked: dict[str, Any]) -> None:
    result = mxamp("probe", "-o", "mine.json")
    assert result.status == 0
    assert "Operators measured: " in result.out
    assert "crash MXNet: 1;" in " ".join(result.out.split())
    assert "`mxamp convert --target mine.json` uses it" in " ".join(result.out.split())
    assert asked["output"] == "mine.json"
    assert not asked["fresh"]
    assert mxamp("probe", "-o", "mine.json", "--quiet").out == ""


@pytest.mark.parametrize(
    ("options", "dtype", "ctx", "output"),
    [
        pytest.param([], DType.BFLOAT16, "cpu", "probed-bfloat16.json", id="CPU"),
        pytest.param(["--ctx", "gpu(0)"], DType.FLOAT16, "gpu(0)", "probed-float16.json", id="GPU"),
        pytest.param(["--dtype", "float16"], DType.FLOAT16, "cpu", "probed-float16.json", id="dtype"),
    ],
)
def test_the_dtype_is_that_of_the_device_unless_given(
    mxamp: Any, folder: Any, asked: dict[str, Any], options: list[str], dtype: DType, ctx: str, output: str
) -> None:
    assert mxamp("probe", *options).status == 0
    assert (asked["settings"].dtype, asked["settings"].ctx, asked["output"]) == (dtype, ctx, output)


@pytest.mark.parametrize(
    ("given", "threads"),
    [pytest.param("3", 3, id="set"), pytest.param("2,1", 2, id="nested"), pytest.param("0", None, id="none")],
)
def test_threads_are_those_that_mxnet_would_use(
    mxamp: Any,
    folder: Any,
    asked: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    given: str,
    threads: int | None,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    monkeypatch.setattr("mxamp.measuring.machine.processors", lambda: 12)
    mxamp("probe")
    assert asked["settings"].threads == (threads or 6)
    mxamp("probe", "--threads", "5")
    assert asked["settings"].threads == 5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param(["--threads", "0"], "--threads must be 1 or more", id="threads"),
        pytest.param(["--dtype", "float32"], "bfloat16 or float16, not float32", id="float32"),
        pytest.param(["--dtype", "bf61"], "bf61", id="no dtype"),
        pytest.param(["-o", "mine"], "must end in .json", id="no .json"),
        pytest.param(["-o", "missing/mine.json"], "does not exist. Create it first", id="no folder"),
        pytest.param(["--only", "Convolutoin"], "Did you mean 'Convolution'", id="no operator"),
    ],
)
def test_a_bad_command_line_is_an_error(
    mxamp: Any, folder: Any, monkeypatch: pytest.MonkeyPatch, options: list[str], said: str
) -> None:
    class Ready:
        def __init__(self, *given: Any) -> None:
            self.about = {"mxnet": "1.9.1", "device": "cpu(0)"}

        def close(self) -> None:
            pass

    monkeypatch.setattr("mxamp.probe.run.Worker", Ready)
    result = mxamp("probe", *options)
    assert result.status == 2
    assert said in result.err
    assert not list(folder.glob("probed*"))


def test_an_interrupt_says_that_the_journal_is_kept(
    mxamp: Any, folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_probe(output: str, *given: Any, **options: Any) -> Target:
        journal_path(output).write_text("begun", "utf-8")
        raise KeyboardInterrupt

    monkeypatch.setattr("mxamp.probe.run_probe", run_probe)
    result = mxamp("probe", "-o", "mine.json")
    assert result.status == 130
    assert "mine.json.journal holds what is done; the same command goes on from there." in result.err


def test_a_bar_shows_how_far_it_is_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown, silent = Terminal(), io.StringIO()
    for stream in (shown, silent):
        bar = ProbeProgress(stream, quiet=False)
        bar.note(Unit("exp", "check"), 10, 40)
        bar.note(Unit("exp", "time"), 20, 40)
        bar.finish()
    assert "10 of 40: checking exp" in shown.getvalue()
    assert "20 of 40, 0:00 left: timing exp" in shown.getvalue()
    bar = ProbeProgress(shown, quiet=False)
    bar.note(Unit("exp", "time"), 40, 40)
    bar.note(Unit("kernels of random shapes", "time"), 0, 100)
    bar.finish()
    assert "] 0 of 100: timing kernels of random shapes" in shown.getvalue(), "their time is their own"
    assert shown.getvalue().endswith("\r\x1b[K")
    assert silent.getvalue() == ""


def test_a_measured_target_is_explained_with_its_machine(mxamp: Any, folder: Any) -> None:
    about = '{"cpu": "A CPU", "instructions": ["avx2", "avx512_bf16"], "threads": 1, "date": "2026-01-02"}'
    (folder / "mine.json").write_text(
        f'{{"name": "mine", "based_on": "cpu-bf16", "measured_on": {about}}}', "utf-8"
    )
    out = " ".join(mxamp("targets", "mine.json").out.split())
    assert "Measured on: cpu A CPU; instructions avx2 avx512_bf16; threads 1; date 2026-01-02." in out
