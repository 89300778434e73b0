from __future__ import annotations

import hashlib
import io
import os
import sys
import time
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxamp.errors import DigestMissingError, ExportError
from mxamp.files import StagedFile, digest
from mxamp.files.digest import ALGORITHMS, fastest_algorithm, new_digest

try:
    import blake3
except ImportError:
    blake3 = None

MEGABYTE = 1 << 20


@pytest.fixture
def staged(tmp_path):
    with StagedFile(tmp_path / "staged", "m.params") as file:
        yield file


def digest_of(content):
    known = {"SHA-256": hashlib.sha256(content), "BLAKE2b": hashlib.blake2b(content, digest_size=32)}
    if fastest_algorithm() == "BLAKE3":
        return blake3.blake3(content).hexdigest()
    return known[fastest_algorithm()].hexdigest()


def test_the_hash_is_the_one_that_is_computed_faster_here(monkeypatch):
    class Slow:
        def update(self, data):
            time.sleep(0.001)

    for fast in ALGORITHMS:
        if fast == "BLAKE3" and blake3 is None:
            continue
        fastest_algorithm.cache_clear()
        slow = {name: Slow for name in ALGORITHMS if name != fast}
        monkeypatch.setattr(digest, "ALGORITHMS", {**ALGORITHMS, **slow})
        assert fastest_algorithm() == fast
    fastest_algorithm.cache_clear()


def test_a_hash_that_is_not_installed_is_not_chosen_and_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "blake3", None)
    fastest_algorithm.cache_clear()
    assert fastest_algorithm() in ("SHA-256", "BLAKE2b")
    fastest_algorithm.cache_clear()
    with pytest.raises(DigestMissingError, match="pip install blake3"):
        new_digest("BLAKE3")


@pytest.mark.skipif(blake3 is None, reason="needs the package blake3, which not every machine has")
def test_blake3_is_that_of_its_authors():
    # From the official test vectors: the input is the bytes 0, 1 ... 250 again and again.
    found = new_digest("BLAKE3")
    found.update(bytes(number % 251 for number in range(1024)))
    assert found.hexdigest() == "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"


@pytest.mark.parametrize("size", [0, 1, 70_000, 3 * MEGABYTE], ids=["nothing", "a byte", "small", "large"])
def test_the_hash_and_the_size_are_those_of_the_file(staged, size):
    content = os.urandom(size)
    staged.write(content)
    staged.sync()
    assert staged.path.read_bytes() == content
    assert staged.digest == digest_of(content)
    assert staged.size == staged.tell() == size


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(0, 200_000), max_size=8))
def test_the_pieces_do_not_depend_on_how_it_was_written(tmp_path_factory, cuts):
    content = bytes(range(256)) * 800
    folder = tmp_path_factory.mktemp("staged")
    places = [0, *sorted(cuts), len(content)]
    with StagedFile(folder / "a", "a") as once, StagedFile(folder / "b", "b") as often:
        once.write(content)
        for start, stop in zip(places, places[1:]):
            often.write(memoryview(content)[start:stop])
        assert often.pieces == once.pieces
        assert often.digest == once.digest
        assert often.read_back() == len(content)


def test_pieces_are_spread_over_a_large_file_and_few(staged):
    part = os.urandom(MEGABYTE)
    for _ in range(40):
        staged.write(part)
    assert staged.read_back() <= 128 * (64 << 10)
    numbers = sorted(staged.pieces)
    assert 64 <= len(numbers) <= 128
    assert numbers[0] == 0
    assert numbers[-1] >= 640 - 10
    assert len({after - before for before, after in zip(numbers, numbers[1:])}) == 1


def test_rewound_it_is_a_new_file(staged):
    staged.write(b"x" * 100)
    staged.seek(0)
    staged.truncate()
    staged.write(b"new")
    staged.sync()
    assert staged.path.read_bytes() == b"new"
    assert staged.digest == digest_of(b"new")
    assert staged.read_back() == 3


def test_no_other_place_can_be_sought(staged):
    staged.write(b"xyz")
    with pytest.raises(io.UnsupportedOperation):
        staged.seek(1)
    with pytest.raises(io.UnsupportedOperation):
        staged.truncate(1)


@pytest.mark.parametrize("case", ["another byte", "shorter", "longer"])
def test_a_disk_that_holds_something_else_is_noticed(staged, case):
    staged.write(bytes(100_000))
    staged.sync()
    with open(staged.path, "r+b") as file:
        if case == "another byte":
            file.seek(99_999)
            file.write(b"x")
        else:
            file.truncate(99_999 if case == "shorter" else 100_001)
    with pytest.raises(ExportError, match=r"m\.params reads back differently .*disk") as caught:
        staged.read_back()
    assert ("byte 65536" if case == "another byte" else "100000 were written") in str(caught.value)


def test_the_checksum_of_a_piece_is_that_of_its_bytes(staged):
    content = os.urandom(200_000)
    staged.write(content[:100_000])
    staged.write(content[100_000:])
    size = 64 << 10
    assert staged.pieces == {
        number: zlib.crc32(content[number * size : (number + 1) * size]) for number in range(4)
    }
