"""What a probe ran on: enough to know whose numbers they are, and whether two are of one machine."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

from mxamp.targets.machine import CPU_INFO, asks_for_amx, cpu_flags, cpu_name

__all__ = ["default_threads", "describe_machine", "processors"]

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


def describe_machine(threads: int, cpu_info: Path = CPU_INFO) -> dict[str, Any]:
    """Return the CPU's name, the vector instructions that MXNet may use, the processors and MXNet's threads.

    AMX counts where oneDNN was told to use it, since otherwise it does not; it is listed as unused.
    """
    flags = cpu_flags(cpu_info) or frozenset()
    telling = sorted(flag for flag in flags if _TELLING.fullmatch(flag))
    unused = [] if asks_for_amx() else [flag for flag in telling if flag.startswith("amx")]
    return {
        "cpu": cpu_name(cpu_info),
        "instructions": [flag for flag in telling if flag not in unused],
        **({"unused": unused} if unused else {}),
        "processors": processors(),
        "threads": threads,
        "system": f"{platform.system()} {platform.machine()}",
    }
