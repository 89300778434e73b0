"""Permission to use AMX, which Linux wants to be asked for before a process touches its registers."""

from __future__ import annotations

import ctypes
import os

from mxamp.errors import DeviceError
from mxamp.measuring.machine import AMX_SETTING, asks_for_amx

_ARCH_PRCTL = 158
"""The number of the system call ``arch_prctl`` on x86-64."""

_REQUEST_PERMISSION = 0x1023
"""``ARCH_REQ_XCOMP_PERM``: see "Using XSTATE features in user space applications" in the Linux kernel's
documentation."""

_TILE_DATA = 18
"""``XFEATURE_XTILEDATA``, the state of AMX's tile registers."""


def permit_amx() -> None:
    """Ask Linux to let this process use AMX, if its oneDNN was told to use it; otherwise do nothing.

    The oneDNN of MXNet 1.9.1 is older than Linux's rule that AMX must be asked for (5.16), and does not ask:
    with ``DNNL_MAX_CPU_ISA=AVX512_CORE_AMX`` alone, its first bfloat16 layer ends the process with an
    illegal instruction. The permission holds for every thread of the process, and for processes that it
    forks, but not for programs that it starts.

    Raises
    ------
    DeviceError
        When the system refuses.
    """
    if not asks_for_amx():
        return
    error = request(_TILE_DATA)
    if error:
        variable, value = AMX_SETTING
        raise DeviceError(
            f"{variable}={value} tells MXNet's oneDNN to use AMX, and the system does not permit it: "
            f"{os.strerror(error)}. MXNet would be ended by an illegal instruction. Unset {variable}; AMX "
            "needs Linux 5.16 or later, and a container or virtual machine that passes it on."
        )


def request(feature: int) -> int:
    """Request permission to use a processor state; return the number of the error, or 0."""
    library = ctypes.CDLL(None, use_errno=True)
    return ctypes.get_errno() if library.syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, feature) else 0
