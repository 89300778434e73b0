from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import textwrap

import pytest

from mxamp.errors import ExportError, ParamsError
from mxamp.files import atomic_write


@pytest.fixture
def pair(tmp_path):
    """Two destinations that exist with old content."""
    paths = tmp_path / "m-symbol.json", tmp_path / "m-0000.params"
    for path in paths:
        path.write_bytes(b"old")
    return paths


def contents(folder):
    return {entry.name: entry.read_bytes() for entry in folder.iterdir()}


def write_new(paths):
    with atomic_write(*paths) as files:
        for file in files:
            file.write(b"new")


def write_half(paths, error):
    with atomic_write(*paths) as files:
        files[0].write(b"half")
        raise error


OLD = {"m-symbol.json": b"old", "m-0000.params": b"old"}


def test_all_files_appear_at_the_end_and_not_before(tmp_path, pair):
    with atomic_write(*pair) as (symbol, params):
        symbol.write(b"new symbol")
        params.write(b"new params")
        symbol.flush()
        assert [path.read_bytes() for path in pair] == [b"old", b"old"]
    assert contents(tmp_path) == {"m-symbol.json": b"new symbol", "m-0000.params": b"new params"}


@pytest.mark.parametrize("error", [ParamsError("bad"), KeyboardInterrupt(), ZeroDivisionError()], ids=repr)
def test_an_error_in_the_block_passes_through_and_changes_nothing(tmp_path, pair, error):
    with pytest.raises(type(error)) as caught:
        write_half(pair, error)
    assert caught.value is error
    assert contents(tmp_path) == OLD


def test_an_error_of_the_operating_system_becomes_an_export_error(tmp_path, pair):
    with pytest.raises(ExportError, match=r"No space left on device.*nothing half-written") as caught:
        write_half(pair, OSError(errno.ENOSPC, "No space left on device"))
    assert str(pair[1]) in str(caught.value)
    assert contents(tmp_path) == OLD


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits on file size")
def test_a_real_failure_while_flushing_leaves_nothing(tmp_path):
    # A process that may write files of 4096 bytes at most: the buffered rest fails only at the flush.
    script = """
        import resource, signal, sys
        from mxamp.errors import ExportError
        from mxamp.files import atomic_write
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            with atomic_write(sys.argv[1]) as (file,):
                file.write(bytes(6000))
        except ExportError as error:
            print(error)
    """
    command = [sys.executable, "-B", "-c", textwrap.dedent(script), str(tmp_path / "x.params")]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": "."}
    )
    assert "File too large" in done.stdout
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("hard_links", [True, False], ids=["hard links", "no hard links"])
@pytest.mark.parametrize("existed", [True, False], ids=["replacing", "new"])
def test_when_a_later_rename_fails_the_first_is_undone(tmp_path, pair, monkeypatch, existed, hard_links):
    if not existed:
        for path in pair:
            path.unlink()
    replace = os.replace

    def failing_replace(source, destination):
        if os.fspath(destination) == str(pair[1]):
            raise PermissionError(errno.EACCES, "Permission denied")
        replace(source, destination)

    def no_link(source, destination):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "replace", failing_replace)
    if not hard_links:
        monkeypatch.setattr(os, "link", no_link)
    with pytest.raises(ExportError, match="Permission denied"):
        write_new(pair)
    assert contents(tmp_path) == (OLD if existed else {})


def test_no_backup_remains_after_success_without_hard_links(tmp_path, pair, monkeypatch):
    def no_link(source, destination):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "link", no_link)
    write_new(pair)
    assert contents(tmp_path) == dict.fromkeys(OLD, b"new")


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_permissions_follow_the_umask_and_an_existing_file_keeps_its_own(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.touch()
    old.chmod(0o640)
    before = os.umask(0o027)
    try:
        with atomic_write(old, new):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert stat.S_IMODE(new.stat().st_mode) == 0o640
    with atomic_write(tmp_path / "usual"):
        pass
    assert stat.S_IMODE((tmp_path / "usual").stat().st_mode) == 0o666 & ~before


def test_a_symbolic_link_stays_a_link(tmp_path, pair):
    link = tmp_path / "latest.params"
    link.symlink_to(pair[1])
    with atomic_write(link) as (file,):
        file.write(b"new")
    assert link.is_symlink()
    assert pair[1].read_bytes() == b"new"


def test_a_long_name_leaves_room_for_the_staged_file(tmp_path):
    path = tmp_path / ("x" * 250)
    with atomic_write(path) as (file,):
        file.write(b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("case", ["folder", "missing", "twice"])
def test_what_could_only_fail_halfway_is_refused_at_once(tmp_path, pair, case):
    second, words = {
        "folder": (tmp_path, "a folder has this name"),
        "missing": (tmp_path / "no" / "x", "does not exist"),
        "twice": (tmp_path / "." / pair[0].name, "twice"),
    }[case]
    with pytest.raises(ExportError, match=words), atomic_write(pair[0], second):
        pytest.fail("the block must not run")
    assert contents(tmp_path) == OLD


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_must_not_be_written_is_an_export_error(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ExportError, match="Permission denied"), atomic_write(tmp_path / "x"):
        pytest.fail("the block must not run")
