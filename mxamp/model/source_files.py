"""The files that a model was read from, and what a file holds, in short."""

from __future__ import annotations

import contextlib
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, Sequence

import numpy as np

from mxamp.errors import ExportError, ParamsError
from mxamp.files import why_unreadable
from mxamp.files.digest import fastest_algorithm, new_digest
from mxamp.params.positioned import PositionedFile

if TYPE_CHECKING:
    from mxamp.model.provenance import Provenance

HASH_KEYS = {"BLAKE3": "blake3", "BLAKE2b": "blake2b", "SHA-256": "sha256"}
"""What the hashes are called in JSON."""


_BLOCK = 1 << 20


@dataclass(frozen=True)
class FileRecord:
    """What a file holds, in short.

    Attributes
    ----------
    name
        Its name, without folders.
    bytes
        Its size.
    digest
        Its hash in hexadecimal digits; empty where it was not hashed.
    algorithm
        What it was hashed with, see :mod:`mxamp.files.digest`.
    """

    name: str
    bytes: int
    digest: str
    algorithm: str

    @property
    def short_digest(self) -> str:
        """The beginning of the hash, for people."""
        return f"{self.algorithm} {self.digest[:12]}..."

    def to_mapping(self) -> dict[str, Any]:
        """Return it as plain data for JSON, where the hash has the algorithm's name."""
        return {"name": self.name, "bytes": self.bytes, HASH_KEYS[self.algorithm]: self.digest}


class SourceFiles:
    """The files that a model was read from.

    Notes
    -----
    The symbol is hashed at once. The parameters, which may be large, are hashed when they are asked for, from
    the file that was opened here, whatever has its name by then.
    """

    def __init__(self, symbol_path: Path, params_path: Path) -> None:
        self.paths = (symbol_path, params_path)
        self.symbol = hash_file(symbol_path)
        self._params = PositionedFile(params_path)

    @contextlib.contextmanager
    def hashing(self) -> Iterator[Future[FileRecord]]:
        """Hash the parameter file beside what the block does; what that raises ends it early.

        Yields
        ------
        Future
            The record. Asked for its result it raises ParamsError when the file was changed since it was
            opened.
        """
        is_over = threading.Event()
        with ThreadPoolExecutor(max_workers=1) as executor:
            try:
                yield executor.submit(self._hash_params, is_over)
            finally:
                is_over.set()

    def _hash_params(self, is_over: threading.Event) -> FileRecord:
        path = self.paths[1]
        algorithm = fastest_algorithm()
        digest = new_digest(algorithm)
        buffer = np.empty(_BLOCK, np.uint8)
        size = self._params.size
        for offset in range(0, size, _BLOCK):
            if is_over.is_set():
                break
            block = buffer[: min(_BLOCK, size - offset)]
            self._params.read_into(block, offset)
            digest.update(block.data)
        return FileRecord(path.name, size, digest.hexdigest(), algorithm)

    def are_those_of(self, provenance: Provenance) -> bool:
        """Whether these are the files that a provenance was written with: the symbol, and a size.

        Hashing the parameters takes as long as reading them; :func:`mxamp.verify` does.
        """
        recorded, own = provenance.symbol, self.symbol
        if own.algorithm != recorded.algorithm:
            own = hash_file(self.paths[0], recorded.algorithm)
        return own.digest == recorded.digest and self._params.size == provenance.params.bytes

    def refuse_to_replace(self, paths: Sequence[Path]) -> None:
        """Check that none of some files is one of these, under whatever name.

        Raises
        ------
        ExportError
            When one is.
        """
        for path in paths:
            for source in self.paths:
                try:
                    is_same = os.path.samefile(path, source)
                except OSError:  # one of them does not exist
                    continue
                if is_same:
                    raise ExportError(
                        f"Saving to {str(path)!r} would replace {str(source)!r}, from which the model was "
                        "converted. Choose another prefix, or remove the file first."
                    )


def hash_file(path: Path, algorithm: str | None = None) -> FileRecord:
    """Return the record of a file.

    Parameters
    ----------
    path
        The file.
    algorithm
        What to hash it with; by default what is fastest here.

    Raises
    ------
    ParamsError
        When it cannot be read.
    DigestMissingError
        When the algorithm is not installed.
    """
    algorithm = algorithm or fastest_algorithm()
    digest = new_digest(algorithm)
    size = 0
    try:
        with open(path, "rb", buffering=0) as file:
            for block in iter(lambda: file.read(_BLOCK), b""):
                digest.update(block)
                size += len(block)
    except OSError as error:
        raise ParamsError(f"{path} cannot be read: {why_unreadable(error)}") from error
    return FileRecord(path.name, size, digest.hexdigest(), algorithm)
