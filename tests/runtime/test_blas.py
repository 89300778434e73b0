"""Which kernels MXNet's OpenBLAS takes, and what would help."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mxamp.runtime.blas import CORE_SETTING, blas_advice, blas_kernels

AVX2, AVX512 = {"sse2", "avx", "avx2"}, {"sse2", "avx", "avx2", "avx512f"}


@pytest.mark.parametrize(("flags", "better"), [(AVX2, "Haswell"), (AVX512, "SkylakeX")])
def test_kernels_for_old_cpus_are_told(flags: set[str], better: str) -> None:
    advice = blas_advice("Prescott", flags)
    assert advice is not None
    assert "kernels for Prescott. What it computes" in advice
    assert f"{CORE_SETTING}={better} in the environment" in advice


@pytest.mark.parametrize(
    ("kernels", "flags"),
    [("Haswell", AVX2), ("SkylakeX", AVX512), ("Zen", AVX512), ("Prescott", {"sse2"}), ("Prescott", None)],
)
def test_where_nothing_would_help_nothing_is_said(kernels: str, flags: set[str] | None) -> None:
    assert blas_advice(kernels, flags) is None
    assert blas_advice(None, flags) is None


def test_the_setting_is_what_the_library_looks_at() -> None:
    if blas_kernels() is None:
        pytest.skip("MXNet is not here, or has no OpenBLAS of its own that was built for several CPUs")
    code = "from mxamp.runtime.blas import blas_kernels; print(blas_kernels())"
    found = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, CORE_SETTING: core},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for core in ("Prescott", "Nehalem")
    ]
    assert found == ["Prescott", "Nehalem"]
