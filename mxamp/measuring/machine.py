"""What this machine has: CPU, instructions, memory, and the GPU's generation, found out without MXNet."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, Iterable, Mapping, Sequence

CPU_INFO = Path("/proc/cpuinfo")
"""Where Linux describes the processors."""

MEMORY_INFO = Path("/proc/meminfo")
CGROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)

_CACHED = re.compile(r"^inactive_file (\d+)$", re.MULTILINE)

_TELLING = re.compile(r"avx2|avx512.*|amx.*|avx_vnni.*")
"""Instruction sets that tell what MXNet's speed can be."""

_AVX512_FLAG = "avx512bw"
"""Of what oneDNN calls AVX512_CORE, without which it has no bfloat16 at all: on other CPUs MXNet raises
"could not create a primitive descriptor iterator" (seen with ``DNNL_MAX_CPU_ISA=AVX2``)."""

_BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})
"""The instruction sets for which oneDNN has bfloat16 kernels."""

AMX_SETTING = ("DNNL_MAX_CPU_ISA", "AVX512_CORE_AMX")
"""The environment variable, and its value, that let the oneDNN of MXNet 1.9.1 use AMX.

There, AMX is an instruction set "with initial support", off unless it is named: neither ``ALL`` nor
``DEFAULT`` turns it on, the name is read as it is written, and ``ONEDNN_MAX_CPU_ISA`` is not read at all
(seen in what ``DNNL_VERBOSE=1`` prints). See "CPU Dispatcher Control" in oneDNN's developer guide.
"""

_WITHOUT_AVX512 = frozenset({"SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX512_MIC", "AVX512_MIC_4OPS"})
_WITHOUT_BFLOAT16 = _WITHOUT_AVX512 | {"AVX512_CORE", "AVX512_CORE_VNNI"}
"""Values of the same variable with which oneDNN does not use the CPU's bfloat16 instructions; with the first
ones it has no bfloat16 at all. Other spellings are ignored, small letters too (each was tried)."""

AVX512, BFLOAT16_INSTRUCTIONS, AMX = "AVX-512", "bfloat16 instructions", "AMX"
"""What a target can need of the machine where a model converted for it runs as expected."""

NEEDS = (AVX512, BFLOAT16_INSTRUCTIONS, AMX)
"""All of these."""

_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76
"""``CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`` and ``_MINOR`` of the CUDA driver API."""


def cpu_flags(path: Path | None = None) -> frozenset[str] | None:
    """Return the instruction sets that the system reports of its CPU, in the Linux kernel's spelling.

    Returns
    -------
    frozenset of str or None
        None where the system does not tell: there is no ``/proc/cpuinfo``, or it has no flags.
    """
    flags = _cpu_information(path, "flags")
    return None if flags is None else frozenset(flags.split())


def cpu_vendor(path: Path | None = None) -> str | None:
    """Return who made the CPU, as its ``CPUID`` says: ``GenuineIntel``, ``AuthenticAMD``.

    Returns
    -------
    str or None
        None where the system does not tell.
    """
    return _cpu_information(path, "vendor_id")


def cpu_family(path: Path | None = None) -> int | None:
    """Return the family of the CPU, as its ``CPUID`` says: a number that stands for a generation or more.

    Returns
    -------
    int or None
        None where the system does not tell.
    """
    family = _cpu_information(path, "cpu family") or ""
    return int(family) if family.isdigit() else None


def cpu_name(path: Path | None = None) -> str:
    """Return what the CPU calls itself; ``unknown`` where nothing tells."""
    named = _cpu_information(path, "model name", "Model")
    return named or platform.processor() or platform.machine() or "unknown"


def _cpu_information(path: Path | None, *wanted: str) -> str | None:
    """Return the first value in Linux's description of the processors that has one of the names."""
    for line in _lines(CPU_INFO if path is None else path):
        name, _, value = line.partition(":")
        if name.strip() in wanted and value.strip():
            return value.strip()
    return None


@lru_cache(maxsize=None)
def _lines(path: Path) -> Sequence[str]:
    # Read once: with hundreds of processors Linux takes its time to describe them.
    return _text(path).splitlines()


def cpu_and_threads() -> tuple[str, str]:
    """Return what figures of the CPU hold for: its name, whether AMX is used, and the number of threads."""
    name = f"{cpu_name()} with AMX" if asks_for_amx() else cpu_name()
    return name, os.environ.get("OMP_NUM_THREADS", str(processors()))


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


def describe_machine(threads: int, cpu_info: Path | None = None) -> dict[str, Any]:
    """Return the CPU's name, the vector instructions that MXNet may use, the processors and MXNet's threads.

    AMX counts where oneDNN was told to use it, since otherwise it does not; it is listed as unused.
    """
    telling = sorted(flag for flag in cpu_flags(cpu_info) or () if _TELLING.fullmatch(flag))
    unused = [] if asks_for_amx() else [flag for flag in telling if flag.startswith("amx")]
    return {
        "cpu": cpu_name(cpu_info),
        "instructions": [flag for flag in telling if flag not in unused],
        **({"unused": unused} if unused else {}),
        "processors": processors(),
        "threads": threads,
        "system": f"{platform.system()} {platform.machine()}",
    }


def available_memory() -> int | None:
    """Return how many bytes a process may still take without swapping; None where nothing tells."""
    found = []
    for line in _text(MEMORY_INFO).splitlines():
        if line.startswith("MemAvailable:"):
            found.append(int(line.split()[1]) << 10)
    for limit, used in CGROUPS:
        limit_text, used_text = _text(limit).strip(), _text(used).strip()
        if limit_text.isdigit() and used_text.isdigit():
            # Files that were read count as used, though they are dropped as soon as memory is wanted.
            cached = _CACHED.search(_text(used.with_name("memory.stat")))
            free = int(limit_text) - int(used_text) + (int(cached[1]) if cached else 0)
            found.append(min(max(0, free), int(limit_text)))
    return min(found, default=None)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def asks_for_amx(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether MXNet computes bfloat16 with AMX when it is started in this environment.

    It does where the CPU has AMX, and oneDNN was told to use it (:data:`AMX_SETTING`).

    Parameters
    ----------
    environment
        The environment variables.
    """
    variable, value = AMX_SETTING
    return environment.get(variable) == value and "amx_bf16" in (cpu_flags() or ())


def leaves_amx_unused(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the CPU has AMX for bfloat16, and MXNet does not use it since it was not told to."""
    return "amx_bf16" in (cpu_flags() or ()) and not asks_for_amx(environment)


def has_bfloat16_instructions() -> bool | None:
    """Return whether MXNet computes with the CPU's bfloat16 instructions; None where that is not known."""
    flags = cpu_flags()
    if flags is None:
        return None
    return bool(flags & _BFLOAT16_FLAGS) and os.environ.get(AMX_SETTING[0]) not in _WITHOUT_BFLOAT16


def has_avx512() -> bool | None:
    """Return whether MXNet computes with AVX-512; None where that is not known."""
    flags = cpu_flags()
    if flags is None:
        return None
    return _AVX512_FLAG in flags and os.environ.get(AMX_SETTING[0]) not in _WITHOUT_AVX512


def unmet_need(needs: Iterable[str]) -> str | None:
    """Return what CPUs a target is for that this one is not; None where nothing is known to be missing.

    Parameters
    ----------
    needs
        What the target needs, of :data:`NEEDS`.
    """
    wanted, flags = frozenset(needs), cpu_flags()
    variable, _ = AMX_SETTING
    limit = os.environ.get(variable)
    forbidden = f"which oneDNN may not use here ({variable}={limit} in the environment)"
    if AVX512 in wanted:
        if flags is not None and _AVX512_FLAG not in flags:
            return f"CPUs with AVX-512, which this one ({cpu_name()}) does not have"
        if limit in _WITHOUT_AVX512:
            return f"CPUs with AVX-512, {forbidden}"
    if BFLOAT16_INSTRUCTIONS in wanted and has_bfloat16_instructions() is False:
        if flags is not None and flags & _BFLOAT16_FLAGS:
            return f"CPUs with bfloat16 instructions, {forbidden}"
        return f"CPUs with bfloat16 instructions, which this one ({cpu_name()}) does not have"
    if AMX in wanted and not asks_for_amx():
        return (
            f"CPUs with AMX where oneDNN was told to use it by {'='.join(AMX_SETTING)}, which is not so here"
        )
    return None


def compute_capability() -> tuple[int, int] | None:
    """Return the compute capability of the first NVIDIA GPU, such as ``(8, 0)``; None where there is none.

    The driver is asked, so neither CUDA's toolkit nor a GPU build of MXNet needs to be there.
    """
    driver = cuda_driver()
    if driver is None:
        return None
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    if driver.cuDeviceGetAttribute(
        ctypes.byref(major), _CAPABILITY_MAJOR, device
    ) or driver.cuDeviceGetAttribute(ctypes.byref(minor), _CAPABILITY_MINOR, device):
        return None
    return major.value, minor.value


def cuda_driver() -> ctypes.CDLL | None:
    """Return the CUDA driver's library; None where there is none."""
    for name in ("libcuda.so.1", "libcuda.so", "nvcuda.dll"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None
