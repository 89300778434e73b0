"""Whenever a process is killed while it saves, the old files are there or the new ones, never a mix."""

from __future__ import annotations

import os
import signal
import time

import pytest

from mxamp.errors import ExportError
from mxamp.files import atomic_write, settle_leftovers
from tests.files.breaking import SPACE_TAKING, Breaking, dies_at_each_call, fill_up

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be forked")


@pytest.fixture(autouse=True)
def disk_that_needs_no_waiting(monkeypatch):
    """Do not wait for the disk, which takes most of the time and is of no account while the machine runs."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


NAMES = ("m-symbol.json", "m-0000.params", "m-mxamp.json")
NONE = dict.fromkeys(NAMES)
OLD = dict.fromkeys(NAMES, b"old")
NEW = dict.fromkeys(NAMES, b"new")
WITHOUT_THIRD = {**NEW, "m-mxamp.json": None}


def fill(folder, before):
    for name, content in before.items():
        if content is not None:
            (folder / name).write_bytes(content)


def seen(folder):
    """Return what a reader that knows nothing of mxamp finds under the names."""
    return {name: (folder / name).read_bytes() if (folder / name).exists() else None for name in NAMES}


def save(folder, after):
    written = [folder / name for name, content in after.items() if content is not None]
    removed = [folder / name for name, content in after.items() if content is None]
    with atomic_write(*written, remove=removed) as files:
        for file in files:
            file.write(b"new")


def listing(folder, content):
    """Check the names in a folder, which are to be those of ``content`` and no others."""
    assert sorted(os.listdir(folder)) == sorted(name for name, value in content.items() if value is not None)
    return True


def refuse(*_, **__):
    raise OSError(95, "Operation not supported")


CASES = pytest.mark.parametrize(
    ("before", "after"),
    [(OLD, NEW), (NONE, NEW), (OLD, WITHOUT_THIRD), ({**OLD, "m-mxamp.json": None}, NEW)],
    ids=["replacing", "new", "removing one", "adding one"],
)


@pytest.mark.parametrize(
    ("before", "after", "missing"),
    [
        pytest.param(OLD, NEW, None, id="replacing"),
        pytest.param(NONE, NEW, None, id="new"),
        pytest.param(OLD, WITHOUT_THIRD, None, id="removing one"),
        pytest.param({**OLD, "m-mxamp.json": None}, NEW, None, id="adding one"),
        pytest.param(OLD, NEW, "link", id="no hard links"),
    ],
)
def test_killed_anywhere_it_leaves_the_old_files_or_the_new_ones_for_any_reader(
    tmp_path, monkeypatch, before, after, missing
):
    if missing:
        monkeypatch.setattr(os, missing, refuse)
    outcomes = []
    folder = tmp_path / "first"
    folder.mkdir()
    fill(folder, before)

    def work():
        save(folder, after)

    for number in dies_at_each_call(monkeypatch, work):
        found = seen(folder)
        assert found in (before, after), f"killed at call {number}"
        settle_leftovers(folder)
        assert seen(folder) == found
        assert listing(folder, found)
        outcomes.append(found == after)
        folder = tmp_path / str(number)
        folder.mkdir()
        fill(folder, before)
    assert outcomes == sorted(outcomes), "it was new and became old again"
    assert True in outcomes
    assert False in outcomes


@CASES
def test_without_symbolic_links_there_is_for_a_moment_no_model_but_never_a_mix(
    tmp_path, monkeypatch, before, after
):
    monkeypatch.setattr(os, "symlink", refuse)
    monkeypatch.setattr(os, "link", refuse)
    folder = tmp_path / "first"
    folder.mkdir()
    fill(folder, before)

    def work():
        save(folder, after)

    for number in dies_at_each_call(monkeypatch, work):
        values = {value for name, value in seen(folder).items() if after[name] is not None}
        assert not {b"old", b"new"} <= values, f"a mix: killed at call {number}"
        settle_leftovers(folder)
        found = seen(folder)
        assert found in (before, after), f"killed at call {number}"
        assert listing(folder, found)
        folder = tmp_path / str(number)
        folder.mkdir()
        fill(folder, before)


def test_what_a_step_relies_on_is_on_the_disk_before_it(tmp_path, monkeypatch):
    """A power cut may undo what was not synced, in any order; no step may then lead into nothing."""
    fill(tmp_path, OLD)
    unsynced = set()
    steps = []

    def watch(name):
        call = getattr(os, name)

        def watched(*args, **options):
            source, destination = os.fspath(args[0]), os.fspath(args[-1])
            folder, file = os.path.split(destination)
            if name == "replace" and file == "current":
                steps.append(("switch", set(unsynced)))
            elif name == "replace" and os.path.basename(os.path.dirname(source)) == "new":
                steps.append(("new file", set(unsynced) - {folder, os.path.dirname(source)}))
            elif name == "replace" and os.path.basename(source) == "link":
                steps.append(("link", set(unsynced) - {folder, os.path.dirname(source)}))
            elif name == "rename":
                steps.append(("tidy", set(unsynced) - {os.path.join(source, "new")}))
            result = call(*args, **options)
            unsynced.add(folder)
            return result

        monkeypatch.setattr(os, name, watched)

    for name in ("mkdir", "link", "symlink", "replace", "rename"):
        watch(name)
    paths = {}

    def sync(descriptor):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        paths[path] = os.fstat(descriptor).st_size
        unsynced.discard(path)

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc to tell which file is synced")
    monkeypatch.setattr(os, "fsync", sync)
    save(tmp_path, NEW)
    # What the switch itself prepares in its own folder it needs not: without it the old side is shown.
    (staging,) = {path for path in paths if path.endswith(".save")}
    needed = [(step, rest - {staging} if step == "switch" else rest) for step, rest in steps]
    assert needed == [
        *[("link", set())] * 3,
        ("switch", set()),
        *[("new file", set())] * 3,
        ("tidy", set()),
    ]
    written = {name: size for path, size in paths.items() for name in NAMES if path.endswith(f"new/{name}")}
    assert written == dict.fromkeys(NAMES, len(b"new")), "contents come before names"


def test_killed_again_while_it_is_settled_it_still_is_old_or_new(tmp_path, monkeypatch):
    folder = tmp_path / "first"
    folder.mkdir()
    fill(folder, OLD)

    def work():
        save(folder, NEW)

    for number in dies_at_each_call(monkeypatch, work):
        found = seen(folder)
        if number % 3 == 0:  # all of them would take a while
            for _ in dies_at_each_call(monkeypatch, lambda: settle_leftovers(folder)):  # noqa: B023  used at once
                assert seen(folder) == found
        settle_leftovers(folder)
        assert seen(folder) == found
        assert listing(folder, found)
        folder = tmp_path / str(number)
        folder.mkdir()
        fill(folder, OLD)


@CASES
@pytest.mark.parametrize("lasting", [True, False], ids=["stays full", "full once"])
def test_a_disk_that_is_full_at_any_step_leaves_the_old_files(tmp_path, monkeypatch, before, after, lasting):
    number = 0
    while True:
        number += 1
        folder = tmp_path / str(number)
        folder.mkdir()
        fill(folder, before)
        with pytest.MonkeyPatch.context() as patch:
            breaking = Breaking(patch, SPACE_TAKING, number, fill_up, lasting=lasting)
            try:
                save(folder, after)
                error = None
            except ExportError as raised:
                error = raised
            reached = breaking.count >= number
        found = seen(folder)
        assert found in (before, after)
        if error is None:
            assert found == after
        else:
            assert "No space left on device" in str(error)
            assert found == before
        settle_leftovers(folder)  # a disk that is full for good may keep the folder from being locked
        assert listing(folder, found)
        if not reached:
            assert error is None
            return


def test_a_rename_that_fails_once_is_not_the_end(tmp_path, monkeypatch):
    number = 0
    while True:
        number += 1
        folder = tmp_path / str(number)
        folder.mkdir()
        fill(folder, OLD)
        with pytest.MonkeyPatch.context() as patch:
            breaking = Breaking(patch, ["replace"], number, fill_up)
            try:
                save(folder, NEW)
                expected = NEW
            except ExportError:
                expected = OLD
            reached = breaking.count >= number
        assert seen(folder) == expected
        assert listing(folder, expected)
        if not reached:
            return


def start_saving(pair, letters):
    """Start a process that saves the files of a pair, full of one letter, then of the next, without end."""
    child = os.fork()
    if child:
        return child
    try:
        while True:
            for letter in letters:
                with atomic_write(*pair) as files:
                    for file in files:
                        file.write(letter * 200_000)
    finally:
        os._exit(1)


def kill(child):
    """Kill a process that saves, and return whether it was doing so until then."""
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_killed_at_random_moments_the_pair_is_one_of_the_two(tmp_path):
    pair = tmp_path / "m-symbol.json", tmp_path / "m-0000.params"
    for path in pair:
        path.write_bytes(b"a" * 200_000)
    for attempt in range(25):
        saving = start_saving(pair, [b"a", b"b"])
        time.sleep(0.02 + attempt * 0.00037)
        assert kill(saving)
        symbol, params = (path.read_bytes() for path in pair)
        assert symbol == params
        assert symbol in (b"a" * 200_000, b"b" * 200_000)
        settle_leftovers(tmp_path)
        assert sorted(os.listdir(tmp_path)) == ["m-0000.params", "m-symbol.json"]
        assert [path.read_bytes() for path in pair] == [symbol, params]


def test_of_processes_that_save_to_the_same_names_one_wins_whole(tmp_path):
    pair = tmp_path / "m-symbol.json", tmp_path / "m-0000.params"
    savers = [start_saving(pair, letters) for letters in ([b"a", b"b"], [b"c", b"d"], [b"e", b"f"])]
    time.sleep(1.0)
    for saver in savers:
        assert kill(saver), "it failed"
    symbol, params = (path.read_bytes() for path in pair)
    assert symbol == params
    settle_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["m-0000.params", "m-symbol.json"]
