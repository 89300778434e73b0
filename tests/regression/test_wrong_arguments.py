"""Whatever is passed for an argument, the answer is a result or an error of ours that says what is wrong.

Never a ``TypeError`` from the depths, an ``AssertionError``, or an option that is silently ignored.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

import mxamp
from mxamp.errors import (
    DataError,
    ExportError,
    ModelFileNotFoundError,
    ParamsError,
    PolicyError,
    ReportError,
    TargetError,
)
from mxamp.policy import Policy
from tests.building import F16, Net, capable
from tests.regression.junk import fails, junk

_NET = Net()
GRAPH = _NET.graph(_NET.fc(_NET.op("exp", _NET.fc(_NET.var("data"), "first"), name="e"), "second"))
ARGS = dict(_NET.params)


def convert(**options: Any) -> mxamp.Model:
    return mxamp.convert_model(GRAPH, ARGS, {}, **{"target": capable(F16), **options})


CALLS: dict[str, Callable[[Any, Path], Any]] = {
    "sym": lambda value, _: mxamp.convert_model(value, ARGS, {}),
    "args": lambda value, _: mxamp.convert_model(GRAPH, value, {}),
    "auxs": lambda value, _: mxamp.convert_model(GRAPH, ARGS, value),
    "one array": lambda value, _: mxamp.convert_model(GRAPH, {**ARGS, "first_weight": value}, {}),
    **{
        option: lambda value, _, option=option: convert(**{option: value})
        for option in (
            "target_dtype",
            "policy",
            "target",
            "exclude",
            "color",
            "io_dtype",
            "cast_op",
            "fold_batch_norm",
            "saturate",
            "rewrite_masks",
            "prepare",
            "target_dtype_ops",
            "fp32_ops",
            "widest_dtype_ops",
            "conditional_fp32_ops",
            "excluded_sym_names",
            "cast_optional_params",
        )
    },
    "one io_dtype": lambda value, _: convert(io_dtype={"data": value}),
    "data_names": lambda value, _: mxamp.convert_symbol(GRAPH, data_names=value),
    "convert_symbol casts": lambda value, _: mxamp.convert_symbol(GRAPH, cast_optional_params=value),
    "load": lambda value, _: mxamp.load(value),
    "load epoch": lambda value, folder: mxamp.load(folder / "net", value),
    "save": lambda value, _: convert().save(value),
    "save epoch": lambda value, folder: convert().save(folder / "net", value),
    "dtype": lambda value, _: mxamp.DType.parse(value),
    "color name": lambda value, _: mxamp.Color.parse(value),
    "node of the report": lambda value, _: convert().report.node(value),
    "report": lambda value, _: mxamp.Report.from_json(value),
    "built-in target": lambda value, _: mxamp.Target.builtin(value),
    "policy dtype": lambda value, _: Policy.default(value),
    "new policy": lambda value, _: Policy(value, value),
    "policy file": lambda value, _: Policy.load(value),
    "policy text": lambda value, _: Policy.from_toml(value),
    "policy destination": lambda value, _: Policy.default("float16").save(value),
    "policy rules": lambda value, _: Policy.default("float16").with_rules(value),
    "policy operators": lambda value, _: Policy.default("float16").with_operators("red", value, "why"),
    "policy color": lambda value, _: Policy.default("float16").with_operators(value, ["exp"], "why"),
    "policy function": lambda value, _: convert(policy=Policy.default("float16").with_color_function(value)),
    **{
        f"excluding {group}": lambda value, _, group=group: convert(
            policy=Policy.default("float16").excluding(**{group: value})
        )
        for group in ("names", "globs", "patterns", "operators")
    },
}


@pytest.mark.filterwarnings("ignore::mxamp.errors.MxampWarning")
@pytest.mark.parametrize("call", CALLS)
def test_what_makes_no_sense_is_an_error_of_ours(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if call in ("sym", "one array"):
        pytest.importorskip("mxnet", reason="says what an object of MXNet would be")
    monkeypatch.chdir(tmp_path)
    for value in junk():
        try:
            CALLS[call](value, tmp_path)
        except mxamp.MxampError as error:
            assert len(str(error)) > 20  # noqa: PT017 - which error it is depends on the value
        except Exception as error:
            pytest.fail(f"{call}={value!r}: {type(error).__name__}: {error}")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"policy": 3}, PolicyError, "policy must be a Policy or the path of a TOML file, not int"),
        ({"policy": "."}, ModelFileNotFoundError, "folder, not a policy file"),
        ({"target": ["cuda-fp16"]}, TargetError, "path of a JSON file, 'auto' or a Target, not list"),
        ({"exclude": 3}, PolicyError, "exclude must be a list of names"),
        ({"exclude": [b"first"]}, PolicyError, "which are strings"),
        ({"color": "red"}, PolicyError, "function from a NodeView to a Color or None, not str"),
        ({"fold_batch_norm": "no"}, PolicyError, "fold_batch_norm must be True or False, not 'no'"),
        ({"prepare": "relu"}, PolicyError, "prepare must be a list of passes, not 'relu'"),
        ({"prepare": ["reluu"]}, PolicyError, "which is no pass. Did you mean 'relu'?"),
        ({"cast_optional_params": None}, PolicyError, "cast_optional_params must be True or False"),
        ({"io_dtype": 16}, PolicyError, "io_dtype must be 'float32', 'low', or a mapping"),
        ({"io_dtype": "bfloat16"}, PolicyError, "io_dtype is bfloat16, but a model converted to float16"),
    ],
)
def test_the_message_says_what_would_be_right(options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        convert(**options)


def test_an_error_in_a_color_function_names_the_function_and_the_node() -> None:
    with pytest.raises(
        PolicyError, match=r"'fails' failed at node 'first' .*ZeroDivisionError: by zero"
    ) as info:
        convert(color=fails)
    assert isinstance(info.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("kind", [list, tuple, set, iter, np.array, dict.fromkeys])
def test_names_may_come_in_any_collection(kind: Any) -> None:
    """A generator can be read once: what was read to check it must not be lost."""
    for option, value in (("exclude", "first"), ("excluded_sym_names", "first"), ("exclude", "fir*")):
        report = convert(**{option: kind([value])}).report
        assert report is not None
        assert {node.name: node.compute for node in report.nodes} == {
            "first": "float32",
            "e": "float32",
            "second": "float16",
        }
    report = convert(policy=Policy.default("float16").excluding(names=kind(["first"]))).report
    assert report is not None
    assert report.low_nodes == 1
    report = convert(target_dtype_ops=kind(["exp"])).report
    assert report is not None
    assert {node.color for node in report.nodes if node.op == "FullyConnected"} == {"gray"}


def test_conditions_may_come_in_a_generator() -> None:
    given = (item for item in [("FullyConnected", "num_hidden", ["4"])])
    report = convert(conditional_fp32_ops=given).report
    assert report is not None
    assert report.low_nodes == 0


def test_no_dtype_is_no_float64() -> None:
    """NumPy reads None as float64."""
    with pytest.raises(TargetError, match="None is not a dtype"):
        mxamp.DType.parse(None)


def test_an_array_of_a_dtype_mxnet_lacks_is_named() -> None:
    with pytest.raises(ParamsError, match="'first_weight' is an array of complex64"):
        mxamp.convert_model(GRAPH, {**ARGS, "first_weight": np.zeros((4, 4), np.complex64)}, {})


def test_names_of_parameters_are_strings() -> None:
    with pytest.raises(ParamsError, match="args must map names, which are strings"):
        mxamp.convert_model(GRAPH, {**ARGS, 3: np.zeros(3, np.float32)}, {})


def test_a_prefix_that_is_no_path_writes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``None`` would make ``None-symbol.json``."""
    monkeypatch.chdir(tmp_path)
    for prefix in (None, 3, b"net", "a\0b"):
        with pytest.raises(ExportError, match="prefix must be a path"):
            convert().save(prefix)
    assert not list(tmp_path.iterdir())


def test_a_text_that_is_no_report_is_refused() -> None:
    document = json.loads(convert().report.to_json())
    del document["nodes"]
    for text in ("", "[]", "{}", json.dumps(document), json.dumps({**document, "nodes": [3]})):
        with pytest.raises(ReportError, match="no report"):
            mxamp.Report.from_json(text)


def test_sizes_beyond_those_of_mxnet_are_refused() -> None:
    pytest.importorskip("mxnet")
    for shape in ((2**70, 4), (2, -4), (2, 4.5), 3, "24"):
        with pytest.raises(DataError, match="sequence of sizes"):
            convert(input_shapes={"data": shape})
    convert(input_shapes=(2, 4))  # the shape of the only input
