"""Choosing a target: by name, from a file, or by dtype and machine."""

from __future__ import annotations

import os
from typing import Union

from mxamp.dtypes import DType
from mxamp.errors import TargetError
from mxamp.measuring.machine import (
    asks_for_amx,
    compute_capability,
    cpu_family,
    cpu_vendor,
    has_avx512,
    has_bfloat16_instructions,
)
from mxamp.targets.target import Target

GivenTarget = Union[Target, str, "os.PathLike[str]", None]
"""What a target may be given as."""

AUTO = "auto"
"""The name that stands for the target of this machine."""

_GENERATIONS = (((7, 0), "sm70"), ((7, 5), "sm75"), ((8, 0), "sm80"), ((8, 6), "sm86"))
"""The compute capabilities from which on a GPU is of a generation."""

_INTEL, _AMD = "GenuineIntel", "AuthenticAMD"
"""What CPUs call their vendor."""

_ZEN_5 = 26
"""The family of AMD's CPUs from Zen 5 on (1Ah; Zen 4 is of family 25, 19h): AMD's revision guides."""

BEYOND_WHEELS = (9, 0)
"""The first compute capability for which MXNet's wheels hold no machine code."""


def resolve_target(given: GivenTarget, dtype: DType) -> Target:
    """Return the target that was asked for.

    Parameters
    ----------
    given
        A :class:`Target`; the name of a built-in one; the path of a JSON file (it ends in ``.json``);
        ``"auto"`` for this machine's; None for the built-in one of the dtype, the same on every machine.
    dtype
        The low dtype.

    Raises
    ------
    TargetError
        When there is no such target, or the file is none.
    """
    if given is None:
        return Target.for_dtype(dtype)
    if isinstance(given, Target):
        return given
    if not isinstance(given, (str, os.PathLike)):
        raise TargetError(
            "target must be the name of a built-in target, the path of a JSON file, "
            f"{AUTO!r} or a Target, not {type(given).__name__}."
        )
    path = os.fspath(given)
    if path == AUTO:
        return automatic_target(dtype)
    if not isinstance(given, str) or path.endswith(".json"):
        return Target.load(path)
    return Target.builtin(path)


def machine_dtype() -> DType:
    """Return the low dtype of this machine: float16 where it has a GPU that MXNet runs on, else bfloat16."""
    return DType.BFLOAT16 if _capability_that_runs() is None else DType.FLOAT16


def _capability_that_runs() -> tuple[int, int] | None:
    """Return the compute capability of the GPU; None where there is none, or none that MXNet runs on."""
    capability = compute_capability()
    return capability if capability is not None and capability < BEYOND_WHEELS else None


def automatic_target(dtype: DType) -> Target:
    """Return the built-in target that describes this machine best.

    bfloat16 goes by the CPU's instruction sets, its maker and family, and whether this process's oneDNN may
    use AMX; float16 by the GPU's generation. Where the machine does not tell, or has no GPU that MXNet runs
    on, it is the target of the dtype.

    The maker counts since one instruction, ``VDPBF16PS``, is not equally fast everywhere: AMD's CPUs multiply
    bfloat16 with it at twice the rate of float32, Intel's at the same. The family counts since Zen 5 computes
    twice as fast as Zen 4 in both, and moves data hardly faster.

    Parameters
    ----------
    dtype
        The low dtype.
    """
    if dtype is DType.BFLOAT16:
        if has_avx512() is False:
            return Target.builtin("cpu-bf16-avx2")
        if has_bfloat16_instructions() is False:
            return Target.builtin("cpu-bf16-emulated")
        if asks_for_amx():
            return Target.builtin("cpu-bf16-amx")
        if cpu_vendor() == _INTEL:
            return Target.builtin("cpu-bf16-intel")
        if cpu_vendor() == _AMD and (cpu_family() or 0) >= _ZEN_5:
            return Target.builtin("cpu-bf16-zen5")
    if dtype is DType.FLOAT16:
        capability = _capability_that_runs()
        if capability is not None:
            generations = [name for first, name in _GENERATIONS if capability >= first]
            if generations:
                return Target.builtin(f"cuda-fp16-{generations[-1]}")
    return Target.for_dtype(dtype)
