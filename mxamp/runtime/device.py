"""Devices: which there are, and which can run which dtype."""

from __future__ import annotations

import re
from typing import Any, Sequence

from mxamp.dtypes import DType
from mxamp.errors import DeviceError, nearest_names
from mxamp.measuring.machine import AVX512, unmet_need
from mxamp.runtime.mxnet import import_mxnet

_CONTEXT = re.compile(r"\s*([A-Za-z_]+)\s*(?::\s*(\d+)|\(\s*(\d+)\s*\))?\s*")
"""``gpu``, ``gpu:1``, ``gpu(1)``."""


def gpu_count() -> int:
    """Return how many GPUs MXNet can use; 0 where it cannot even ask."""
    mx = import_mxnet()
    try:
        return int(mx.context.num_gpus())
    except mx.base.MXNetError:
        # A CUDA build of MXNet on a machine without a driver.
        return 0


def parse_context(ctx: Any) -> Any:
    """Return an ``mx.Context`` for a context or its name, and check that the device is there.

    Parameters
    ----------
    ctx
        An ``mx.Context``, or ``"cpu"``, ``"gpu"``, ``"gpu:1"``, ``"gpu(1)"``.

    Raises
    ------
    DeviceError
        When it is no device, or one that this machine does not have.
    """
    mx = import_mxnet()
    if isinstance(ctx, str):
        kinds = list(mx.Context.devstr2type)
        found = _CONTEXT.fullmatch(ctx)
        kind = found.group(1).lower() if found else ctx
        if found is None or kind not in kinds:
            raise DeviceError(
                f"{ctx!r} is not a device.{nearest_names(kind, kinds)} Write cpu, gpu, or gpu:1 for the "
                "second GPU."
            )
        ctx = mx.Context(kind, int(found.group(2) or found.group(3) or 0))
    if not isinstance(ctx, mx.Context):
        raise DeviceError(
            f"A device must be an mx.Context such as mx.cpu() or mx.gpu(0), or its name, not {ctx!r}."
        )
    if ctx.device_type == "gpu":
        count = gpu_count()
        if ctx.device_id >= count:
            if not count:
                raise DeviceError(
                    f"There is no {ctx}: MXNet {mx.__version__} sees no GPU here. Use the CPU "
                    "(ctx=mx.cpu()), or a machine with a GPU and a CUDA build of MXNet (pip install "
                    "mxnet-cu112)."
                )
            last = f"gpu(0) to gpu({count - 1})" if count > 1 else "gpu(0) alone"
            raise DeviceError(f"There is no {ctx}: MXNet sees {last}.")
    return ctx


def check_device_runs(ctx: Any, dtype: DType) -> None:
    """Check that a device can execute a model converted to ``dtype``.

    Raises
    ------
    DeviceError
        For FP16 on a CPU, and BF16 on a GPU or a CPU without AVX-512; the message gives the way out.
    """
    _refuse_bfloat16_on_gpu(ctx, dtype)
    if dtype is DType.BFLOAT16 and ctx.device_type != "gpu":
        missing = unmet_need((AVX512,))
        if missing is not None:
            raise DeviceError(
                f"A bfloat16 model cannot run on {ctx}: MXNet 1.9.1 computes in bfloat16 on {missing}. Run "
                "it on such a CPU, convert for this one with the target 'auto' (--target auto), which keeps "
                "the model float32 and prepares its graph, or emulate bfloat16 in an FP32 graph."
            )
    if dtype is DType.FLOAT16 and ctx.device_type != "gpu":
        raise DeviceError(
            f"A float16 model cannot run on {ctx}: MXNet 1.9.1 has no FP16 convolution or matrix product on "
            "CPUs. Run it on a GPU (ctx=mx.gpu(0)), convert to bfloat16 instead, which CPUs run, or emulate "
            "float16 in an FP32 graph."
        )


def resolve_contexts(ctx: Any, dtype: DType, default: Sequence[Any]) -> list[Any]:
    """Return the devices on which a converted block will hold its parameters.

    Parameters
    ----------
    ctx
        A device, or a list of devices; None for a CPU with bfloat16, and ``default`` otherwise.
    dtype
        The dtype converted to.
    default
        The devices of the block before conversion.

    Raises
    ------
    DeviceError
        When a device is not there, is named twice, or is a GPU and the dtype bfloat16. FP16 on a CPU is no
        error here: the block can be saved and run elsewhere.
    """
    mx = import_mxnet()
    if ctx is None:
        given = [mx.cpu()] if dtype is DType.BFLOAT16 else list(default)
    elif isinstance(ctx, (list, tuple)):
        given = list(ctx)
        if not given:
            raise DeviceError("ctx is an empty list; give at least one device, or None for the default.")
    else:
        given = [ctx]
    contexts = [parse_context(one) for one in given]
    for position, context in enumerate(contexts):
        _refuse_bfloat16_on_gpu(context, dtype)
        if context in contexts[:position]:
            raise DeviceError(
                f"ctx names {context} twice; a block holds one copy of its parameters a device."
            )
    return contexts


def cpu_float16_note(contexts: Sequence[Any], dtype: DType) -> str | None:
    """Return the warning for a float16 model on a CPU, or None."""
    on_cpu = next((context for context in contexts if context.device_type != "gpu"), None)
    if dtype is not DType.FLOAT16 or on_cpu is None:
        return None
    return (
        f"Converting to float16 on {on_cpu}: MXNet 1.9.1 has no FP16 convolution on CPUs, so the result "
        "cannot run here. It can be saved and run on a GPU. To run on the CPU convert to bfloat16, or "
        "emulate float16."
    )


def _refuse_bfloat16_on_gpu(ctx: Any, dtype: DType) -> None:
    if dtype is DType.BFLOAT16 and ctx.device_type == "gpu":
        raise DeviceError(
            f"A bfloat16 model cannot run on {ctx}: MXNet 1.9.1 runs BF16 on CPUs alone. Convert to float16 "
            "for a GPU, or use ctx=mx.cpu()."
        )
