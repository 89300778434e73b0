"""Rows and journals made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable

import pytest

ENVIRONMENT = {
    "mxamp": "0.1.0",
    "commit": "0123456789ab",
    "python": "3.11.7",
    "packages": {"mxnet": "1.9.1"},
    "system": "Linux",
    "cpu": "a processor",
    "cpu_flags": ["avx512_bf16"],
    "cores": 2,
    "threads": 2,
    "seed": 0,
    "started": "2026-01-01T00:00:00+00:00",
}


@pytest.fixture
def write_journal(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a journal: a name, and case -> row."""

    def write(name: str, rows: dict[str, dict[str, Any]], **environment: Any) -> Path:
        run = {"record": "run", "format": 1, "environment": {**ENVIRONMENT, **environment}, "options": {}}
        records = [run, *({"record": "model", "case": case, **row} for case, row in rows.items())]
        path = tmp_path / name
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records), "utf-8")
        return path

    return write


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that names every model a process was started for."""
    path = tmp_path / "ran.txt"
    monkeypatch.setenv("ZOO_TEST_LOG", str(path))
    return path
