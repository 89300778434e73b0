"""What a probe ran on: enough to know whose numbers they are, and whether two are of one machine."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

from mxamp.targets.machine import cpu_flags

__all__ = ["default_threads", "describe_machine", "processors"]

_CPU_INFO = Path("/proc/cpuinfo")
_TELLING = re.compile(r"avx2|avx512.*|amx.*|avx_vnni.*")


def processors() -> int:
    """Return how many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def default_threads() -> int:
    """Return how many threads MXNet would use: ``OMP_NUM_THREADS``, or half the processors.

    MXNet takes each processor for one of two hardware threads of a core (``src/engine/openmp.cc``).
    """
    given = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(given) if given.isdigit() and int(given) > 0 else max(1, processors() // 2)


def describe_machine(threads: int, cpu_info: Path = _CPU_INFO) -> dict[str, Any]:
    """Return the CPU's name, its vector instruction sets, its processors and the threads of MXNet."""
    flags = cpu_flags(cpu_info) or frozenset()
    return {
        "cpu": _cpu_name(cpu_info),
        "instructions": sorted(flag for flag in flags if _TELLING.fullmatch(flag)),
        "processors": processors(),
        "threads": threads,
        "system": f"{platform.system()} {platform.machine()}",
    }


def _cpu_name(cpu_info: Path) -> str:
    try:
        text = cpu_info.read_text("utf-8", "replace")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.*\S)", text, re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine() or "unknown"
