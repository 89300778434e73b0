"""``mxamp verify``: whether the files are still what was written."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def converted(mxamp, folder):
    assert mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out").status == 0
    return folder


def change_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "a byte of the parameters": (
        lambda folder: change_a_byte(folder / "out-0000.params"),
        "out-0000.params differs: it has its size but other content",
    ),
    "a byte of the symbol": (
        lambda folder: change_a_byte(folder / "out-symbol.json"),
        "out-symbol.json differs: it has its size but other content",
    ),
    "cut off": (
        lambda folder: (folder / "out-0000.params").write_bytes(b"x"),
        "out-0000.params differs: it has 1 bytes and",
    ),
    "another model's": (
        lambda folder: (folder / "net-0000.params").replace(folder / "out-0000.params"),
        "it was replaced, or appended to",
    ),
    "missing": (lambda folder: (folder / "out-symbol.json").unlink(), "out-symbol.json is missing"),
}


def test_untouched_files_pass(mxamp, converted):
    result = mxamp("verify", "out")
    assert result.status == 0, result.err
    assert [line.partition(" (")[0] for line in result.out.splitlines()] == [
        "out-symbol.json: as written",
        "out-0000.params: as written",
    ]
    assert mxamp("verify", "out-0000.params", "--quiet") == (0, "", "")


@pytest.mark.parametrize("case", DAMAGE)
def test_what_differs_is_named(mxamp, converted, case):
    damage, expected = DAMAGE[case]
    damage(converted)
    result = mxamp("verify", "out")
    assert result.status == 1
    assert expected in result.out
    assert expected in mxamp("verify", "out", "--quiet").out


def test_json_says_the_same(mxamp, converted):
    assert json.loads(mxamp("verify", "out", "--json").out)["intact"] is True
    change_a_byte(converted / "out-0000.params")
    result = mxamp("verify", "out", "--json")
    document = json.loads(result.out)
    assert result.status == 1
    assert document["intact"] is False
    symbol, params = document["files"]
    assert symbol["recorded"] == symbol["found"]
    assert set(params["recorded"].values()) - set(params["found"].values())
    assert list(params["recorded"]) == list(params["found"])
    assert "out-0000.params differs" in document["differences"][0]


def test_without_a_provenance_file_there_is_nothing_to_check_against(mxamp, converted):
    (converted / "out-mxamp.json").unlink()
    result = mxamp("verify", "out")
    assert result.status == 2
    assert "There is no 'out-mxamp.json', so out-symbol.json and out-0000.params cannot be" in result.err
    assert "files are not there either" in mxamp("verify", "nothing").err
    assert mxamp("inspect", "out").status == 0, "deleting it harms nothing"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is not valid JSON"),
        ("[]", "$ is no object"),
        ("{}", "$.format is None"),
        ('{"format": 3}', "$.format is 3, and mxamp"),
        ('{"format": 1, "format": 1}', "'format' twice"),
        ('{"format": 1, "written": {"symbol": {"sha256": "xyz"}}, "source": {}}', "is no SHA-256"),
        ("[" * 100_000, "nests JSON too deeply"),
    ],
    ids=["empty", "array", "no format", "newer", "repeated key", "no hash", "deep"],
)
def test_a_damaged_provenance_file_is_named_with_the_place(mxamp, converted, text, expected):
    (converted / "out-mxamp.json").write_text(text, "utf-8")
    result = mxamp("verify", "out")
    assert result.status == 2
    assert "out-mxamp.json" in result.err
    assert expected in result.err
    assert "Traceback" not in result.err


def test_another_epoch_has_a_provenance_of_its_own(mxamp, converted):
    from mxamp.model import load

    load("out").save("out", epoch=7)
    assert (converted / "out-mxamp-0007.json").exists()
    assert mxamp("verify", "out", "--epoch", "7").status == 0
    assert mxamp("verify", "out-0007.params").status == 0
    change_a_byte(converted / "out-0007.params")
    assert mxamp("verify", "out", "--epoch", "7").status == 1
    assert mxamp("verify", "out").status == 0


def test_no_file_is_written(mxamp, converted):
    before = {path.name: path.stat().st_mtime_ns for path in converted.iterdir()}
    mxamp("verify", "out")
    assert {path.name: path.stat().st_mtime_ns for path in converted.iterdir()} == before
