"""The journal of a run: JSON lines, one for the run's circumstances and one for every model that is done.

Lines are only ever added, and each is on disk before the next model starts, so a run that is killed loses no
more than the models it was at.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Mapping, Sequence

from mxamp.errors import DataError, ModelFileNotFoundError

__all__ = ["Journal", "Results", "read_results"]

FORMAT = 1

_RUN, _MODEL = "run", "model"


@dataclass(frozen=True)
class Results:
    """What journals hold.

    Attributes
    ----------
    runs
        The circumstances of every run, the first first: ``environment`` and ``options``.
    rows
        Key of the case -> its last result.
    run_of
        Key of the case -> the run that it is of: the one above it in its journal.
    """

    runs: tuple[Mapping[str, Any], ...] = ()
    rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    run_of: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def read_results(*paths: Path) -> Results:
    """Read journals; where several have a case, the last one counts.

    Raises
    ------
    ModelFileNotFoundError
        When a file does not exist.
    DataError
        When a file is no journal, or damaged elsewhere than in its last line: that one may be cut off, where
        a run was killed.
    """
    runs: list[Mapping[str, Any]] = []
    rows: dict[str, Mapping[str, Any]] = {}
    run_of: dict[str, Mapping[str, Any]] = {}
    for path in paths:
        run: Mapping[str, Any] | None = None
        if path.is_dir():
            path = path / "results.jsonl"
        if not path.is_file():
            raise ModelFileNotFoundError(
                f"There are no results {str(path)!r}. `python -m model_zoo_eval run` writes them."
            )
        for record in _records(path):
            if record["record"] == _RUN:
                runs.append(record)
                run = record
            else:
                rows[record["case"]] = record
                run_of.pop(record["case"], None)
                if run is not None:
                    run_of[record["case"]] = run
    return Results(tuple(runs), rows, run_of)


def _records(path: Path) -> Sequence[dict[str, Any]]:
    lines = path.read_bytes().split(b"\n")
    records = []
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            record = json.loads(line.decode("utf-8"))
            known = record["record"] in (_RUN, _MODEL) and (record["record"] == _RUN or record["case"])
        except (ValueError, KeyError, TypeError):
            # Without a newline it is what a killed run was writing.
            if number == len(lines) - 1:
                break
            raise DataError(
                f"Line {number + 1} of {str(path)!r} is no result of model_zoo_eval: {line[:60]!r}. Is it "
                "another file?"
            ) from None
        if not known:
            raise DataError(f"Line {number + 1} of {str(path)!r} is of a kind this version does not know.")
        if record["record"] == _RUN and record.get("format") != FORMAT:
            raise DataError(
                f"{str(path)!r} is in the format {record.get('format')}, and this version reads {FORMAT}."
            )
        records.append(record)
    return records


class Journal:
    """A journal that is being written.

    Parameters
    ----------
    path
        The file; its folder is made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        _cut_torn_line(path)

    def start(self, environment: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        """Note the circumstances of a run."""
        self._append(
            {"record": _RUN, "format": FORMAT, "environment": dict(environment), "options": dict(options)}
        )

    def add(self, case: str, row: Mapping[str, Any]) -> None:
        """Note the result of a case."""
        self._append({"record": _MODEL, "case": case, **row})

    def _append(self, record: Mapping[str, Any]) -> None:
        line = json.dumps(record, allow_nan=False) + "\n"
        with self.path.open("ab") as file:
            file.write(line.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())


def _cut_torn_line(path: Path) -> None:
    """Remove a last line without an end, which a killed run left; the next would be added to it."""
    if not path.is_file():
        return
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)
