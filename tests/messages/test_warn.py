"""Warnings point at the line of the user's that called mxamp."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

import mxamp
from mxamp.errors import MxampWarning
from mxamp.params.parameter import ArrayParameter
from tests.building import Net


@pytest.mark.parametrize("call", [mxamp.convert_model, mxamp.emulate])
def test_a_warning_points_at_whoever_called_the_front_door(call: Callable[..., Any]) -> None:
    net = Net()
    graph = net.graph(net.op("exp", net.var("data"), name="grows"))
    with pytest.warns(MxampWarning, match="Nothing was converted") as caught:
        call(graph, {}, {}, "float16")
    assert [warning.filename for warning in caught] == [__file__]


def test_a_warning_while_parameters_are_read_points_there_too() -> None:
    net = Net()
    graph = net.graph(net.fc(net.var("data"), "layer"))
    params = {name: ArrayParameter(np.full_like(array, np.nan)) for name, array in net.params.items()}
    with pytest.warns(MxampWarning, match="NaN") as caught:
        mxamp.convert_model(graph, params, {}, "bfloat16")
    assert {warning.filename for warning in caught} == {__file__}
