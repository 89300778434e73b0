"""The packages that ONNX needs, imported when they are needed."""

from __future__ import annotations

import importlib
from typing import Any

from mxamp.errors import OnnxMissingError
from mxamp.messages.installation import install_hint


def import_onnx() -> Any:
    """Return the module ``onnx``.

    Raises
    ------
    OnnxMissingError
        When it cannot be imported, or is too old.
    """
    onnx = _import("onnx", "writing ONNX files")
    importlib.import_module("onnx.shape_inference")
    if not hasattr(onnx.shape_inference, "infer_node_outputs"):
        raise OnnxMissingError(
            f"Writing ONNX files needs onnx 1.14 or newer, and {onnx.__version__} is installed. "
            f"{install_hint('onnx')}"
        )
    return onnx


def import_onnxruntime() -> Any:
    """Return the module ``onnxruntime``.

    Raises
    ------
    OnnxMissingError
        When it cannot be imported.
    """
    return _import("onnxruntime", "running ONNX files")


def _import(name: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise OnnxMissingError(
            f"{what[0].upper()}{what[1:]} needs the package {name}, which cannot be imported: {error}. "
            f"{install_hint('onnx')}"
        ) from error
