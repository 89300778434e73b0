"""The probe's process: takes units of work, one line each, and answers with a line a job.

It is started by :mod:`mxamp.probe.workers` and may die at any moment; everything it has answered before
counts. Every line is flushed before the next call into MXNet.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from typing import Any, TextIO

from mxamp.dtypes import DType
from mxamp.errors import DeviceError, MxampError
from mxamp.measuring.machine import compute_capability
from mxamp.probe.case import Dims
from mxamp.probe.cases import all_cases
from mxamp.probe.jobs import TIME, jobs_of
from mxamp.runtime.mxnet import import_mxnet


def main() -> int:
    """Answer until standard input ends; the first line says on which device and in which dtype."""
    # MXNet's C++ code prints on standard output; the answers keep a descriptor of their own.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests = sys.stdin
    settings = json.loads(requests.readline())
    try:
        runner, about = _start(settings)
    except MxampError as error:
        _tell(answers, {"refused": type(error).__name__, "message": str(error)})
        return 0
    _tell(answers, {"ready": about})
    gc.freeze()  # what is there by now stays: collecting after each job must not look at all of MXNet
    for line in requests:
        request = json.loads(line)
        _work(runner, request["case"], request["kind"], answers)
        _tell(answers, {"done": True})
    return 0


def _start(settings: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Open the device and return what runs there, with the versions.

    Raises
    ------
    MxnetMissingError, DeviceError
        When that cannot be done.
    """
    from mxamp.runtime.device import check_device_runs, parse_context
    from mxamp.runtime.probe_cases import Runner, telling_line

    mx = import_mxnet()
    dtype = DType.parse(settings["dtype"])
    ctx = parse_context(settings["ctx"])
    check_device_runs(ctx, dtype)
    try:
        mx.nd.ones((1, 16), ctx=ctx).asnumpy()
    except mx.base.MXNetError as error:
        raise DeviceError(
            f"MXNet {mx.__version__} sees {ctx} and cannot run on it: {telling_line(str(error))}. Its wheels "
            "hold machine code for compute capability 5.0 to 8.6 alone; for a newer GPU MXNet must be built "
            "for it."
        ) from error
    features = mx.runtime.Features()
    about = {
        "mxnet": mx.__version__,
        "onednn": bool(features.is_enabled("MKLDNN")),
        "device": str(ctx),
    }
    capability = compute_capability() if ctx.device_type == "gpu" else None
    if capability is not None:
        about["compute_capability"] = f"{capability[0]}.{capability[1]}"
    return Runner(ctx, dtype, int(settings["rounds"])), about


def _work(runner: Any, name: str, kind: str, answers: TextIO) -> None:
    from mxamp.runtime.probe_cases import telling_line

    mx = import_mxnet()
    case = all_cases()[name]
    for index, job in enumerate(jobs_of(case, kind)):

        def phase(what: str, index: int = index) -> None:
            _tell(answers, {"index": index, "begins": what})

        dims = Dims(*job["dims"])
        if kind == TIME:
            outcome = runner.time(case, dims, phase)
        else:
            outcome = runner.check(case, dims, job["feed"], phase)
        # Freeing the arrays here lets glibc's heap check blame the job that overran them.
        gc.collect()
        try:
            mx.nd.waitall()
        except mx.base.MXNetError as error:  # in the background, unseen where results were read
            if outcome is not None:
                outcome = None if kind == TIME else {"outcome": "raises", "note": telling_line(str(error))}
        if outcome is not None:
            _tell(answers, {"index": index, "job": {**job, **outcome}})


def _tell(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    sys.exit(main())
