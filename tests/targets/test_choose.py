"""Choosing a target: by name, from a file, by machine."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import pytest

from mxamp.dtypes import DType
from mxamp.errors import TargetError
from mxamp.measuring import machine
from mxamp.targets import AUTO, OperatorSupport, Support, Target, choose, image_layout, resolve_target
from mxamp.targets import target as target_module
from tests.building import BF16, F16


def on_a_machine(
    monkeypatch: pytest.MonkeyPatch,
    *,
    bfloat16: bool | None = None,
    vendor: str | None = None,
    family: int | None = None,
    amx: bool = False,
    gpu: tuple[int, int] | None = None,
    avx512: bool | None = True,
) -> None:
    monkeypatch.setattr(choose, "has_avx512", lambda: avx512)
    monkeypatch.setattr(choose, "has_bfloat16_instructions", lambda: bfloat16)
    monkeypatch.setattr(choose, "cpu_vendor", lambda: vendor)
    monkeypatch.setattr(choose, "cpu_family", lambda: family)
    monkeypatch.setattr(choose, "asks_for_amx", lambda: amx)
    monkeypatch.setattr(choose, "compute_capability", lambda: gpu)


@pytest.mark.parametrize(
    ("bfloat16", "vendor", "family", "amx", "expected"),
    [
        pytest.param(True, "AuthenticAMD", 25, False, "cpu-bf16", id="AMD"),
        pytest.param(True, "AuthenticAMD", 26, False, "cpu-bf16-zen5", id="AMD since Zen 5"),
        pytest.param(True, "AuthenticAMD", None, False, "cpu-bf16", id="AMD of unknown family"),
        pytest.param(False, "AuthenticAMD", 26, False, "cpu-bf16-emulated", id="AMD, bfloat16 forbidden"),
        pytest.param(True, "GenuineIntel", 6, False, "cpu-bf16-intel", id="Intel"),
        pytest.param(True, "GenuineIntel", 6, True, "cpu-bf16-amx", id="Intel, told to use AMX"),
        pytest.param(True, None, 26, False, "cpu-bf16", id="of unknown make"),
        pytest.param(False, "GenuineIntel", 6, False, "cpu-bf16-emulated", id="has none"),
        pytest.param(None, None, None, False, "cpu-bf16", id="does not tell"),
    ],
)
def test_bfloat16_goes_by_the_instructions_of_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
    bfloat16: bool | None,
    vendor: str | None,
    family: int | None,
    amx: bool,
    expected: str,
) -> None:
    on_a_machine(monkeypatch, bfloat16=bfloat16, vendor=vendor, family=family, amx=amx, gpu=(8, 0))
    assert resolve_target(AUTO, BF16).name == expected


@pytest.mark.parametrize("vendor", ["AuthenticAMD", "GenuineIntel"])
def test_without_avx512_the_target_runs_nothing_in_bfloat16(
    monkeypatch: pytest.MonkeyPatch, vendor: str
) -> None:
    on_a_machine(monkeypatch, bfloat16=False, vendor=vendor, family=23, avx512=False)
    found = resolve_target(AUTO, BF16)
    assert found.name == "cpu-bf16-avx2"
    assert found.runs_nothing_low
    assert found.block == 8
    assert Target.builtin("cpu-bf16").block == 16


def test_the_measured_targets_say_where_low_precision_pays() -> None:
    gains = {
        name: cost.flops_per_us.low / cost.flops_per_us.float32
        for name in ("cpu-bf16", "cpu-bf16-zen5", "cpu-bf16-intel", "cpu-bf16-amx")
        for cost in [Target.builtin(name).cost]
        if cost is not None
    }
    assert gains["cpu-bf16-intel"] < 1 < gains["cpu-bf16"] < gains["cpu-bf16-amx"]
    assert gains["cpu-bf16-zen5"] == pytest.approx(gains["cpu-bf16"], rel=0.1)
    warned = {name for name in gains if "does not pay" in Target.builtin(name).warning}
    assert warned == {"cpu-bf16-intel"}


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        (None, "cuda-fp16"),
        ((6, 1), "cuda-fp16"),
        ((7, 0), "cuda-fp16-sm70"),
        ((7, 2), "cuda-fp16-sm70"),
        ((7, 5), "cuda-fp16-sm75"),
        ((8, 0), "cuda-fp16-sm80"),
        ((8, 6), "cuda-fp16-sm86"),
        ((8, 9), "cuda-fp16-sm86"),
        ((9, 0), "cuda-fp16"),
    ],
    ids=str,
)
def test_float16_goes_by_the_generation_of_the_gpu(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int] | None, expected: str
) -> None:
    on_a_machine(monkeypatch, bfloat16=False, gpu=capability)
    assert resolve_target(AUTO, F16).name == expected


def test_without_being_asked_the_target_is_the_same_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_machine(monkeypatch, bfloat16=False, gpu=(8, 0))
    assert resolve_target(None, BF16).name == "cpu-bf16"
    assert resolve_target(None, F16).name == "cuda-fp16"


def test_a_format_for_emulation_has_a_target_too(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_machine(monkeypatch)
    dtype = DType.parse("tfloat32", emulated=True)
    assert resolve_target(AUTO, dtype).dtype is dtype


def test_a_target_is_itself_and_a_name_is_the_built_in_one() -> None:
    target = Target.builtin("generic-bf16")
    assert resolve_target(target, BF16) is target
    assert resolve_target("generic-bf16", BF16) is target


@pytest.mark.parametrize("as_text", [True, False], ids=["text", "path"])
def test_a_file_holds_a_target_based_on_another(tmp_path: Path, as_text: bool) -> None:
    path = tmp_path / "mine.json"
    path.write_text(
        json.dumps(
            {
                "name": "mine",
                "based_on": "cpu-bf16",
                "description": "like cpu-bf16, but exp works",
                "operators": {"exp": {"support": "works"}},
            }
        )
    )
    target = resolve_target(str(path) if as_text else path, BF16)
    base = Target.builtin("cpu-bf16")
    assert target.support("exp", {}).support is Support.WORKS
    assert {**target.operators, "exp": None} == {**base.operators, "exp": None}
    assert (target.dtype, target.fusion, target.cost) == (base.dtype, base.fusion, base.cost)
    assert target.based_on == ("cpu-bf16",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"Cannot read the target '.*mine\.json': No such file"),
        ("{", r"mine\.json is not a target: it is no JSON"),
        ("[" * 100_000, r"mine\.json is not a target: it is no JSON"),
        ("[]", r"mine\.json is not a target"),
        ('{"based_on": "cpu"}', r"There is no target 'cpu'"),
        ('{"based_on": "cpu-bf16", "operators": 3}', r"mine\.json is not a target"),
    ],
    ids=["missing", "torn", "deep", "list", "base", "operators"],
)
def test_a_file_that_is_no_target_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "mine.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(TargetError, match=message):
        resolve_target(path, BF16)


def test_what_is_no_target_at_all_is_told_what_it_may_be() -> None:
    with pytest.raises(TargetError, match=r"path of a JSON file, 'auto' or a Target, not int"):
        resolve_target(3, BF16)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- the machine


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx2 avx512_bf16\n", {"fpu", "avx2", "avx512_bf16"}),
        ("processor\t: 0\nFeatures\t: fp asimd bf16\n", None),
        ("", None),
    ],
    ids=["x86", "arm", "empty"],
)
def test_flags_of_the_cpu(tmp_path: Path, text: str, flags: set[str] | None) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    assert machine.cpu_flags(path) == flags


def test_a_system_that_does_not_tell_has_no_flags(tmp_path: Path) -> None:
    assert machine.cpu_flags(tmp_path / "nothing") is None
    assert machine.cpu_vendor(tmp_path / "nothing") is None
    assert machine.cpu_family(tmp_path / "nothing") is None
    assert machine.cpu_name(tmp_path / "nothing")


def test_vendor_family_and_name_of_the_cpu(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel name\t: Xeon: fast\n")
    assert machine.cpu_vendor(path) == "GenuineIntel"
    assert machine.cpu_family(path) == 6
    assert machine.cpu_name(path) == "Xeon: fast"


@pytest.mark.parametrize(
    ("environment", "flags", "asks"),
    [
        pytest.param({"DNNL_MAX_CPU_ISA": "AVX512_CORE_AMX"}, {"amx_bf16", "avx2"}, True, id="yes"),
        pytest.param({}, {"amx_bf16"}, False, id="not told"),
        pytest.param({"DNNL_MAX_CPU_ISA": "ALL"}, {"amx_bf16"}, False, id="all but AMX"),
        pytest.param({"DNNL_MAX_CPU_ISA": "avx512_core_amx"}, {"amx_bf16"}, False, id="not in capitals"),
        pytest.param({"DNNL_MAX_CPU_ISA": "AVX512_CORE_AMX"}, {"avx512_bf16"}, False, id="has none"),
        pytest.param({"DNNL_MAX_CPU_ISA": "AVX512_CORE_AMX"}, None, False, id="does not tell"),
    ],
)
def test_amx_is_used_where_the_cpu_has_it_and_onednn_was_told_to(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], flags: Any, asks: bool
) -> None:
    monkeypatch.setattr(machine, "cpu_flags", lambda: flags)
    assert machine.asks_for_amx(environment) is asks


@pytest.mark.parametrize(
    ("flags", "has"),
    [({"amx_bf16"}, True), ({"avx512_bf16"}, True), ({"avx512f", "avx2"}, False), (None, None)],
    ids=["amx", "avx512", "neither", "unknown"],
)
def test_bfloat16_instructions(monkeypatch: pytest.MonkeyPatch, flags: Any, has: bool | None) -> None:
    monkeypatch.setattr(machine, "cpu_flags", lambda: flags)
    assert machine.has_bfloat16_instructions() is has


@pytest.mark.parametrize(
    ("flags", "limit", "has"),
    [
        pytest.param({"avx512bw", "avx2"}, "", True, id="has it"),
        pytest.param({"avx512f", "avx2"}, "", False, id="has the first part of it alone"),
        pytest.param({"avx2"}, "", False, id="AVX2"),
        pytest.param({"avx512bw", "avx2"}, "AVX2", False, id="may not use it"),
        pytest.param(None, "", None, id="does not tell"),
    ],
)
def test_avx512(monkeypatch: pytest.MonkeyPatch, flags: Any, limit: str, has: bool | None) -> None:
    monkeypatch.setattr(machine, "cpu_flags", lambda: flags)
    monkeypatch.setenv("DNNL_MAX_CPU_ISA", limit)
    assert machine.has_avx512() is has
    assert image_layout.block_here() == (8 if has is False else 16)


@pytest.mark.parametrize(
    ("limit", "has", "missing"),
    [
        ("AVX512_CORE_BF16", True, None),
        ("AVX512_CORE_AMX", True, None),
        ("avx2", True, None),
        ("AVX512_CORE", False, "bfloat16 instructions"),
        ("AVX512_CORE_VNNI", False, "bfloat16 instructions"),
        ("AVX2", False, "AVX-512"),
        ("SSE41", False, "AVX-512"),
    ],
)
def test_instructions_that_onednn_may_not_use_are_missing(
    monkeypatch: pytest.MonkeyPatch, limit: str, has: bool, missing: str | None
) -> None:
    monkeypatch.setattr(machine, "cpu_flags", lambda: frozenset({"avx512bw", "avx512_bf16"}))
    monkeypatch.setenv("DNNL_MAX_CPU_ISA", limit)
    assert machine.has_bfloat16_instructions() is has
    found = machine.unmet_need((machine.AVX512, machine.BFLOAT16_INSTRUCTIONS))
    expected = f"CPUs with {missing}, which oneDNN may not use here (DNNL_MAX_CPU_ISA={limit} in"
    assert found is None if missing is None else str(found).startswith(expected)


class Driver:
    """Answers as NVIDIA's driver does; each function returns an error code."""

    def __init__(self, capability: tuple[int, int], *, fails: str = "") -> None:
        self._capability, self._fails = capability, fails

    def cuInit(self, flags: int) -> int:  # noqa: N802 - the driver's name
        return 100 * (self._fails == "cuInit")

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:  # noqa: N802 - the driver's name
        return 101 * (self._fails == "cuDeviceGet")

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> int:  # noqa: N802 - as above
        ctypes.cast(value, ctypes.POINTER(ctypes.c_int))[0] = self._capability[attribute - 75]
        return 102 * (self._fails == "cuDeviceGetAttribute")


def test_the_driver_tells_the_compute_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cuda_driver", lambda: Driver((7, 5)))
    assert machine.compute_capability() == (7, 5)


@pytest.mark.parametrize("fails", ["cuInit", "cuDeviceGet", "cuDeviceGetAttribute"])
def test_a_driver_without_a_gpu_is_none(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    monkeypatch.setattr(machine, "cuda_driver", lambda: Driver((7, 5), fails=fails))
    assert machine.compute_capability() is None


def test_a_machine_without_a_driver_has_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert machine.compute_capability() is None


def test_what_is_registered_for_a_target_holds_for_those_based_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    registered = {("_ours", "cuda-fp16"): OperatorSupport(Support.WORKS)}
    monkeypatch.setattr(target_module, "REGISTERED_SUPPORT", registered)
    assert Target.builtin("cuda-fp16").support("_ours", {}).support is Support.WORKS
    assert Target.builtin("cuda-fp16-sm75").support("_ours", {}).support is Support.WORKS
    assert Target.builtin("cpu-bf16").support("_ours", {}).support is Support.UNMEASURED
