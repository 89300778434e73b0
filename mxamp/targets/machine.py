"""What this machine has: CPU instructions and the GPU's generation, found out without MXNet."""

from __future__ import annotations

import ctypes
from pathlib import Path

__all__ = ["compute_capability", "cpu_flags", "has_bfloat16_instructions"]

_CPU_INFO = Path("/proc/cpuinfo")

_BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})
"""The instruction sets for which oneDNN has bfloat16 kernels."""

_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76
"""``CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`` and ``_MINOR`` of the CUDA driver API."""


def cpu_flags(path: Path = _CPU_INFO) -> frozenset[str] | None:
    """Return the instruction sets that the system reports of its CPU, in the Linux kernel's spelling.

    Returns
    -------
    frozenset of str or None
        None where the system does not tell: there is no ``/proc/cpuinfo``, or it has no flags.
    """
    try:
        text = path.read_text("utf-8", "replace")
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return None


def has_bfloat16_instructions() -> bool | None:
    """Return whether the CPU computes in bfloat16; None where that is not known."""
    flags = cpu_flags()
    return None if flags is None else bool(flags & _BFLOAT16_FLAGS)


def compute_capability() -> tuple[int, int] | None:
    """Return the compute capability of the first NVIDIA GPU, such as ``(8, 0)``; None where there is none.

    The driver is asked, so neither CUDA's toolkit nor a GPU build of MXNet needs to be there.
    """
    driver = _driver()
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


def _driver() -> ctypes.CDLL | None:
    for name in ("libcuda.so.1", "libcuda.so", "nvcuda.dll"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None
