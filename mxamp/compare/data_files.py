"""Arrays read from ``.npz`` and ``.npy`` files."""

from __future__ import annotations

import os
import zipfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxamp.errors import DataError, ModelFileNotFoundError
from mxamp.files import existing_file


def load_data(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]] | NDArray[Any]:
    """Read arrays from an ``.npz`` file, or one array from an ``.npy`` file.

    Parameters
    ----------
    path
        The file. Pickled objects are refused, because reading them could run code.

    Returns
    -------
    dict or numpy.ndarray
        Name -> array for ``.npz``.

    Raises
    ------
    DataError
        When there is no such file, or it holds no arrays.
    """
    name = os.fspath(path)
    try:
        file = existing_file(name, "data file")
    except ModelFileNotFoundError as error:
        raise DataError(str(error)) from None
    try:
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            arrays = {name: loaded[name] for name in loaded.files}
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        if "Object arrays" in str(error):
            raise DataError(
                f"{name!r} holds Python objects, which mxamp does not read, because that could run code. "
                "Save plain arrays of one dtype each: np.savez('images.npz', data=images.astype('float32'))."
            ) from None
        raise DataError(
            f"{name!r} is not an .npz or .npy file, or is damaged ({_first_line(error)}). Write one with "
            "np.savez('images.npz', data=images)."
        ) from None
    if not arrays:
        raise DataError(f"{name!r} holds no arrays. Write one with np.savez('images.npz', data=images).")
    return arrays


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
