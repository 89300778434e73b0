"""A probe from beginning to end, with processes that answer without MXNet."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import mxamp.probe.run
from mxamp.dtypes import DType
from mxamp.errors import DeviceError, ExportError, TargetError
from mxamp.probe import ProbeSettings, run_probe
from mxamp.probe.cases import all_cases
from mxamp.probe.cases.overheads import LONG_CHAIN, SHORT_CHAIN
from mxamp.probe.document import document_text
from mxamp.probe.jobs import TIME, Unit
from mxamp.probe.run import KERNELS
from mxamp.probe.time_kernels import KernelTiming
from mxamp.targets import Support, Target
from mxamp.targets.kernel_cost import kernel_microseconds
from mxamp.targets.kernel_terms import amounts_and_traits
from mxamp.targets.work import Work
from tests.probe.children import child

ONLY = ("floor", "zeros_like", "exp")

FEW = (
    *(SHORT_CHAIN, LONG_CHAIN, "erf", "Convolution 1x1", "Convolution 1x1 bias", "FullyConnected 2-D"),
    *("Pooling max 3x3 stride 2", "Pooling max 2x2", "Pooling avg 2x2", "Pooling global avg"),
    *("softmax 2-D", "softmax axis=1", "log_softmax 2-D"),
)
"""Cases that are really timed: as many times as costs are fitted to."""


def settings(command: tuple[str, ...], **more: Any) -> ProbeSettings:
    return ProbeSettings(DType.BFLOAT16, "cpu", 1, workers=1, only=ONLY, command=command, **more)


def test_a_target_is_written_and_read_again(tmp_path: Path) -> None:
    output = tmp_path / "mine.json"
    target = run_probe(output, settings(child(tmp_path)), description="a test")
    assert Target.load(output) == target
    assert (target.name, target.dtype, target.device) == ("mine", DType.BFLOAT16, "cpu")
    assert target.description.startswith("a test. Measured by mxamp probe, MXNet 1.9.1, ")
    assert target.refusal("floor", {}) is None
    assert target.cost is None, "too few times"
    assert target.default is Support.UNMEASURED


def test_what_it_was_measured_on_is_recorded(tmp_path: Path) -> None:
    target = run_probe(tmp_path / "mine.json", settings(child(tmp_path)))
    about = target.measured_on
    assert about["mxnet"] == "1.9.1"
    assert about["threads"] == 1
    assert {"cpu", "instructions", "date", "mxamp", "processors"} <= set(about)
    assert "MXNet 1.9.1" in target.description
    assert str(about["cpu"]) in target.description


def test_what_is_known_and_not_seen_counts(tmp_path: Path) -> None:
    target = run_probe(tmp_path / "mine.json", settings(child(tmp_path)))
    assert "cannot read the layout" in (target.refusal("zeros_like", {}) or "")


def test_nothing_is_left_beside_the_result(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    run_probe(folder / "mine.json", settings(child(tmp_path)))
    assert [path.name for path in folder.iterdir()] == ["mine.json"]


def test_a_crash_and_a_timeout_are_in_the_result(tmp_path: Path) -> None:
    body = 'if case == "exp": os.kill(os.getpid(), signal.SIGKILL)\nif case == "floor": time.sleep(600)'
    target = run_probe(tmp_path / "mine.json", settings(child(tmp_path, body), limit=1.0))
    assert target.operators["exp"].support is Support.CRASHES
    assert target.operators["exp"].note == "ends the process: SIGKILL"
    assert target.operators["floor"].note == "does not return: no answer in 1 s"


def test_an_interrupted_probe_goes_on_where_it_was(tmp_path: Path) -> None:
    output, log = tmp_path / "mine.json", tmp_path / "done.log"
    command = child(tmp_path, f'open({str(log)!r}, "a").write(case + "\\n")')
    done: list[Unit] = []

    def interrupt(unit: Unit, number: int, total: int) -> None:
        done.append(unit)
        if number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_probe(output, settings(command), progress=interrupt)
    assert not output.exists()
    assert (tmp_path / "mine.json.journal").exists()
    log.write_text("", "utf-8")
    numbers: list[tuple[Unit, int, int]] = []
    run_probe(output, settings(command), progress=lambda *one: numbers.append(one))
    assert numbers[0][1] == 3
    assert numbers[-1][1] == numbers[-1][2]
    assert not set(done) & {unit for unit, _, _ in numbers}
    assert not (tmp_path / "mine.json.journal").exists()


def test_a_fresh_probe_measures_everything_again(tmp_path: Path) -> None:
    output = tmp_path / "mine.json"
    (tmp_path / "mine.json.journal").write_text("something else", "utf-8")
    with pytest.raises(TargetError, match="is no journal"):
        run_probe(output, settings(child(tmp_path)))
    run_probe(output, settings(child(tmp_path)), fresh=True)
    assert output.exists()


def test_the_journal_of_another_machine_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "mine.json"

    def interrupt(unit: Unit, number: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_probe(output, settings(child(tmp_path)), progress=interrupt)
    here = mxamp.probe.run.describe_machine(1)
    monkeypatch.setattr(mxamp.probe.run, "describe_machine", lambda threads: {**here, "cpu": "Another"})
    with pytest.raises(TargetError, match=r"begun with another cpu: .*now it is Another"):
        run_probe(output, settings(child(tmp_path)))


def test_the_old_target_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    output = tmp_path / "mine.json"
    output.write_text("the old one", "utf-8")

    def interrupt(unit: Unit, number: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_probe(output, settings(child(tmp_path)), progress=interrupt)
    assert output.read_text("utf-8") == "the old one"


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        pytest.param("missing/mine.json", ExportError, "does not exist. Create it first", id="no folder"),
        pytest.param("mine.txt", ExportError, r"must end in \.json", id="no .json"),
        pytest.param("folder.json", ExportError, "it is a folder", id="a folder"),
    ],
)
def test_an_output_that_cannot_be_written_is_told_before_anything_is_measured(
    tmp_path: Path, name: str, error: type[Exception], said: str
) -> None:
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(error, match=said):
        run_probe(tmp_path / name, settings(child(tmp_path, "os.abort()")))


def test_a_name_that_matches_no_operator_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"matches 'Convolutoin'\. Did you mean 'Convolution'"):
        run_probe(
            tmp_path / "mine.json",
            ProbeSettings(DType.BFLOAT16, "cpu", 1, only=("Convolutoin",), command=child(tmp_path)),
        )


def test_a_device_that_is_not_there_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    greeting = 'tell({"refused": "DeviceError", "message": "There is no gpu(0)"}); sys.exit(0)'
    with pytest.raises(DeviceError, match=r"There is no gpu\(0\)"):
        run_probe(tmp_path / "mine.json", settings(child(tmp_path, greeting=greeting)))
    assert [path.name for path in tmp_path.iterdir()] == ["child.py"]


def test_where_the_cpu_has_no_low_instructions_the_result_says_that_it_does_not_pay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = {**mxamp.probe.run.describe_machine(1), "instructions": ["avx2", "avx512f"]}
    monkeypatch.setattr(mxamp.probe.run, "describe_machine", lambda threads: here)
    target = run_probe(tmp_path / "mine.json", settings(child(tmp_path)))
    assert "has no bfloat16 instructions" in target.warning
    assert "does not pay" in target.warning


def test_where_amx_is_there_and_not_used_the_warning_says_how_to_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = {**mxamp.probe.run.describe_machine(1), "instructions": ["avx512f"], "unused": ["amx_bf16"]}
    monkeypatch.setattr(mxamp.probe.run, "describe_machine", lambda threads: here)
    target = run_probe(tmp_path / "mine.json", settings(child(tmp_path)))
    assert target.warning.endswith(
        "its CPU has AMX, which MXNet uses where DNNL_MAX_CPU_ISA=AVX512_CORE_AMX is set"
    )


@pytest.fixture
def without_avx512(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this be a CPU on which MXNet has no bfloat16."""
    monkeypatch.setattr(mxamp.probe.run, "has_avx512", lambda: False)
    monkeypatch.setattr(mxamp.probe.run, "automatic_target", lambda dtype: Target.builtin("cpu-bf16-avx2"))


def float32_alone(command: tuple[str, ...] = ProbeSettings.command) -> ProbeSettings:
    return ProbeSettings(DType.BFLOAT16, "cpu", 1, command=command, kernel_seconds=2.0)


def relus(timing: KernelTiming, times: int = 3) -> list[dict[str, Any]]:
    """Return what ReLUs of some sizes would take that are so many times as slow as built-in costs say."""
    shapes = [(1, 8 * channels, side, side) for channels in range(1, 9) for side in (7, 14, 28)]
    tree = Target.builtin("cpu-bf16-avx2").cost.kernels["Activation relu"][0]
    timed = []
    for shape in shapes:
        work = Work(0, math.prod(shape) * 2, inputs=(shape,), output=shape, attributes={"act_type": "relu"})
        told = kernel_microseconds(tree, *amounts_and_traits("Activation", work, low=False))
        timed.append({"op": "Activation", "work": work.to_document(), "us": {"float32": times * told}})
    timing.progress(timing.seconds)
    return timed


def test_where_nothing_runs_low_costs_in_float32_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_avx512: None
) -> None:
    monkeypatch.setattr(
        mxamp.probe.run, "time_random_kernels", lambda timing, *given, **options: relus(timing)
    )
    told: list[tuple[Unit, int, int]] = []
    target = run_probe(
        tmp_path / "mine.json",
        float32_alone(child(tmp_path)),
        description="a test",
        progress=lambda *given: told.append(given),
    )
    assert Target.load(tmp_path / "mine.json") == target
    builtin = Target.builtin("cpu-bf16-avx2")
    assert (target.name, target.default, target.rewrites) == ("mine", builtin.default, builtin.rewrites)
    assert target.description.startswith("a test. Measured in float32 by mxamp probe, MXNet 1.9.1, ")
    assert target.measured_on["mxnet"] == "1.9.1"
    assert target.refusal("Convolution", {}) is not None
    assert target.cost is not None
    assert target.cost.kernels_measured.startswith("48 kernels of random shapes on ")
    ratios = [
        kernel_microseconds(target.cost.kernels[family][0], *known)
        / kernel_microseconds(builtin.cost.kernels[family][0], *known)
        for family, op in (("Activation relu", "Activation"), ("softmax", "softmax"))
        for work in [Work(0, 25088, inputs=((1, 64, 14, 14),), output=(1, 64, 14, 14))]
        for known in [amounts_and_traits(op, work, low=False)]
    ]
    assert ratios == pytest.approx([3.0, 3.0], rel=0.2), "what was not timed is as much slower"
    assert [(done, total) for unit, done, total in told if unit == KERNELS] == [(50, 100), (100, 100)]
    assert {unit.kind for unit, _, _ in told} == {TIME}, "nothing is checked where nothing runs low"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["child.py", "mine.json"]


def test_operators_and_kernels_are_really_timed_in_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_avx512: None
) -> None:
    pytest.importorskip("mxnet", reason="kernels are timed")
    few = {name: case for name, case in all_cases().items() if name in FEW}
    monkeypatch.setattr(mxamp.probe.run, "all_cases", lambda: few)
    units: set[Unit] = set()
    target = run_probe(
        tmp_path / "mine.json", float32_alone(), progress=lambda unit, done, total: units.add(unit)
    )
    assert units == {KERNELS, *(Unit(name, TIME) for name in FEW)}
    known = Target.builtin_document("cpu-bf16-avx2")["cost"]
    cost = json.loads((tmp_path / "mine.json").read_text("utf-8"))["cost"]
    assert cost["operators"]["erf"] != known["operators"]["erf"]
    assert 0 < cost["overhead_us"]["float32"] < 100
    assert int(cost["kernels_measured"].split(" ")[0]) > 0
    assert target.measured_on["device"] == "cpu(0)"


def test_a_document_is_written_an_operator_a_line() -> None:
    document = dict(Target.builtin_document("cpu-bf16"))
    text = document_text(document)
    assert json.loads(text) == document
    # Once in the operators, and twice in the costs: its factors and its kernels, a tree of conditions.
    rows = [
        line for line in text.splitlines() if line.startswith(('  "Convolution": ', '   "Convolution": '))
    ]
    assert len(rows) >= 2
    assert max(len(line) for line in text.splitlines() if '"trait"' not in line) < 1500
