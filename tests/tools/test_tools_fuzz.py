"""The fuzzer's own parts: files to begin with, mutators, and what it says where atheris is missing."""

from __future__ import annotations

import random
import sys

import pytest

import tools.fuzz
import tools.fuzz_targets
from mxamp.graph import parse_symbol
from mxamp.params.index import parse_index
from tools.fuzz_targets import TARGETS


def test_every_file_to_begin_with_is_a_good_one(tmp_path):
    for seed in TARGETS["symbol"].seeds:
        assert parse_symbol(seed.decode()).nodes
    for seed in TARGETS["params"].seeds:
        assert parse_index(tmp_path, seed).size == len(seed)


@pytest.mark.parametrize("name", TARGETS)
def test_a_mutator_gives_the_same_for_the_same_numbers_and_seldom_what_it_was_given(name):
    target = TARGETS[name]
    for seed in target.seeds:
        changed = [target.mutate(seed, random.Random(number)) for number in range(30)]
        assert changed == [target.mutate(seed, random.Random(number)) for number in range(30)]
        assert sum(data != seed for data in changed) > 20


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"[" * 5000, b'{"nodes": 5}'])
def test_mutators_take_any_bytes(data):
    for target in TARGETS.values():
        for number in range(20):
            assert isinstance(target.mutate(data, random.Random(number)), bytes)


def test_an_exception_that_is_not_ours_is_not_caught(monkeypatch):
    def broken(*_, **__):
        raise IndexError("list index out of range")

    for reader in ("parse_symbol", "parse_index"):
        monkeypatch.setattr(tools.fuzz_targets, reader, broken)
    for target in TARGETS.values():
        with pytest.raises(IndexError):
            target.run(b"{}")


def test_without_atheris_the_fuzzer_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "atheris", None)
    assert tools.fuzz.main(["symbol"]) == 1
    assert "pip install -e '.[fuzz]'" in capsys.readouterr().err
