"""The kernels of MXNet's OpenBLAS, which computes ``dot``, ``batch_dot`` and ``linalg_*``."""

from __future__ import annotations

import ctypes
from importlib.util import find_spec
from pathlib import Path
from typing import Collection

CORE_SETTING = "OPENBLAS_CORETYPE"
"""The environment variable that tells OpenBLAS, when it is loaded, for which CPU to take kernels."""

_BEFORE_AVX2 = frozenset(
    {
        *(
            "athlon",
            "atom",
            "banias",
            "barcelona",
            "bobcat",
            "bulldozer",
            "coppermine",
            "core2",
            "dunnington",
        ),
        *("generic", "katmai", "nano", "nehalem", "northwood", "opteron", "opteron_sse3", "penryn"),
        *("piledriver", "prescott", "sandybridge", "steamroller"),
    }
)
"""What OpenBLAS 0.3 calls its kernels for CPUs that have no AVX2 (driver/others/dynamic.c there)."""


def blas_kernels() -> str | None:
    """Return the CPU whose kernels MXNet's OpenBLAS takes here; None where there is none that tells.

    MXNet is not imported. Its library is loaded, and looks at the CPU and at :data:`CORE_SETTING`.
    """
    spec = find_spec("mxnet")
    for folder in () if spec is None else spec.submodule_search_locations or ():
        for path in sorted(Path(folder).glob("libopenblas*")):
            try:
                told = ctypes.CDLL(str(path)).openblas_get_corename
            except (OSError, AttributeError):  # no library, or none that was built for several CPUs
                continue
            told.restype = ctypes.c_char_p
            return str(told().decode("ascii", "replace"))
    return None


def blas_advice(kernels: str | None, flags: Collection[str] | None) -> str | None:
    """Return what would let OpenBLAS compute with what the CPU has; None where it does, or nobody knows.

    Parameters
    ----------
    kernels
        What :func:`blas_kernels` returned.
    flags
        What the CPU has, as Linux calls it (:func:`mxamp.measuring.machine.cpu_flags`).
    """
    if kernels is None or flags is None or kernels.lower() not in _BEFORE_AVX2 or "avx2" not in flags:
        return None
    better = "SkylakeX" if "avx512f" in flags else "Haswell"
    return (
        f"MXNet's OpenBLAS does not know this CPU, and takes kernels for {kernels}. What it computes (dot, "
        f"batch_dot, linalg_*) is faster with {CORE_SETTING}={better} in the environment; docs/targets.md "
        "says how much."
    )
