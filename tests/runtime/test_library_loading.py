"""Loading the operator library: once, quietly, and with clear errors."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mxamp.errors import LibraryError, MxampError
from mxamp.ops import build as building
from mxamp.ops import libraries

mx = pytest.importorskip("mxnet", reason="the library is loaded into MXNet")

from mxamp.ops.rounding import ROUND_BOTH_WAYS
from mxamp.runtime import library

COMPILER = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")


@pytest.fixture
def not_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let load_operators believe that nothing is loaded, and nothing built; return where it would build."""
    monkeypatch.setattr(library, "is_loaded", lambda mx: False)
    monkeypatch.setattr(libraries, "folders", lambda: (tmp_path,))
    return tmp_path


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )


def build_shared(folder: Path, name: str, source: str) -> Path:
    """Compile a library of one file."""
    code, built = folder / f"{name}.c", folder / f"{name}.so"
    code.write_text(source)
    assert COMPILER is not None
    subprocess.run([COMPILER, "-x", "c", "-shared", "-fPIC", str(code), "-o", str(built)], check=True)
    return built


def test_loading_is_quiet_and_leaves_mxnet_as_it_was() -> None:
    done = run_python(
        """
import sys
import mxnet as mx
from mxamp.runtime.library import load_operators
modules = [module for name, module in sys.modules.items() if name.split(".")[0] == "mxnet"]
assert mx.sym.contrib in modules and mx.nd._internal in modules
before = [(module, dict(vars(module)), list(getattr(module, "__all__", ()))) for module in modules]
load_operators()
load_operators()
for module, attributes, listed in before:
    changed = [name for name, value in attributes.items() if getattr(module, name) is not value]
    assert not changed, (module, changed)
    added = [name for name in getattr(module, "__all__", ())[len(listed):] if "_mxamp_" not in name]
    assert not added, (module, added)
assert mx.nd._internal._mxamp_round(mx.nd.ones(1), format="float16").asnumpy() == [1]
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_graph_with_the_operators_does_not_load_in_stock_mxnet(tmp_path: Path) -> None:
    path = tmp_path / "symbol.json"
    library.round_values(mx.sym.var("data"), "float16").save(str(path))
    done = run_python(f"import mxnet as mx; mx.sym.load({str(path)!r})")
    assert done.returncode == 1
    assert "Operator _mxamp_round is not registered" in done.stderr


def test_a_library_is_loaded_once_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    library.load_operators()
    monkeypatch.setattr(mx.library, "load", lambda *args, **kwargs: pytest.fail("loaded again"))
    library.load_operators()


def test_what_is_built_is_loaded_from_an_absolute_path(
    not_loaded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Path] = []
    monkeypatch.setattr(library, "load_library", lambda mx, path: loaded.append(path))
    monkeypatch.setattr(library, "build", lambda wanted: pytest.fail("built again"))
    wanted = building.operators_library()
    (not_loaded / wanted.file_name).touch()
    library.load_operators()
    assert loaded == [not_loaded / wanted.file_name]
    assert loaded[0].is_absolute()


def test_what_is_not_built_yet_is_built(not_loaded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Path] = []
    monkeypatch.setattr(library, "load_library", lambda mx, path: loaded.append(path))
    monkeypatch.setattr(library, "build", lambda wanted: not_loaded / f"new {wanted.file_name}")
    library.load_operators()
    assert loaded == [not_loaded / f"new {building.operators_library().file_name}"]


def test_what_was_built_for_another_mxnet_is_built_again(
    not_loaded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Path] = []
    monkeypatch.setattr(libraries, "mxnet_version", lambda package: "1.8.0")
    (not_loaded / libraries.operators_library().file_name).touch()
    monkeypatch.undo()
    monkeypatch.setattr(library, "is_loaded", lambda mx: False)
    monkeypatch.setattr(libraries, "folders", lambda: (not_loaded,))
    monkeypatch.setattr(library, "load_library", lambda mx, path: loaded.append(path))
    monkeypatch.setattr(library, "build", lambda wanted: not_loaded / "new.so")
    library.load_operators()
    assert loaded == [not_loaded / "new.so"]


def test_without_a_compiler_the_error_says_what_to_install(
    not_loaded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(not_loaded))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(LibraryError, match=r"there is no C\+\+ compiler .* sudo apt install g\+\+"):
        library.load_operators()
    with pytest.raises(LibraryError, match=r"there is no C\+\+ compiler"):
        library.round_values(mx.sym.var("data"), "float16")


def refused(path: Path) -> str:
    """Return what loading a file says, which is an error; and check that MXNet is left as it was."""
    before = {module: dict(vars(module)) for module in (mx.nd, mx.sym)}
    with pytest.raises(LibraryError) as raised:
        library.load_library(mx, path)
    for module, attributes in before.items():
        assert all(getattr(module, name) is value for name, value in attributes.items())
    assert isinstance(raised.value, MxampError)
    message = str(raised.value)
    assert f"MXNet {mx.__version__} does not load the operator library {path}: " in message
    assert message.endswith(
        "Remove that file and build the library for this MXNet: python -m mxamp.ops.build operators"
    )
    assert "Traceback" not in message
    assert "\n" not in message
    return message


@needs_compiler
def test_a_library_for_another_mxnet_is_refused_by_version(tmp_path: Path) -> None:
    wanted = building.operators_library()
    options = [
        "-DMXAMP_MXNET_VERSION=10800" if "MXNET_VERSION" in option else option for option in wanted.options
    ]
    quick = tuple("-O0" if option == "-O3" else option for option in options)
    # Without the kernels, which are looked up when they are called first.
    files = tuple(path for path in wanted.files if path.name == "operators.cc")
    other = dataclasses.replace(wanted, files=files, options=quick, file_name="other.so")
    message = refused(building.build(other, folder=tmp_path))
    assert "It was built for MXNet 1.8.0, and this is MXNet 1.9.1." in message


@needs_compiler
def test_a_library_with_another_interface_is_refused(tmp_path: Path) -> None:
    message = refused(build_shared(tmp_path, "interface", "int _opVersion(void) { return 7; }"))
    assert "Library version (7) does not match MXNet version (11)." in message


@needs_compiler
def test_a_library_that_is_not_mxnets_is_refused(tmp_path: Path) -> None:
    message = refused(build_shared(tmp_path, "other", "int nothing;"))
    assert "undefined symbol: _opVersion." in message


def test_a_damaged_library_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "damaged.so"
    path.write_bytes(b"\x7fELF and no more")
    assert "file too short." in refused(path)


def test_a_library_that_is_gone_is_refused(tmp_path: Path) -> None:
    assert "does NOT exist." in refused(tmp_path / "gone.so")


def test_without_mxnet_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mxnet", None)
    with pytest.raises(MxampError, match="This needs MXNet, which cannot be imported"):
        library.load_operators()


def test_the_library_adds_its_operators_and_no_others() -> None:
    library.load_operators()
    assert [name for name in dir(mx.nd._internal) if name.startswith("_mxamp")] == [
        library.OBSERVE,
        library.ROUND,
        ROUND_BOTH_WAYS,
    ]
