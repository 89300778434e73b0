"""The kernels' own threads: many callers, forks, the end of the process, floating-point modes."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import platform
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from mxamp.ops.kernels import Kernels, kernels

ROOT = Path(__file__).resolve().parent.parent.parent
LARGE = (1 << 18) + 5
"""Values that make work for several threads."""

UPWARD = 0x800
"""FE_UPWARD of x86."""


@pytest.fixture
def native() -> Kernels:
    found = kernels()
    if found is None:
        pytest.skip("the kernels are not built")
    return found


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=str(ROOT),
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )


def test_many_threads_may_call_at_once(native: Kernels) -> None:
    arrays = [np.random.default_rng(seed).standard_normal(LARGE).astype(np.float32) for seed in range(6)]
    results: dict[int, bool] = {}

    def work(number: int) -> None:
        values = arrays[number]
        expected = values.astype(np.float16).astype(np.float32)
        right = True
        for _ in range(5):
            right &= bool((native.round(values, "float16", threads=3) == expected).all())
            right &= native.observe(values, threads=3).largest == float(np.abs(values).max())
        results[number] = right

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(arrays))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == dict.fromkeys(range(len(arrays)), True)


def test_the_process_ends_although_threads_were_started(native: Kernels) -> None:
    completed = run_python(
        "import numpy as np\n"
        "from mxamp.ops.kernels import kernels\n"
        f"values = np.ones({LARGE}, np.float32)\n"
        "print(kernels().round(values, 'float16', threads=4).sum())\n"
    )
    assert completed.returncode == 0, completed.stdout
    assert completed.stdout.strip() == f"{float(LARGE)}"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_has_threads_of_its_own(native: Kernels) -> None:
    # In a process of its own: pytest's, with MXNet in it, is no place to fork.
    completed = run_python(
        "import os, warnings, numpy as np\n"
        "from mxamp.ops.kernels import kernels\n"
        # Python 3.12 warns of any fork beside threads: that it works is what is shown here.
        "warnings.simplefilter('ignore', DeprecationWarning)\n"
        f"values = np.full({LARGE}, 1.0001, np.float32)\n"
        "native = kernels()\n"
        "assert (native.round(values, 'bfloat16', threads=4) == 1).all()\n"
        "children = []\n"
        "for _ in range(4):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        right = (native.round(values, 'bfloat16', threads=4) == 1).all()\n"
        "        right &= native.observe(values, threads=4).count == values.size\n"
        "        os._exit(0 if right else 1)\n"
        "    children.append(child)\n"
        "statuses = [os.waitpid(child, 0)[1] for child in children]\n"
        "assert (native.round(values, 'bfloat16', threads=4) == 1).all()\n"
        "print(statuses)\n"
    )
    assert completed.stdout.strip() == "[0, 0, 0, 0]"


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or ctypes.util.find_library("m") is None,
    reason="sets the rounding mode of x86",
)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_callers_rounding_mode_changes_nothing_and_is_kept(native: Kernels, threads: int) -> None:
    mathematics = ctypes.CDLL(ctypes.util.find_library("m"))
    values = np.random.default_rng(0).standard_normal(LARGE).astype(np.float32)
    factors = np.float32(1.1) * np.ones((), np.float32)
    factors = np.asarray(factors)
    expected = (
        native.round(values, "float16", threads=threads),
        native.scale_cast(values, factors, "float16", threads=threads).view(np.uint16),
        native.widen(values.astype(np.float16), "float16", threads=threads),
    )
    narrow = values.astype(np.float16)
    assert mathematics.fegetround() == 0
    mathematics.fesetround(UPWARD)
    try:
        found = (
            native.round(values, "float16", threads=threads),
            native.scale_cast(values, factors, "float16", threads=threads).view(np.uint16),
            native.widen(narrow, "float16", threads=threads),
        )
        mode = mathematics.fegetround()
    finally:
        mathematics.fesetround(0)
    assert mode == UPWARD
    for one, other in zip(found, expected):
        np.testing.assert_array_equal(one, other)
