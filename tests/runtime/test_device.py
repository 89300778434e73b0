from __future__ import annotations

import pytest

mx = pytest.importorskip("mxnet")

from mxamp.dtypes import DType
from mxamp.errors import DeviceError
from mxamp.runtime import device
from mxamp.runtime.device import (
    check_device_runs,
    cpu_float16_note,
    gpu_count,
    parse_context,
    resolve_contexts,
)


@pytest.fixture
def gpus(monkeypatch):
    """Pretend that there are so many GPUs."""

    def pretend(count):
        monkeypatch.setattr(device, "gpu_count", lambda: count)

    return pretend


def test_gpu_count_agrees_with_mxnet():
    assert gpu_count() == mx.context.num_gpus()


def test_a_cuda_build_without_a_driver_has_no_gpus(monkeypatch):
    def fail():
        raise mx.base.MXNetError("CUDA driver version is insufficient for CUDA runtime version")

    monkeypatch.setattr(mx.context, "num_gpus", fail)
    assert gpu_count() == 0


@pytest.mark.parametrize(
    ("text", "kind", "number"),
    [
        ("cpu", "cpu", 0),
        ("CPU", "cpu", 0),
        ("cpu:1", "cpu", 1),
        ("gpu", "gpu", 0),
        ("gpu:1", "gpu", 1),
        ("gpu(1)", "gpu", 1),
    ],
)
def test_devices_are_read_from_names(gpus, text, kind, number):
    gpus(2)
    assert parse_context(text) == mx.Context(kind, number)


@pytest.mark.parametrize("text", ["gpux", "", "cuda:0", "gpu:x", "gpu(0", "gpu:0)", "0"])
def test_other_names_are_refused(gpus, text):
    gpus(2)
    with pytest.raises(DeviceError, match="is not a device"):
        parse_context(text)


def test_a_number_is_no_device():
    with pytest.raises(DeviceError, match=r"must be an mx.Context .* not 0"):
        parse_context(0)


def test_a_gpu_that_is_not_there_is_refused(gpus):
    gpus(0)
    with pytest.raises(DeviceError, match=r"There is no gpu\(0\): .* sees no GPU here. Use the CPU"):
        parse_context(mx.gpu(0))
    gpus(1)
    with pytest.raises(DeviceError, match=r"There is no gpu\(3\): MXNet sees gpu\(0\) alone"):
        parse_context("gpu:3")


def test_float16_on_a_cpu_is_refused_with_the_ways_out():
    with pytest.raises(DeviceError, match=r"float16 model cannot run on cpu\(0\)") as caught:
        check_device_runs(mx.cpu(), DType.FLOAT16)
    for way in ("GPU", "bfloat16", "emulate"):
        assert way in str(caught.value)


def test_bfloat16_on_a_cpu_without_avx512_is_refused_with_the_ways_out(a_cpu):
    a_cpu("avx2")
    with pytest.raises(
        DeviceError, match=r"bfloat16 model cannot run on cpu\(0\).*CPUs with AVX-512"
    ) as caught:
        check_device_runs(mx.cpu(), DType.BFLOAT16)
    for way in ("on such a CPU", "--target auto", "emulate"):
        assert way in str(caught.value)
    check_device_runs(mx.cpu(), DType.FLOAT32)


def test_bfloat16_runs_on_cpus_alone(a_cpu):
    a_cpu("avx2", "avx512bw")
    check_device_runs(mx.cpu(), DType.BFLOAT16)
    with pytest.raises(DeviceError, match=r"BF16 on CPUs alone\. Convert to float16 for a GPU"):
        check_device_runs(mx.gpu(0), DType.BFLOAT16)


def test_fp32_runs_anywhere():
    check_device_runs(mx.cpu(), DType.FLOAT32)
    check_device_runs(mx.gpu(0), DType.FLOAT32)


def test_converted_blocks_go_where_they_can_run(gpus):
    gpus(2)
    default = [mx.gpu(0), mx.gpu(1)]
    assert resolve_contexts(None, DType.BFLOAT16, default) == [mx.cpu()]
    assert resolve_contexts(None, DType.FLOAT16, default) == default
    assert resolve_contexts("gpu:1", DType.FLOAT16, default) == [mx.gpu(1)]
    assert resolve_contexts([mx.cpu(0), "cpu:1"], DType.BFLOAT16, default) == [mx.cpu(0), mx.cpu(1)]


def test_bad_device_lists_are_refused(gpus):
    gpus(1)
    with pytest.raises(DeviceError, match="empty list"):
        resolve_contexts([], DType.FLOAT16, [])
    with pytest.raises(DeviceError, match=r"names cpu\(0\) twice"):
        resolve_contexts(["cpu", mx.cpu(0)], DType.BFLOAT16, [])
    with pytest.raises(DeviceError, match="BF16 on CPUs alone"):
        resolve_contexts(["cpu", "gpu"], DType.BFLOAT16, [])


def test_only_float16_on_a_cpu_is_worth_a_warning():
    assert cpu_float16_note([mx.cpu()], DType.BFLOAT16) is None
    assert cpu_float16_note([mx.gpu(0)], DType.FLOAT16) is None
    note = cpu_float16_note([mx.gpu(0), mx.cpu()], DType.FLOAT16)
    assert note is not None
    assert "saved and run on a GPU" in note
    assert "bfloat16" in note
