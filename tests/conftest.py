"""Settings that all tests share.

Where a test needs something that may be missing, it says so itself, in one way each:

- MXNet or GluonCV: ``mx = pytest.importorskip("mxnet")``, at the top of a module that has no other tests, or
  as the first line of a test or fixture. It comes before the imports that need MXNet (``mxamp.runtime``).
  Skips where MXNet is not installed; an MXNet that is installed and does not load is an error. GluonCV's
  tests are also marked ``zoo``, dask's ``dask``.
- a GPU: ``@pytest.mark.gpu``. Skips where MXNet sees no GPU.
- a browser: ``@pytest.mark.browser``. Skips where playwright or Chromium is missing (``make test-browser``
  installs the first; the second is your system's). ``make test`` leaves these out.
- bfloat16 in MXNet: nothing. On a CPU without AVX-512 MXNet has none, and a test that runs into that skips
  (:func:`pytest_runtest_makereport`). One that would find something else has ``@needs_bfloat16``.
- time or the network: ``@pytest.mark.slow``, ``@pytest.mark.network``. ``make test`` leaves them out.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib.util
import os
from pathlib import Path
from typing import Any, Callable, Generator


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Each pytest-xdist worker would start a thread a core, and together they would slow each other down. OpenMP
# and OpenBLAS read these when they are loaded, so this comes before NumPy and MXNet.
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
if _WORKERS > 1:
    for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(_variable, str(max(1, cores() // _WORKERS)))

import hypothesis
import pytest

# No deadline: MXNet's first call of an operator takes a hundred times as long as the next.
_EXAMPLES_MAY_BE_SLOW = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile(
    "ci", deadline=None, derandomize=True, print_blob=True, suppress_health_check=_EXAMPLES_MAY_BE_SLOW
)
# To look for new counterexamples: HYPOTHESIS_PROFILE=explore make test
hypothesis.settings.register_profile(
    "explore", deadline=None, max_examples=1000, print_blob=True, suppress_health_check=_EXAMPLES_MAY_BE_SLOW
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@functools.lru_cache(maxsize=None)
def missing_gpu() -> str:
    """Say why a test that needs a GPU cannot run, or return nothing where it can."""
    if importlib.util.find_spec("mxnet") is None:
        return "needs a GPU, and MXNet is not installed"
    import mxnet as mx

    try:
        count = mx.context.num_gpus()
    except mx.MXNetError as error:
        return f"needs a GPU, and MXNet cannot ask for one: {str(error).splitlines()[0]}"
    return "" if count else "needs a GPU, and MXNet sees none"


@pytest.fixture(autouse=True)
def any_target_suits_this_machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test see the same warnings on every CPU; one that asks for ``a_cpu`` gets those of that."""
    if "a_cpu" in request.fixturenames:
        return
    from tests.machines import suit_every_target

    suit_every_target(monkeypatch)


@pytest.fixture
def a_cpu(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make the system describe another CPU than the one that is here."""
    from mxamp.measuring import machine

    def describe(
        *flags: str, vendor: str = "GenuineIntel", family: int = 6, told_to_use_amx: bool = False
    ) -> None:
        path = Path(tmp_path_factory.mktemp("cpu")) / "cpuinfo"
        about = f"vendor_id : {vendor}\ncpu family : {family}\nmodel name : A CPU\n"
        path.write_text(f"{about}flags : {' '.join(flags)}\n", "utf-8")
        monkeypatch.setattr(machine, "CPU_INFO", path)
        variable, value = machine.AMX_SETTING
        if told_to_use_amx:
            monkeypatch.setenv(variable, value)
        else:
            monkeypatch.delenv(variable, raising=False)

    return describe


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip the tests whose marker asks for what is not here."""
    if item.get_closest_marker("gpu") and missing_gpu():
        pytest.skip(missing_gpu())
    for marker, package in (("zoo", "gluoncv"), ("dask", "dask")):
        if item.get_closest_marker(marker) and importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}, which is not installed")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Let what failed for want of AVX-512 count as skipped, with the reason."""
    report = (yield).get_result()
    if report.failed:
        from tests.machines import why_no_bfloat16

        told = getattr(call.excinfo.value, "stderr", None) if call.excinfo else None  # by another process
        reason = why_no_bfloat16("\n".join([report.longreprtext, str(told), *dict(report.sections).values()]))
        if reason:
            path, line, _ = item.location
            report.outcome, report.longrepr = "skipped", (path, line or 0, f"Skipped: {reason}")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Give back what a network of the zoo took: a worker would keep several gigabytes that nobody uses."""
    if item.get_closest_marker("zoo"):
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)  # glibc keeps what was freed
