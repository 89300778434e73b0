"""What is advised for a file that cannot be read goes by what the system says of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from mxamp.errors import ParamsError
from mxamp.files import why_unreadable
from mxamp.params import reader


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOMEM, "not enough memory"),
        (errno.EACCES, "Check its permissions."),
        (errno.EMFILE, "ulimit -n"),
        (errno.EIO, "Check the disk."),
        (errno.ENXIO, "permissions and the disk"),
    ],
    ids=errno.errorcode.get,
)
def test_the_advice_fits_the_error(number: int, words: str) -> None:
    said = why_unreadable(OSError(number, os.strerror(number)))
    assert said.startswith(os.strerror(number))
    assert words in said


def test_out_of_memory_is_no_matter_of_permissions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net-0000.params"
    path.write_bytes(b"x" * 64)

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(reader.mmap, "mmap", refuse)
    with pytest.raises(ParamsError, match="not enough memory") as caught:
        reader.open_params(path)
    assert "permissions" not in str(caught.value)
