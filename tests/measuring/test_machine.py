"""What this machine has, as the system tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mxamp.measuring import machine


@pytest.mark.parametrize("told", [False, True])
def test_amx_counts_where_onednn_was_told_to_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("model name\t: Xeon\nflags\t\t: fpu avx512_bf16 amx_bf16\n")
    monkeypatch.setattr(machine, "asks_for_amx", lambda: told)
    found = machine.describe_machine(1, path)
    assert found["cpu"] == "Xeon"
    assert found["instructions"] == (["amx_bf16", "avx512_bf16"] if told else ["avx512_bf16"])
    assert found.get("unused") == (None if told else ["amx_bf16"])


def test_available_memory_is_what_the_system_and_its_limits_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 99 kB\nMemAvailable:  2048 kB\n")
    (tmp_path / "max").write_text("1500000\n")
    (tmp_path / "current").write_text("500000\n")
    monkeypatch.setattr(machine, "MEMORY_INFO", tmp_path / "meminfo")
    monkeypatch.setattr(machine, "CGROUPS", ((tmp_path / "max", tmp_path / "current"),))
    assert machine.available_memory() == 1_000_000
    (tmp_path / "memory.stat").write_text("active_file 7\ninactive_file 200000\n")
    assert machine.available_memory() == 1_200_000  # files that were read are dropped where memory is wanted
    (tmp_path / "max").write_text("max\n")
    assert machine.available_memory() == 2048 << 10
    monkeypatch.setattr(machine, "MEMORY_INFO", tmp_path / "nothing")
    assert machine.available_memory() is None
