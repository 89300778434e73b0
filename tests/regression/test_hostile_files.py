"""Files that once did harm, or show a kind of harm: read again, as the fuzzer reads them, without it.

In ``hostile/`` symbols are ``.json`` and parameters ``.hex``. A file that the fuzzer saves becomes one more.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tools.fuzz_targets import TARGETS

FILES = sorted((Path(__file__).parent / "hostile").iterdir())
SECONDS = 2


def content(path: Path) -> bytes:
    return bytes.fromhex(path.read_text()) if path.suffix == ".hex" else path.read_bytes()


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_hostile_file_is_read_rightly_or_refused(path: Path) -> None:
    began = time.process_time()
    for name in ("params",) if path.suffix == ".hex" else ("symbol", "convert"):
        TARGETS[name].run(content(path))
    assert time.process_time() - began < SECONDS


@pytest.mark.parametrize("name", ["symbol", "params", "convert"])
def test_what_the_fuzzer_begins_with_is_read(name: str) -> None:
    for seed in TARGETS[name].seeds:
        TARGETS[name].run(seed)
