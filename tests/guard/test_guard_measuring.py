from __future__ import annotations

import numpy as np
import pytest

from mxamp.errors import OperatorError
from mxamp.guard.measuring import Processes
from mxamp.measuring.process import ProcessError
from mxamp.measuring.race import Race
from mxamp.model import Model, load
from tests.building import Net, parameters


@pytest.fixture
def model() -> Model:
    net = Net()
    graph = net.graph(net.conv(net.var("data"), "c0"))
    return Model(graph, parameters(net.params), {})


def test_the_process_gets_the_models_as_files_that_are_gone_afterwards(tmp_path, model):
    jobs = []

    def run(program, job, folder, *, timeout):
        jobs.append(job)
        for prefix in job["models"]:
            read = load(prefix)
            assert read.graph == model.graph
            np.testing.assert_array_equal(
                read.arg_params["c0_weight"].values(), model.arg_params["c0_weight"].values()
            )
        return {"seconds": [[2.0] * 6, [1.0] * 6]}

    found = Processes(tmp_path, "cpu", run)([model, model], ["a", "b"], 3.0)
    assert found == Race(((2.0,) * 6, (1.0,) * 6))
    assert (jobs[0]["labels"], jobs[0]["seconds"], jobs[0]["at_least"]) == (["a", "b"], 3.0, 6)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "error", [ProcessError("the process was ended by signal 11"), OSError("No space left on device")], ids=str
)
def test_a_crash_is_an_error_that_says_so(tmp_path, model, error):
    def run(*_, **__):
        raise error

    with pytest.raises(OperatorError, match=f"In a process of its own: {error}"):
        Processes(tmp_path, "cpu", run)([model], ["a"], 1.0)
    assert not list(tmp_path.iterdir())
