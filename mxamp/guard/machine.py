"""What the guard needs to know of the machine: whether it can measure here, and what to call it."""

from __future__ import annotations

from typing import Iterable, Mapping

from mxamp.compare.inputs import input_names
from mxamp.compare.sample_inputs import sample_inputs
from mxamp.errors import DataError, MxnetMissingError
from mxamp.guard.options import Guard
from mxamp.measuring.machine import (
    AMX_SETTING,
    available_memory,
    cpu_and_threads,
    leaves_amx_unused,
    unmet_need,
)
from mxamp.messages.arguments import argument
from mxamp.messages.installation import why_no_mxnet
from mxamp.model import Model
from mxamp.report.table import format_bytes
from mxamp.targets import MXNET, Target

COPIES = 6
"""How many times the parameters of the float32 model are in memory at the worst: four models that race, one
that is being bound, and the values of a file."""

_SHARE = 0.5
"""The share of the memory that is free which these may take; the rest is for activations, and for others."""

_USE_AMX = (
    "This CPU has AMX, which computes bfloat16 several times faster; MXNet uses it where "
    f"{'='.join(AMX_SETTING)} is set (docs/targets.md)."
)
"""What helps where bfloat16 does not pay."""


def why_not_here(
    guard: Guard, model: Model, target: Target, input_shapes: Mapping[str, Iterable[int]] | None
) -> str | None:
    """Return why a model cannot be measured on this machine; None where it can.

    Parameters
    ----------
    guard
        What the user said of it.
    model
        The FP32 model. Parameters that lie in a file are not read.
    target
        What is converted for.
    input_shapes
        Input name -> shape, as far as the user gave them.
    """
    if guard.measure is not None:
        return None
    if target.runtime != MXNET:
        where = target.backend.label
        return f"it would be in MXNet, and {target.name} is for {where}; mxamp race measures there"
    if not input_names(model):
        return "the model has no inputs"
    missing = why_no_mxnet()  # before advice that would need it
    if missing is not None:
        return missing.rstrip(".")
    if guard.data is None:
        if input_shapes is None:
            return f"the shapes of the inputs are not known; give {argument('input_shapes')}"
        try:
            sample_inputs(model, {name: tuple(shape) for name, shape in input_shapes.items()})
        except DataError as error:
            return str(error).rstrip(".")
    problem = _device_problem(target)
    if problem is not None:
        return problem
    needed = COPIES * model.parameter_bytes
    available = available_memory()
    if available is not None and needed > _SHARE * available:
        return (
            f"that would take {format_bytes(needed)} of memory ({COPIES} times the parameters), more than "
            f"half of the {format_bytes(available)} that are available"
        )
    return None


def _device_problem(target: Target) -> str | None:
    from mxamp.runtime.device import gpu_count
    from mxamp.runtime.mxnet import import_mxnet

    try:
        import_mxnet()
    except MxnetMissingError as error:
        return str(error).split(". ")[0].rstrip(".")
    if target.device == "gpu":
        if gpu_count():
            return None
        return f"{target.dtype} models run on GPUs alone, and MXNet sees none here"
    missing = unmet_need(target.needs)
    if missing is not None:
        return f"the target {target.name} is for {missing}; target auto is the one for this machine"
    return None


def describe_machine(target: Target, *, is_measured_here: bool = True) -> Mapping[str, str]:
    """Return what the measurement holds for: the CPU and its threads, the device, MXNet's version."""
    if not is_measured_here:
        return {}
    from mxamp.runtime.mxnet import import_mxnet

    cpu, threads = cpu_and_threads()
    return {
        **({"advice": _USE_AMX} if target.device == "cpu" and leaves_amx_unused() else {}),
        "cpu": cpu,
        "threads": threads,
        "device": "gpu(0)" if target.device == "gpu" else "cpu(0)",
        "mxnet": str(import_mxnet().__version__),
    }
