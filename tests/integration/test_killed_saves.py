"""Saves of whole models that are killed, or run out of disk: what mxamp and stock MXNet find afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import mxamp
from mxamp.files import settle_leftovers
from tests.integration.lettered import letter_of, model

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs signals and locks")


_SAVING = """
    import os, sys
    from tests.integration.lettered import model
    os.fsync = lambda descriptor: None  # slow, and of no account while the machine runs
    models = [model("a"), model("b")]
    print("ready", flush=True)
    while True:
        for model in models:
            model.save("net")
"""


@pytest.fixture
def saving(tmp_path, monkeypatch):
    """Return a function that starts a process which saves two models in turn as ``net``."""
    monkeypatch.chdir(tmp_path)
    started = []

    def start():
        process = subprocess.Popen(
            [sys.executable, "-B", "-c", textwrap.dedent(_SAVING)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        started.append(process)
        assert process.stdout.read(6) == b"ready\n"
        while not (tmp_path / "net-mxamp.json").exists():
            time.sleep(0.001)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_killed_while_saving_models_stock_mxnet_and_mxamp_load_one_of_them(saving, tmp_path):
    mx = pytest.importorskip("mxnet")
    from mxamp.runtime.symbol import graph_from_symbol

    for attempt in range(4):
        process = saving()
        time.sleep(0.05 + attempt * 0.0171)
        process.send_signal(signal.SIGKILL)
        process.wait()
        sym, args, _ = mx.model.load_checkpoint("net", 0)  # before mxamp could tidy up
        stock = letter_of(graph_from_symbol(sym), {name: value.asnumpy() for name, value in args.items()})
        loaded = mxamp.load("net")
        ours = letter_of(loaded.graph, {name: value.numpy() for name, value in loaded.arg_params.items()})
        assert ours == stock
        assert mxamp.verify("net"), "the provenance is another model's"
        assert sorted(os.listdir(tmp_path)) == ["net-0000.params", "net-mxamp.json", "net-symbol.json"]


def test_loading_while_another_process_saves_gives_whole_models(saving, tmp_path):
    process = saving()
    loads, seen = 0, set()
    patience = time.monotonic() + 60.0  # a busy machine may run the other process late
    while loads < 60 or (seen != {"a", "b"} and time.monotonic() < patience):
        loaded = mxamp.load("net")
        args = {name: value.numpy() for name, value in loaded.arg_params.items()}
        seen.add(letter_of(loaded.graph, args))
        loads += 1
    assert process.poll() is None
    assert seen == {"a", "b"}, "the other process saved nothing in a minute"


_FULL_DISK = """
    import os, sys
    from mxamp import load, verify
    from mxamp.errors import ExportError
    from tests.integration.lettered import letter_of, model

    os.chdir(sys.argv[1])
    new = model("b")
    failed = saved = 0
    for free in range(0, 40_000, 4096):
        for name in os.listdir():
            os.unlink(name)
        model("a").save("net")
        room = os.statvfs(".").f_bavail * os.statvfs(".").f_frsize
        with open("filler", "wb") as filler:
            filler.write(bytes(room - free))
        try:
            new.save("net")
            saved += 1
            expected = "b"
        except ExportError as error:
            assert "No space left on device" in str(error), error
            failed += 1
            expected = "a"
        assert sorted(os.listdir()) == ["filler", "net-0000.params", "net-mxamp.json", "net-symbol.json"]
        found = load("net")
        args = {name: value.numpy() for name, value in found.arg_params.items()}
        assert letter_of(found.graph, args) == expected, (free, expected)
        assert verify("net")
    print(failed, saved)
"""

_MOUNT = 'mount -t tmpfs -o size=256k none "$1" && shift && exec "$@"'


def test_a_file_system_that_is_really_full_keeps_the_old_pair(tmp_path):
    # In a mount namespace of its own: the file system goes with the process.
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("needs unshare, to mount a small file system")
    inside = [unshare, "--user", "--map-root-user", "--mount", "sh", "-c", _MOUNT, "sh", str(tmp_path)]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let a process mount a file system, even for itself")
    done = subprocess.run(
        [*inside, sys.executable, "-B", "-c", textwrap.dedent(_FULL_DISK), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    failed, saved = map(int, done.stdout.split())
    assert failed >= 2
    assert saved >= 2


def test_a_model_may_be_saved_where_a_dead_process_left_a_link(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model("a").save("net")
    staging = tmp_path / ".mxamp-0123456789abcdef.save"
    for side in ("old", "new"):
        (staging / side).mkdir(parents=True)
    os.replace("net-symbol.json", staging / "old" / "net-symbol.json")
    (staging / "current").symlink_to("old")
    (tmp_path / "net-symbol.json").symlink_to(f"{staging.name}/current/net-symbol.json")
    model("b").save("net")
    assert mxamp.verify("net")
    settle_leftovers(tmp_path)
    assert sorted(os.listdir()) == ["net-0000.params", "net-mxamp.json", "net-symbol.json"]
