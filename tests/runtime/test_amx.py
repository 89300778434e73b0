"""AMX: asked for where MXNet was told to use it, and an error where the system refuses it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from mxamp.errors import DeviceError
from mxamp.measuring.machine import AMX_SETTING, cpu_flags
from mxamp.runtime import amx

CONVOLUTION = """
from mxamp.runtime.mxnet import import_mxnet

mx = import_mxnet()
data = mx.nd.amp_cast(mx.nd.ones((1, 64, 8, 8)), dtype="bfloat16")
weight = mx.nd.amp_cast(mx.nd.ones((64, 64, 1, 1)), dtype="bfloat16")
out = mx.nd.Convolution(data, weight, kernel=(1, 1), num_filter=64, no_bias=True)
print(mx.nd.amp_cast(out, dtype="float32").asnumpy().min(), out.shape)
"""


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    asked: list[int] = []
    monkeypatch.setattr(amx, "request", lambda feature: asked.append(feature) or 0)
    return asked


def test_a_process_that_does_not_use_amx_asks_for_nothing(
    monkeypatch: pytest.MonkeyPatch, requests: list[int]
) -> None:
    monkeypatch.setattr(amx, "asks_for_amx", lambda: False)
    amx.permit_amx()
    assert requests == []


def test_the_tiles_of_amx_are_asked_for(monkeypatch: pytest.MonkeyPatch, requests: list[int]) -> None:
    monkeypatch.setattr(amx, "asks_for_amx", lambda: True)
    amx.permit_amx()
    assert requests == [18]


def test_a_refusal_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amx, "asks_for_amx", lambda: True)
    monkeypatch.setattr(amx, "request", lambda feature: errno.EOPNOTSUPP)
    with pytest.raises(DeviceError, match=r"does not permit it: .*not supported.*Unset DNNL_MAX_CPU_ISA"):
        amx.permit_amx()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system call is Linux's")
def test_the_system_answers_a_request_for_what_does_not_exist_with_an_error() -> None:
    assert amx.request(10_000) != 0


def test_mxnet_computes_with_amx_where_the_cpu_has_it() -> None:
    pytest.importorskip("mxnet", reason="MXNet computes")
    if "amx_bf16" not in (cpu_flags() or ()):
        pytest.skip("this CPU has no AMX")
    variable, value = AMX_SETTING
    done = subprocess.run(
        [sys.executable, "-c", CONVOLUTION],
        env={**os.environ, variable: value, "DNNL_VERBOSE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "64.0 (1, 64, 8, 8)" in done.stdout
    assert "Intel AMX" in done.stdout + done.stderr
    assert "avx512_core_amx_bf16" in done.stdout + done.stderr
