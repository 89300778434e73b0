"""MXNet's profiler tells what every node takes, in the order in which nodes run."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("mxnet", reason="its profiler tells")

from mxamp.runtime.executor import bind_environment
from mxamp.runtime.mxnet import import_mxnet
from mxamp.runtime.node_profile import typical

_PROGRAM = """
import numpy as np
from mxamp.runtime.mxnet import import_mxnet
from mxamp.runtime.executor import bind_environment
from mxamp.runtime.node_profile import forward_of, node_profiler
mx = import_mxnet()
data = mx.sym.Variable("data")
symbol = mx.sym.square(mx.sym.dot(mx.sym.abs(data), data))
def forward(side):
    return forward_of(symbol.bind(mx.cpu(), {"data": mx.nd.ones((side, side))}, grad_req="null"))
with bind_environment(fusion=True, bundles=False):
    small, large = forward(8), forward(600)
operators = ["abs", "dot", "square"]
taken = node_profiler().time(small, operators, 5)
assert taken.shape == (5, 3), taken
again = node_profiler().time(large, operators, 7)
assert again.shape == (7, 3), again
# A product of 600 columns is much more than what goes element by element, and than one of 8.
assert np.argmax(again.min(axis=0)) == 1, again
assert again[:, 1].min() > 10 * taken[:, 1].min() + 10, (taken, again)
for wrong in (forward(8), small):
    try:
        node_profiler().time(wrong, operators if wrong is not small else ["abs", "square", "dot"], 2)
    except RuntimeError as error:
        print(error)
"""


def test_every_pass_is_told_node_by_node() -> None:
    environment = {**os.environ, "MXNET_ENGINE_TYPE": "NaiveEngine", "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert process.returncode == 0, process.stderr
    # Neither a graph whose nodes run as one is taken for what it is not, nor one of other operators.
    refused = process.stdout.splitlines()
    assert len(refused) == 2
    assert "6 operators in 2 forward passes of a graph of 3" in refused[1]


def test_executors_are_unbundled_only_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    import_mxnet()
    monkeypatch.delenv("MXNET_EXEC_BULK_EXEC_INFERENCE", raising=False)
    with bind_environment(fusion=True, bundles=False):
        assert os.environ["MXNET_EXEC_BULK_EXEC_INFERENCE"] == "0"
    assert "MXNET_EXEC_BULK_EXEC_INFERENCE" not in os.environ
    monkeypatch.setenv("MXNET_EXEC_BULK_EXEC_INFERENCE", "1")
    with pytest.raises(KeyError), bind_environment(fusion=True, bundles=False):
        raise KeyError
    assert os.environ["MXNET_EXEC_BULK_EXEC_INFERENCE"] == "1"


def test_what_a_node_takes_is_told_between_two_ticks_of_the_clock() -> None:
    random = np.random.default_rng(0)
    true = np.array([3.3, 7.8, 120.0])
    began = random.uniform(0, 1, (400, 3))
    taken = np.floor(began + true) - np.floor(began)
    assert np.allclose(typical(taken), true, atol=0.1)


def test_passes_in_which_the_machine_did_something_else_do_not_count() -> None:
    taken = np.full((20, 2), 50.0)
    taken[3:8, 0] = 400.0
    assert typical(taken).tolist() == [50.0, 50.0]
