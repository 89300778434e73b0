"""The package openvino, imported when it is needed."""

from __future__ import annotations

import importlib
from typing import Any

from mxamp.errors import OpenvinoMissingError
from mxamp.messages.installation import install_hint


def import_openvino() -> Any:
    """Return the module ``openvino``.

    Raises
    ------
    OpenvinoMissingError
        When it cannot be imported.
    """
    try:
        return importlib.import_module("openvino")
    except ImportError as error:
        raise OpenvinoMissingError(
            f"Running a model in OpenVINO needs the package openvino, which cannot be imported: {error}. "
            f"{install_hint('openvino')}"
        ) from error
