"""The journal: what has been measured so far, in a file beside the result, so that a probe can go on.

The first line says what is measured on which machine; every further one holds what came of one unit. A unit
that was done again stands there twice, and the later line counts. A last line that an interruption cut off is
dropped.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO, Any, Mapping

from mxamp.errors import ExportError, TargetError
from mxamp.probe.jobs import Unit
from mxamp.probe.workers import Answer

_FORMAT = 1


def journal_path(output: str | os.PathLike[str]) -> Path:
    """Return where the journal of a result is."""
    path = Path(output)
    return path.with_name(path.name + ".journal")


class Journal:
    """What has been measured so far.

    Parameters
    ----------
    path
        The file; made where it is not there.
    heading
        What is measured, and where: everything that must be the same for old and new numbers to be of one
        measurement.

    Raises
    ------
    TargetError
        When the file is no journal, or one of another measurement.
    ExportError
        When it cannot be written.

    Attributes
    ----------
    answers
        Unit -> what came of it.
    """

    def __init__(self, path: Path, heading: Mapping[str, Any]) -> None:
        self.path = path
        self.answers: dict[Unit, Answer] = {}
        self._stream: IO[str] | None = None
        heading = json.loads(json.dumps({"probe": _FORMAT, **heading}))
        try:
            text = path.read_text("utf-8", "replace") if path.exists() else ""
            complete = self._read(text, heading)
            if complete < len(text):
                with path.open("r+", encoding="utf-8") as stream:
                    stream.truncate(len(text[:complete].encode()))
            self._stream = path.open("a", encoding="utf-8")
            if not complete:
                self._write(heading)
        except OSError as error:
            raise ExportError(
                f"Cannot write {os.fspath(path)!r}, the probe's journal: {error.strerror or error}. Give an "
                "output (-o) in a folder that can be written."
            ) from None

    def _read(self, text: str, heading: Mapping[str, Any]) -> int:
        """Take over what is there; return how many characters of it are complete lines."""
        complete = text.rfind("\n") + 1
        lines = text[:complete].splitlines()
        beginning = f'{{"probe": {_FORMAT}, '
        if not lines and beginning.startswith(text[: len(beginning)]):
            return 0  # nothing, or a first line that was cut off
        try:
            found = json.loads("\n".join(lines[:1]))
            found["probe"]
            entries = [json.loads(line) for line in lines[1:]]
            for entry in entries:
                self.answers[Unit(*entry["unit"])] = Answer(entry["jobs"], entry.get("died"))
        except (ValueError, KeyError, TypeError):
            raise TargetError(
                f"{self.path} is no journal of `mxamp probe`, or is damaged. Remove it, or start anew with "
                "--fresh."
            ) from None
        differing = [key for key in {**heading, **found} if heading.get(key) != found.get(key)]
        if differing:
            key = differing[0]
            raise TargetError(
                f"{self.path} is from a probe that was begun with another {key}: {_shown(found.get(key))}; "
                f"now it is {_shown(heading.get(key))}. The numbers would not belong together. Go on with it "
                "where it was begun, or start anew with --fresh."
            )
        return complete

    def note(self, unit: Unit, answer: Answer) -> None:
        """Write down what came of a unit."""
        self.answers[unit] = answer
        died = {} if answer.died is None else {"died": answer.died}
        self._write({"unit": list(unit), "jobs": list(answer.jobs), **died})

    def _write(self, entry: Mapping[str, Any]) -> None:
        assert self._stream is not None
        self._stream.write(json.dumps(entry) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Close the file; it stays."""
        if self._stream is not None:
            self._stream.close()

    def remove(self) -> None:
        """Remove the file: the result is written."""
        self.close()
        self.path.unlink()


def _shown(value: Any) -> str:
    return "unknown" if value is None else str(value)
