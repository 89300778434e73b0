"""What dead processes left, what living ones hold, and reading while others save."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from mxamp.errors import ExportError, MxampWarning, ParamsError
from mxamp.files import atomic_write, settle_leftovers, unchanged_while_reading
from mxamp.files.lock import LOCK_NAME, folder_lock

needs_locks = pytest.mark.skipif(sys.platform == "win32", reason="needs flock")


def write_pair(folder, content):
    with atomic_write(folder / "m-symbol.json", folder / "m-0000.params") as files:
        for file in files:
            file.write(content)


def staging_of(folder):
    return [name for name in os.listdir(folder) if name.startswith(".mxamp-")]


@needs_locks
def test_a_save_that_goes_on_is_no_leftover(tmp_path):
    with atomic_write(tmp_path / "m-symbol.json", tmp_path / "m-0000.params") as files:
        settle_leftovers(tmp_path)
        write_pair(tmp_path, b"other")
        assert len(staging_of(tmp_path)) == 1
        for file in files:
            file.write(b"this")
    assert (tmp_path / "m-symbol.json").read_bytes() == b"this"
    assert sorted(os.listdir(tmp_path)) == ["m-0000.params", "m-symbol.json"]


@needs_locks
@pytest.mark.parametrize("name", [LOCK_NAME, ".mxamp-0123456789abcdef.save", ".mxamp-0123456789abcdef.gone"])
def test_what_a_dead_process_left_goes(tmp_path, name):
    if name == LOCK_NAME:
        (tmp_path / name).touch()
    else:
        (tmp_path / name / "new").mkdir(parents=True)
        (tmp_path / name / "new" / "m-0000.params").write_bytes(b"half")
    settle_leftovers(tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", [".mxamp-mine", ".mxamp-0123.save", "mxamp.lock", ".mxamp.toml"])
def test_what_only_looks_like_it_stays(tmp_path, name):
    (tmp_path / name).touch()
    settle_leftovers(tmp_path)
    write_pair(tmp_path, b"new")
    assert (tmp_path / name).exists()


def half_done(folder, side):
    """Build what is left when a process dies while the names are links."""
    staging = folder / ".mxamp-0123456789abcdef.save"
    for name in ("old", "new"):
        (staging / name).mkdir(parents=True)
        for file in ("m-symbol.json", "m-0000.params"):
            (staging / name / file).write_bytes(name.encode())
    (staging / "current").symlink_to(side)
    for file in ("m-symbol.json", "m-0000.params"):
        (folder / file).symlink_to(f"{staging.name}/current/{file}")


@needs_locks
@pytest.mark.parametrize("side", ["old", "new"])
def test_files_that_were_put_there_since_are_left_alone(tmp_path, side):
    half_done(tmp_path, side)
    (tmp_path / "m-symbol.json").unlink()
    (tmp_path / "m-symbol.json").write_bytes(b"the user's")
    settle_leftovers(tmp_path)
    assert (tmp_path / "m-symbol.json").read_bytes() == b"the user's"
    assert (tmp_path / "m-0000.params").read_bytes() == side.encode()
    assert not (tmp_path / "m-0000.params").is_symlink()
    assert staging_of(tmp_path) == []


@needs_locks
def test_a_folder_that_cannot_be_written_is_read_through_the_links(tmp_path, monkeypatch):
    half_done(tmp_path, "new")

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    settle_leftovers(tmp_path)
    monkeypatch.undo()
    assert (tmp_path / "m-symbol.json").read_bytes() == b"new"
    assert (tmp_path / "m-symbol.json").is_symlink()


@needs_locks
def test_a_save_over_what_a_dead_process_left_follows_no_link_into_it(tmp_path):
    half_done(tmp_path, "new")
    write_pair(tmp_path, b"newer")
    assert (tmp_path / "m-symbol.json").read_bytes() == b"newer"
    assert sorted(os.listdir(tmp_path)) == ["m-0000.params", "m-symbol.json"]


def test_a_committed_save_that_cannot_be_tidied_up_counts_and_warns(tmp_path, monkeypatch):
    write_pair(tmp_path, b"old")
    replace = os.replace

    def failing(source, destination):
        if os.fspath(source).endswith(os.path.join("new", "m-0000.params")):
            raise PermissionError(13, "Permission denied")
        replace(source, destination)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.warns(MxampWarning, match=r"cannot be removed yet: Permission denied.*tidies up"):
        write_pair(tmp_path, b"new")
    assert (tmp_path / "m-0000.params").read_bytes() == b"new"
    monkeypatch.undo()
    settle_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["m-0000.params", "m-symbol.json"]


@needs_locks
def test_who_does_not_let_go_is_named(tmp_path):
    with folder_lock(tmp_path) as locked:
        assert locked
        held = pytest.raises(ExportError, match=r"Another process is saving into .*\.mxamp\.lock")
        with held, folder_lock(tmp_path, patience=0.0):
            pytest.fail("two hold one lock")
    assert os.listdir(tmp_path) == []


@needs_locks
def test_threads_take_turns(tmp_path):
    letters = "abcdef"
    threads = [threading.Thread(target=write_pair, args=(tmp_path, letter.encode())) for letter in letters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    contents = {(tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    assert len(contents) == 1
    assert sorted(os.listdir(tmp_path)) == ["m-0000.params", "m-symbol.json"]


def test_where_there_are_no_locks_files_are_still_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr("mxamp.files.lock.try_lock", lambda descriptor: None)
    monkeypatch.setattr("mxamp.files.leftovers.try_lock", lambda descriptor: None)
    write_pair(tmp_path, b"old")
    write_pair(tmp_path, b"new")
    assert (tmp_path / "m-symbol.json").read_bytes() == b"new"
    assert sorted(os.listdir(tmp_path)) == ["m-0000.params", "m-symbol.json"]


# reading meanwhile


def test_files_that_were_replaced_in_between_are_read_again(tmp_path):
    write_pair(tmp_path, b"old")
    paths = [tmp_path / "m-symbol.json", tmp_path / "m-0000.params"]
    seen = []

    def read():
        symbol = paths[0].read_bytes()
        if not seen:
            write_pair(tmp_path, b"new")
        seen.append((symbol, paths[1].read_bytes()))
        return seen[-1]

    assert unchanged_while_reading(paths, read) == (b"new", b"new")
    assert seen[0] == (b"old", b"new"), "otherwise this shows nothing"


@pytest.mark.skipif(sys.platform == "win32", reason="needs symbolic links")
def test_a_link_whose_place_its_own_file_takes_is_read_again(tmp_path):
    """A save ends so; who followed the link to a folder that is gone by then finds nothing, and once only."""
    file, path, tries = tmp_path / "new", tmp_path / "x", []
    file.write_bytes(b"new")
    path.symlink_to(file)

    def read():
        tries.append(path)
        if len(tries) == 1:
            os.replace(file, path)
            raise FileNotFoundError(file)
        return path.read_bytes()

    assert unchanged_while_reading([path], read) == b"new"
    assert len(tries) == 2


def test_an_error_of_files_that_were_not_replaced_passes_through(tmp_path):
    def read():
        raise ParamsError("damaged")

    with pytest.raises(ParamsError, match="damaged"):
        unchanged_while_reading([tmp_path / "x"], read)


def test_files_that_never_keep_still_are_an_error(tmp_path):
    path = tmp_path / "x"
    count = iter(range(100))

    def read():
        path.write_bytes(b"x" * next(count))

    with pytest.raises(ParamsError, match="replaced again and again"):
        unchanged_while_reading([path], read)
