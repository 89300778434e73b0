"""``bf16`` and ``fp16`` are the dtypes they mean wherever a user gives one."""

from __future__ import annotations

import pytest

import mxamp
from mxamp.errors import OperatorError
from mxamp.graph.infer import infer_dtypes, variable_dtypes
from mxamp.targets import resolve_target
from tests.building import Net, parameters


def converted(dtype: str, **options: object) -> mxamp.Model:
    net = Net()
    graph = net.graph(net.op("exp", net.conv(net.var("data"), "conv0"), name="exp0"))
    return mxamp.convert_model(graph, parameters(net.params), {}, dtype, **options)


@pytest.mark.parametrize(("alias", "dtype"), [("bf16", "bfloat16"), ("fp16", "float16")])
def test_a_conversion_to_an_alias_is_that_to_the_dtype(alias: str, dtype: str) -> None:
    own, other = converted(alias), converted(dtype)
    assert own.symbol_json() == other.symbol_json()
    assert own.report == other.report
    assert converted(alias, io_dtype=alias).symbol_json() == converted(dtype, io_dtype=dtype).symbol_json()


def test_policies_and_targets_take_aliases() -> None:
    assert mxamp.Policy.default("fp16") == mxamp.Policy.default("float16")
    text = (
        mxamp.Policy.default("bfloat16")
        .to_toml()
        .replace('target_dtype = "bfloat16"', 'target_dtype = "bf16"')
    )
    assert mxamp.Policy.from_toml(text) == mxamp.Policy.default("bfloat16")
    low = mxamp.DType.parse("bf16")
    assert resolve_target("cpu-bf16", low).name == "cpu-bf16"


def test_a_file_with_an_alias_is_refused_as_mxnet_would() -> None:
    net = Net()
    graph = net.graph(net.op("amp_cast", net.var("data"), name="cast0", dtype="bf16"))
    with pytest.raises(OperatorError, match="bf16"):
        infer_dtypes(graph, variable_dtypes(graph, {}))
