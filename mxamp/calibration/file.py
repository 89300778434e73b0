"""Calibrations as files: an ``.npz`` archive with a JSON document and the moments of layers."""

from __future__ import annotations

import json
import math
import os
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Mapping, cast

import numpy as np
from numpy.typing import NDArray

from mxamp.calibration.moments import Moments
from mxamp.calibration.prices import Prices
from mxamp.calibration.record import EntryName, ModelRecord
from mxamp.calibration.samples import DataDescription
from mxamp.calibration.statistics import EntryStatistics
from mxamp.errors import DataError, ModelFileNotFoundError
from mxamp.files import StagedFile, atomic_write, existing_file
from mxamp.files.json_text import parse_json

if TYPE_CHECKING:
    from mxamp.calibration.calibration import Calibration

_FORMAT = 1
_DOCUMENT = "calibration.json"
_ADVICE = "Calibrate again; the model and the data are all it takes."


class _Stream:
    """A file to write to from its beginning to its end."""

    def __init__(self, file: StagedFile) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        return self._file.write(data)

    def flush(self) -> None:
        pass


def write_calibration(calibration: Calibration, path: str | Path) -> None:
    """Write a calibration; see :meth:`Calibration.save`."""
    with atomic_write(path) as (file,):
        # Nothing is compressed: moments are noise to a compressor. Half of a symmetric matrix is enough.
        archive = zipfile.ZipFile(cast("Any", _Stream(file)), "w", zipfile.ZIP_STORED, allowZip64=True)
        with archive:
            archive.writestr(_member(_DOCUMENT), json.dumps(document(calibration)))
            for number, moments in enumerate(calibration.layers.values()):
                _write_array(archive, f"{number}/mean", moments.mean)
                for block, products in enumerate(moments.blocks):
                    _write_array(archive, f"{number}/block{block}", _triangles(products))


def _member(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name)  # with the date of 1980: the same calibration is the same file


def _write_array(archive: zipfile.ZipFile, name: str, values: NDArray[Any]) -> None:
    with archive.open(_member(f"{name}.npy"), "w", force_zip64=True) as member:
        np.lib.format.write_array(member, values, allow_pickle=False)  # type: ignore[no-untyped-call]


def _triangles(blocks: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the upper triangles of symmetric matrices, row after row."""
    groups, size, _ = blocks.shape
    if size <= 64:
        rows, columns = np.triu_indices(size)
        return blocks[:, rows, columns]
    packed: NDArray[np.float32] = np.empty((groups, size * (size + 1) // 2), np.float32)
    start = 0
    for row in range(size):
        packed[:, start : start + size - row] = blocks[:, row, row:]
        start += size - row
    return packed


def _squares(packed: NDArray[np.float32]) -> NDArray[np.float32]:
    groups, length = packed.shape
    size = math.isqrt(2 * length)
    if size * (size + 1) // 2 != length:
        raise ValueError(f"{length} values are no triangle")
    blocks: NDArray[np.float32] = np.empty((groups, size, size), np.float32)
    start = 0
    for row in range(size):
        part = packed[:, start : start + size - row]
        blocks[:, row, row:] = part
        blocks[:, row:, row] = part
        start += size - row
    return blocks


def document(calibration: Calibration) -> Mapping[str, Any]:
    """Return what the file says of a calibration besides the moments, as plain data for JSON."""
    return {
        "format": _FORMAT,
        "mxamp": calibration.version,
        "numpy": np.__version__,
        "model": asdict(calibration.model),
        "data": [asdict(description) for description in calibration.data],
        "positions": calibration.positions,
        "entries": [
            {"node": name.node, "output": name.output, **_statistics_as_mapping(statistics)}
            for name, statistics in calibration.entries.items()
        ],
        "layers": [
            {"node": name, "rows": moments.rows, "blocks": len(moments.blocks)}
            for name, moments in calibration.layers.items()
        ],
        "unseen": dict(calibration.unseen),
        "prices": None if calibration.prices is None else calibration.prices.to_mapping(),
        "why_unpriced": calibration.why_unpriced,
    }


def _statistics_as_mapping(statistics: EntryStatistics) -> dict[str, Any]:
    found = asdict(statistics)
    if math.isinf(statistics.smallest):
        found["smallest"] = None  # JSON has no infinity
    return found


def is_calibration(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a calibration, or was one: an archive that holds the document."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _DOCUMENT in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def read_calibration(path: str | Path) -> tuple[Any, ...]:
    """Read the fields of a calibration, in their order; see :meth:`Calibration.load`."""
    name = os.fspath(path)
    try:
        file = existing_file(name, "calibration")
    except ModelFileNotFoundError as error:
        raise DataError(str(error)) from None
    try:
        with zipfile.ZipFile(file) as archive:
            return _fields(_read_document(name, archive), archive)
    except DataError:
        raise
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        why = " ".join(str(error).split())[:120] or type(error).__name__
        raise DataError(f"{name!r} is no calibration, or is damaged ({why}). {_ADVICE}") from None


def _read_document(name: str, archive: zipfile.ZipFile) -> Mapping[str, Any]:
    if _DOCUMENT not in archive.namelist():
        raise DataError(
            f"{name!r} is no calibration: it holds no {_DOCUMENT}. `mxamp calibrate` writes one; data that a "
            "model is fed with are given with --data."
        )
    text = archive.read(_DOCUMENT).decode("utf-8")
    found: Mapping[str, Any] = parse_json(
        text, source=name, error=DataError, advice=_ADVICE, has_unique_keys=True
    )
    if found.get("format") != _FORMAT:
        raise DataError(
            f"{name!r} was written in format {found.get('format')!r} by mxamp {found.get('mxamp')}, "
            f"and this version reads format {_FORMAT}. {_ADVICE}"
        )
    return found


def _fields(stated: Mapping[str, Any], archive: zipfile.ZipFile) -> tuple[Any, ...]:
    entries = {}
    for found in stated["entries"]:
        fields = {key: value for key, value in found.items() if key not in ("node", "output")}
        if fields["smallest"] is None:
            fields["smallest"] = math.inf
        entries[EntryName(found["node"], found["output"])] = EntryStatistics(**fields)
    layers = {}
    for number, layer in enumerate(stated["layers"]):
        mean = _read_array(archive, f"{number}/mean")
        blocks = tuple(_squares(_read_array(archive, f"{number}/block{b}")) for b in range(layer["blocks"]))
        sizes = sum(block.shape[1] for block in blocks)
        if mean.ndim != 2 or sizes != mean.shape[1] or any(len(block) != len(mean) for block in blocks):
            raise ValueError(f"the moments of {layer['node']!r} do not fit each other")
        layers[layer["node"]] = Moments(layer["rows"], mean, blocks)
    return (
        ModelRecord(**stated["model"]),
        tuple(
            DataDescription(
                **{
                    **description,
                    "shapes": {name: tuple(shape) for name, shape in description["shapes"].items()},
                }
            )
            for description in stated["data"]
        ),
        entries,
        layers,
        stated["unseen"],
        stated["positions"],
        # Files of before prices were kept have none.
        None if stated.get("prices") is None else Prices.of_mapping(stated["prices"]),
        stated.get("why_unpriced", ""),
        stated["mxamp"],
    )


def _read_array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    with archive.open(f"{name}.npy") as member:
        values: NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)  # type: ignore[no-untyped-call]
    return values
