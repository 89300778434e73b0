"""Builders of ``.params`` files, byte by byte, so that the tests do not trust the code under test."""

from __future__ import annotations

import struct
from typing import Callable, Sequence

import pytest

Builder = Callable[..., bytes]


def _dense(
    shape: Sequence[int],
    data: bytes,
    *,
    version: int = 2,
    code: int = 0,
    device: tuple[int, int] = (1, 0),
    storage: int = 0,
) -> bytes:
    tail = struct.pack("<iii", *device, code) + data
    if version == 0:
        return struct.pack(f"<I{len(shape)}I", len(shape), *shape) + tail
    shape_bytes = struct.pack(f"<i{len(shape)}q", len(shape), *shape)
    if version == 1:
        return struct.pack("<I", 0xF993FAC8) + shape_bytes + tail
    return struct.pack("<Ii", {2: 0xF993FAC9, 3: 0xF993FACA}[version], storage) + shape_bytes + tail


def _list(records: Sequence[bytes], names: Sequence[bytes | str], *, count: int | None = None) -> bytes:
    encoded = [name if isinstance(name, bytes) else name.encode() for name in names]
    return (
        struct.pack("<QQQ", 0x112, 0, len(records) if count is None else count)
        + b"".join(records)
        + struct.pack("<Q", len(encoded))
        + b"".join(struct.pack("<Q", len(name)) + name for name in encoded)
    )


@pytest.fixture(scope="session")
def dense_record() -> Builder:
    """Build one dense tensor: ``dense_record(shape, data, version=2, code=0, device=(1, 0), storage=0)``."""
    return _dense


@pytest.fixture(scope="session")
def params_list() -> Builder:
    """Build a whole file: ``params_list(records, names, count=None)``."""
    return _list
