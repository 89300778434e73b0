"""Every argument of every public function, given what it cannot be: a result, or an error of ours.

``test_wrong_arguments.py`` has what conversion and policies take. Here are MXNet's objects among the values,
paths that no file system takes, and the functions that run models. The arguments come from the signatures, so
that one that is added is asked too.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="half of what is asked runs models")

import mxamp
from mxamp.guard import Guard
from mxamp.model import Model
from mxamp.passes import Emulation
from mxamp.profile import Profiling
from tests.building import F16, Net, capable
from tests.regression.junk import junk as plain_junk

pytestmark = [
    pytest.mark.filterwarnings("ignore::mxamp.errors.MxampWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

_NET = Net()
GRAPH = _NET.graph(_NET.fc(_NET.op("exp", _NET.fc(_NET.var("data"), "first"), name="e"), "second"))
ARGS = dict(_NET.params)
DATA = np.ones((2, 4), np.float32)
LABELS = np.array([0, 1])
SHAPES = {"data": (2, 4)}
MODEL = Model.of(GRAPH, ARGS, {})
EMULATED = mxamp.emulate(GRAPH, ARGS, {})


class Awkward:
    """Answers nothing that Python may ask."""

    def __repr__(self) -> str:
        return "<awkward>"

    def __eq__(self, other: object) -> Any:
        raise ZeroDivisionError("by zero")

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise ZeroDivisionError("by zero")

    def __iter__(self) -> Any:
        raise ZeroDivisionError("by zero")


class Empty(mx.gluon.HybridBlock):  # type: ignore[misc]
    """Returns nothing."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803
        return ()


def block() -> Any:
    net = mx.gluon.nn.Dense(3, in_units=4)
    net.initialize()
    return net


def junk() -> list[Any]:
    """Return things that are an argument of nothing."""
    return [
        *plain_junk(),
        None,
        "x" * 5000,
        "x/" * 5000,
        "\ud800",
        "a\ud800/b",
        "n\0t",
        "\n",
        b"\xff",
        Path("x" * 5000),
        10**400,
        -(10**400),
        float("inf"),
        1j,
        np.float32("nan"),
        np.array(3),
        np.zeros((0, 4), np.float32),
        np.array([object()], dtype=object),
        np.zeros((2, 4), np.complex64),
        np.datetime64("2020-01-01"),
        mx.nd.ones((2, 4)),
        mx.nd.ones((1,)),
        mx.sym.var("data"),
        mx.cpu(),
        block(),
        {"data": mx.nd.ones((3,))},
        {"data": object()},
        {"data": [[1], [1, 2]]},
        {"data": (2, -4)},
        {"data": "2,4"},
        {"data": "\ud800"},
        {(1, 2): 3},
        [("a", "b", "c")],
        [[[[]]]],
        [None, 3, "x"],
        range(3),
        Exception("no"),
        Awkward(),
        MODEL,
        (GRAPH, ARGS, {}),
    ]


def convert(**options: Any) -> Any:
    given = {"sym": GRAPH, "arg_params": ARGS, "aux_params": {}, "target": capable(F16)}
    return mxamp.convert_model(**{**without_long_names(given, options), **options})


def without_long_names(given: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Leave out what an option is a shorter name of."""
    longer = {"args": "arg_params", "auxs": "aux_params", "net": "block"}
    return {name: value for name, value in given.items() if name not in map(longer.get, options)}


def compared(**options: Any) -> Any:
    return mxamp.compare_models(**{"fp32_model": MODEL, "converted_model": MODEL, "data": DATA, **options})


def candidates(**options: Any) -> Any:
    given = {"fp32_model": MODEL, "candidates": {"same": MODEL}, "data": DATA, "layers": False}
    return mxamp.compare_candidates(**{**given, **options})


def losses(**options: Any) -> Any:
    return mxamp.rounding_losses(**{"model": EMULATED, "data": DATA, **options})


def evaluated(**options: Any) -> Any:
    given = {"model": MODEL, "data": DATA, "labels": LABELS, "latency_seconds": 0}
    return mxamp.evaluate(**{**given, **options})


def calibrated(**options: Any) -> Any:
    return mxamp.calibrate(**{"model": MODEL, "data": DATA, **options})


def for_openvino(**options: Any) -> Any:
    given = {"model": MODEL, "path": "net.xml", "input_shapes": SHAPES}
    return mxamp.export_openvino(**{**given, **options})


def ranked(**options: Any) -> Any:
    return mxamp.sensitivity(**{"model": MODEL, "data": DATA, **options})


def tuned(**options: Any) -> Any:
    return mxamp.tune(**{"model": MODEL, "data": DATA, "latency_seconds": 0, "points": 2, **options})


def emulated(**options: Any) -> Any:
    given = {"sym": GRAPH, "arg_params": ARGS, "aux_params": {}}
    return mxamp.emulate(**{**without_long_names(given, options), **options})


def symbol(**options: Any) -> Any:
    return mxamp.convert_symbol(**{"sym": GRAPH, **options})


def converted_block(**options: Any) -> Any:
    given = {"block": block(), "target_dtype": "bfloat16"}
    return mxamp.convert_block(**{**without_long_names(given, options), **options})


def exported(**options: Any) -> Any:
    return mxamp.export_onnx(**{"model": MODEL, "path": "net.onnx", "input_shapes": SHAPES, **options})


def registered(**options: Any) -> Any:
    given = {"name": "_hostile_operator", "inputs": ["data"], "replace": True}
    mxamp.register_operator(**{**given, **options}).undo()


def mapped(**options: Any) -> Any:
    given = {"name": "_hostile_operator", "write": lambda call: call.inputs[0], "replace": True}
    mxamp.register_onnx_mapping(**{**given, **options}).undo()


FUNCTIONS: dict[str, tuple[Callable[..., Any], Any]] = {
    "convert_model": (convert, mxamp.convert_model),
    "convert_symbol": (symbol, mxamp.convert_symbol),
    "convert_block": (converted_block, mxamp.convert_block),
    "emulate": (emulated, mxamp.emulate),
    "compare_models": (compared, mxamp.compare_models),
    "compare_candidates": (candidates, mxamp.compare_candidates),
    "rounding_losses": (losses, mxamp.rounding_losses),
    "evaluate": (evaluated, mxamp.evaluate),
    "calibrate": (calibrated, mxamp.calibrate),
    "export_openvino": (for_openvino, mxamp.export_openvino),
    "sensitivity": (ranked, mxamp.sensitivity),
    "tune": (tuned, mxamp.tune),
    "export_onnx": (exported, mxamp.export_onnx),
    "register_operator": (registered, mxamp.register_operator),
    "register_onnx_mapping": (mapped, mxamp.register_onnx_mapping),
    "load": (lambda **given: mxamp.load(**{"prefix": "net", **given}), mxamp.load),
    "verify": (lambda **given: mxamp.verify(**{"prefix": "net", **given}), mxamp.verify),
    "Model.of": (lambda **given: Model.of(**{"sym": GRAPH, "args": ARGS, "auxs": {}, **given}), Model.of),
    "Model.save": (lambda **given: MODEL.save(**{"prefix": "saved", **given}), MODEL.save),
    "Target.load": (lambda **given: mxamp.Target.load(**given), mxamp.Target.load),
    "Target.builtin": (lambda **given: mxamp.Target.builtin(**given), mxamp.Target.builtin),
    "Target.for_dtype": (lambda **given: mxamp.Target.for_dtype(**given), mxamp.Target.for_dtype),
    "Policy.default": (lambda **given: mxamp.Policy.default(**given), mxamp.Policy.default),
    "Policy.pure": (lambda **given: mxamp.Policy.pure(**given), mxamp.Policy.pure),
    "Policy.load": (lambda **given: mxamp.Policy.load(**given), mxamp.Policy.load),
    "Policy.from_toml": (
        lambda **given: mxamp.Policy.from_toml(**{"text": "", **given}),
        mxamp.Policy.from_toml,
    ),
    "Policy.save": (
        lambda **given: mxamp.Policy.default("float16").save(**given),
        mxamp.Policy.default("float16").save,
    ),
    "Report.from_json": (lambda **given: mxamp.Report.from_json(**given), mxamp.Report.from_json),
    "Report.from_mapping": (lambda **given: mxamp.Report.from_mapping(**given), mxamp.Report.from_mapping),
    "Fidelity.check": (lambda **given: compared(layers=False).check(**given), mxamp.Fidelity.check),
    "Color.parse": (lambda **given: mxamp.Color.parse(**given), mxamp.Color.parse),
    "DType.parse": (lambda **given: mxamp.DType.parse(**{"value": "float16", **given}), mxamp.DType.parse),
    "Guard": (lambda **given: convert(input_shapes=SHAPES, guard=Guard(**given)), Guard),
    "Profiling": (lambda **given: Profiling(**given), Profiling),
    "Emulation": (lambda **given: convert(emulate=Emulation(**given)), Emulation),
}

CALLBACKS = {"progress", "measure"}
"""What a function of the user's raises is the user's to see."""

MEASURES = {
    ("convert_model", "profile"),
    ("convert_block", "profile"),
    ("Guard", "seconds"),
    ("evaluate", "latency_seconds"),
    ("tune", "latency_seconds"),
}
"""What would measure for seconds, given a number or True."""


def arguments() -> list[Any]:
    return [
        pytest.param(function, name, id=f"{function}-{name}")
        for function, (_, signature) in FUNCTIONS.items()
        for name, parameter in inspect.signature(signature).parameters.items()
        if name != "self" and parameter.kind is not parameter.VAR_KEYWORD
    ]


@pytest.mark.parametrize(("function", "argument"), arguments())
def test_the_answer_is_a_result_or_an_error_of_ours(
    function: str, argument: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    MODEL.save("net")
    call, _ = FUNCTIONS[function]
    for value in junk():
        if (function, argument) in MEASURES and isinstance(value, (bool, int, float)):
            continue
        if argument in CALLBACKS and callable(value):
            continue
        if argument == "data" and inspect.isfunction(value):
            continue  # it returns the batches, where samples are streamed
        try:
            call(**{argument: value})
        except mxamp.MxampError as error:
            assert len(str(error)) > 20  # noqa: PT017 - which error it is depends on the value
        except Exception as error:
            pytest.fail(f"{function}({argument}={value!r:.60}): {type(error).__name__}: {error}")


def test_every_public_function_is_asked() -> None:
    # The same function; and what starts a process for each runtime, which has tests of its own.
    elsewhere = {"convert_hybrid_block", "race"}
    public = {name for name in mxamp.__all__ if inspect.isfunction(getattr(mxamp, name))}
    assert public - elsewhere <= set(FUNCTIONS)


def test_a_block_that_returns_nothing_is_no_graph() -> None:
    with pytest.raises(mxamp.MxampError, match="returns no array"):
        mxamp.convert_block(Empty(), "bfloat16")


def test_a_path_longer_than_a_path_can_be_is_named_so(tmp_path: Path) -> None:
    for call in (mxamp.load, mxamp.verify, MODEL.save, mxamp.Target.load, mxamp.Policy.load):
        with pytest.raises(mxamp.MxampError, match=r"longer than a path can be|cannot be reached"):
            call(tmp_path / ("x" * 5000))  # type: ignore[operator]
