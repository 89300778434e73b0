"""Check a pair of files against what was recorded when it was written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mxamp.errors import ExportError, ModelFileNotFoundError
from mxamp.files import settle_leftovers
from mxamp.model.paths import epochs_there, model_paths
from mxamp.model.provenance import Provenance, provenance_path, read_provenance
from mxamp.model.source_files import FileRecord, hash_file


@dataclass(frozen=True)
class FileVerification:
    """One file of a pair, compared with its record.

    Attributes
    ----------
    path
        The file.
    recorded
        What was written.
    found
        What is there; None where there is no file. A file of another size is not hashed.
    difference
        How it differs; empty where it does not.
    """

    path: Path
    recorded: FileRecord
    found: FileRecord | None
    difference: str = ""


@dataclass(frozen=True)
class Verification:
    """Whether a pair of files is the one that was written. True in a condition if it is.

    Attributes
    ----------
    symbol, params
        The two files.
    provenance
        What was recorded.
    """

    symbol: FileVerification
    params: FileVerification
    provenance: Provenance

    @property
    def is_intact(self) -> bool:
        """Whether both files hold, byte for byte, what was written."""
        return not self.differences

    @property
    def differences(self) -> tuple[str, ...]:
        """What differs, one sentence each."""
        return tuple(file.difference for file in (self.symbol, self.params) if file.difference)

    def __bool__(self) -> bool:
        return self.is_intact

    def to_mapping(self) -> dict[str, Any]:
        """Return the result as plain data for JSON."""
        return {
            "intact": self.is_intact,
            "differences": list(self.differences),
            "files": [
                {
                    "path": str(file.path),
                    "recorded": file.recorded.to_mapping(),
                    "found": None if file.found is None else file.found.to_mapping(),
                }
                for file in (self.symbol, self.params)
            ],
            "mxamp": self.provenance.mxamp,
        }

    def __str__(self) -> str:
        lines = []
        for file in (self.symbol, self.params):
            size = f"{file.recorded.bytes:,} bytes, {file.recorded.short_digest}"
            lines.append(file.difference or f"{file.path}: as written ({size}).")
        return "\n".join(lines)


def verify(prefix: str | Path, epoch: int = 0) -> Verification:
    """Check ``prefix-symbol.json`` and ``prefix-EPOCH.params`` against ``prefix-mxamp.json``.

    Parameters
    ----------
    prefix
        Path and first part of the file names.
    epoch
        The number in the parameter file's name.

    Returns
    -------
    Verification
        What differs; true in a condition when nothing does.

    Raises
    ------
    ModelFileNotFoundError
        When nothing was recorded, or prefix and epoch cannot name a file.
    ReportError
        When the record is damaged.
    ParamsError
        When a file cannot be read.
    DigestMissingError
        When the files were hashed with what is not installed here.
    """
    try:
        symbol_path, params_path = model_paths(prefix, epoch)
    except ExportError as error:
        raise ModelFileNotFoundError(str(error)) from None
    settle_leftovers(symbol_path.parent)
    provenance = read_provenance(prefix, epoch)
    if provenance is None:
        there = [str(path) for path in (symbol_path, params_path) if path.is_file()]
        pair = f"{' and '.join(there)} cannot be checked" if there else "and the files are not there either"
        raise ModelFileNotFoundError(
            f"There is no {str(provenance_path(prefix, epoch))!r}, {'so ' if there else ''}{pair}: nothing "
            "says what they should hold. mxamp writes it with every model, unless told not to."
            + ("" if params_path.is_file() else epochs_there(prefix, params_path))
        )
    symbol = _verify_file(symbol_path, provenance.symbol)
    params = _verify_file(params_path, provenance.params)
    return Verification(symbol, params, provenance)


def _verify_file(path: Path, recorded: FileRecord) -> FileVerification:
    if not path.is_file():
        return FileVerification(path, recorded, None, f"{path} is missing.")
    size = path.stat().st_size
    if size != recorded.bytes:
        change = "it was cut off, or replaced" if size < recorded.bytes else "it was replaced, or appended to"
        return FileVerification(
            path,
            recorded,
            FileRecord(path.name, size, "", recorded.algorithm),
            f"{path} differs: it has {size:,} bytes and {recorded.bytes:,} were written; {change}.",
        )
    found = hash_file(path, recorded.algorithm)
    if found.digest != recorded.digest:
        return FileVerification(
            path,
            recorded,
            found,
            f"{path} differs: it has its size but other content, {found.short_digest} where "
            f"{recorded.short_digest} was written; it was changed or damaged.",
        )
    return FileVerification(path, recorded, found)
