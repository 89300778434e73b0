"""Building the native libraries: compilers missing or failing, folders, libraries that no longer fit."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mxamp.errors import LibraryError, MxampWarning
from mxamp.messages.installation import install_hint
from mxamp.ops import kernels as kernels_module
from mxamp.ops import libraries
from mxamp.ops.build import build, main
from mxamp.ops.kernels import kernels, load_kernels
from mxamp.ops.libraries import Library, find_built, kernels_library, operators_library

ROOT = Path(__file__).resolve().parent.parent.parent

needs_compiler = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("c++", "g++", "clang++")) and not os.environ.get("CXX"),
    reason="no C++ compiler",
)


def small_library(folder: Path, text: str = 'extern "C" int answer() { return 42; }\n') -> Library:
    """Make a library that takes no time to compile."""
    source = folder / "answer.cc"
    source.write_text(text, encoding="utf-8")
    return dataclasses.replace(
        kernels_library(),
        file_name="libmxamp_kernels-0123456789abcdef.so",
        files=(source,),
        options=("-shared", "-fPIC"),
    )


@pytest.fixture
def package_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have libraries looked for in empty folders, and nothing remembered."""
    folder = tmp_path / "package" / "lib"
    monkeypatch.setattr(libraries, "PACKAGE_FOLDER", folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("MXAMP_NATIVE", raising=False)
    kernels_module.found_kernels.cache_clear()
    monkeypatch.setattr(kernels_module, "found_kernels", kernels_module.found_kernels.__wrapped__)
    return folder


def test_no_compiler_is_an_error_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        LibraryError, match=r"no C\+\+ compiler .* apt install g\+\+.* environment variable CXX"
    ):
        build(kernels_library(), folder=tmp_path / "lib")
    assert not (tmp_path / "lib").exists()


def test_a_compiler_that_does_not_exist_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    with pytest.raises(LibraryError, match=r"CXX is 'no-such-compiler -O2', and there is no program"):
        build(kernels_library(), folder=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(shutil.which("false") is None, reason="no program that fails")
def test_a_compiler_that_says_nothing_is_quoted_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(shutil.which("false")))
    with pytest.raises(LibraryError, match=r"false failed with status 1\b(.|\n)*It said: \(nothing\)"):
        build(kernels_library(), folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_compiler_that_cannot_be_run_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "compiler"
    program.write_bytes(b"\x7fELF no program")
    program.chmod(0o755)
    monkeypatch.setenv("CXX", str(program))
    with pytest.raises(LibraryError, match="compiler cannot be run"):
        build(kernels_library(), folder=tmp_path / "lib")
    assert not list((tmp_path / "lib").iterdir())


@needs_compiler
def test_what_the_compiler_says_is_quoted_and_nothing_is_left(tmp_path: Path) -> None:
    library = small_library(tmp_path, "int broken( { nonsense\n")
    with pytest.raises(LibraryError, match=r"answer\.cc:1(.|\n)*error"):
        build(library, folder=tmp_path / "lib")
    assert not list((tmp_path / "lib").iterdir())


@needs_compiler
def test_options_in_cxx_reach_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = next(name for name in ("c++", "g++", "clang++") if shutil.which(name))
    monkeypatch.setenv("CXX", f"{compiler} -DEXTRA=broken(")
    library = small_library(tmp_path, 'extern "C" int answer() { return EXTRA; }\n')
    with pytest.raises(LibraryError, match=r"broken"):
        build(library, folder=tmp_path)


@needs_compiler
def test_many_may_build_the_same_library_at_once(tmp_path: Path) -> None:
    library = small_library(tmp_path)
    paths = []
    threads = [
        threading.Thread(target=lambda: paths.append(build(library, folder=tmp_path / "lib")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert paths == [(tmp_path / "lib" / library.file_name).resolve()] * 4
    assert [path.name for path in (tmp_path / "lib").iterdir()] == [library.file_name]


@needs_compiler
def test_a_library_goes_to_the_cache_where_the_package_cannot_be_written_to(
    package_folder: Path, tmp_path: Path
) -> None:
    package_folder.parent.mkdir()
    package_folder.write_text("a file where the folder should be", encoding="utf-8")
    library = small_library(tmp_path)
    assert find_built(library) is None
    path = build(library)
    assert path == (tmp_path / "cache" / "mxamp" / library.file_name).resolve()
    assert find_built(library) == path


def test_nowhere_to_write_is_an_error_that_names_the_folders(
    package_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    obstacle = tmp_path / "file"
    obstacle.write_text("", encoding="utf-8")
    monkeypatch.setattr(libraries, "PACKAGE_FOLDER", obstacle / "lib")
    monkeypatch.setenv("XDG_CACHE_HOME", str(obstacle / "cache"))
    monkeypatch.setenv("CXX", sys.executable)
    with pytest.raises(LibraryError, match=r"nothing can be written to .*lib .* or .*cache.*XDG_CACHE_HOME"):
        build(small_library(tmp_path))


def test_a_relative_cache_folder_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert libraries.folders()[1] == Path("/home/somebody/.cache/mxamp")


@needs_compiler
def test_building_removes_what_earlier_sources_made(package_folder: Path, tmp_path: Path) -> None:
    package_folder.mkdir(parents=True)
    old = package_folder / "libmxamp_kernels-ffffffffffffffff.so"
    other = package_folder / "libmxamp_operators-mxnet1.9.1-ffffffffffffffff.so"
    old.touch()
    other.touch()
    built = build(small_library(tmp_path))
    assert sorted(package_folder.iterdir()) == sorted([built, other])


def test_changed_sources_make_another_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = kernels_library()
    shutil.copytree(str(libraries.SOURCES), str(tmp_path / "src"))
    monkeypatch.setattr(libraries, "SOURCES", tmp_path / "src")
    assert kernels_library().source == before.source
    with (tmp_path / "src" / "rounding.h").open("a", encoding="utf-8") as file:
        file.write("// changed\n")
    assert kernels_library().file_name != before.file_name


def test_missing_sources_are_a_damaged_installation(
    package_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "SOURCES", tmp_path)
    with pytest.raises(LibraryError, match="Install mxamp again"):
        kernels_library()


def test_operators_need_an_mxnet_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    hint = re.escape(install_hint("mxnet"))
    with pytest.raises(LibraryError, match=rf"no mxnet package is installed .*{hint}"):
        operators_library()


def fake_mxnet(folder: Path, version: str) -> Path:
    for name, text in (
        ("include/mxnet/lib_api.h", "// declarations\n"),
        ("src/lib_api.cc", "// definitions\n"),
        ("libinfo.py", f'__version__ = "{version}"\n'),
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_operators_are_for_one_version_of_mxnet_wherever_it_lies(tmp_path: Path) -> None:
    first = operators_library(fake_mxnet(tmp_path / "first", "1.9.1"))
    moved = operators_library(fake_mxnet(tmp_path / "moved", "1.9.1"))
    other = operators_library(fake_mxnet(tmp_path / "other", "1.8.0.post0"))
    assert first.file_name == moved.file_name
    assert first.file_name.startswith("libmxamp_operators-mxnet1.9.1-")
    assert "-DMXAMP_MXNET_VERSION=10901" in first.options
    assert other.file_name.startswith("libmxamp_operators-mxnet1.8.0-")
    assert "-DMXAMP_MXNET_VERSION=10800" in other.options


def test_an_mxnet_without_its_headers_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    package = fake_mxnet(tmp_path, "1.9.1")
    (package / "src" / "lib_api.cc").unlink()
    with pytest.raises(LibraryError, match=r"lib_api\.cc is missing"):
        operators_library(package)


def test_an_mxnet_of_no_version_is_an_error(tmp_path: Path) -> None:
    package = fake_mxnet(tmp_path, "1.9.1")
    (package / "libinfo.py").write_text("", encoding="utf-8")
    with pytest.raises(LibraryError, match="does not say which MXNet"):
        operators_library(package)


def test_kernels_are_none_where_they_were_not_built(package_folder: Path) -> None:
    assert kernels() is None


def test_kernels_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXAMP_NATIVE", "0")
    assert kernels() is None


def test_kernels_that_cannot_be_loaded_are_reported_and_not_used(package_folder: Path) -> None:
    package_folder.mkdir(parents=True)
    (package_folder / kernels_library().file_name).write_bytes(b"no library")
    with pytest.warns(MxampWarning, match=r"computes with NumPy, which is slower: .* cannot be loaded"):
        assert kernels() is None


VERSIONS = {
    "another interface": (2, "{source}", "has version 2 of the kernels' interface"),
    "other sources": (1, "0000", r"was built from other sources \(0000\)"),
    "unknown sources": (1, "", r"was built from other sources \(unknown\)"),
}


@needs_compiler
@pytest.mark.parametrize("name", VERSIONS)
def test_a_library_that_does_not_fit_is_refused(tmp_path: Path, name: str) -> None:
    version, source, message = VERSIONS[name]
    source = source.format(source=kernels_library().source)
    library = small_library(
        tmp_path,
        f'extern "C" int mxamp_kernels_version() {{ return {version}; }}\n'
        f'extern "C" const char* mxamp_kernels_source() {{ return "{source}"; }}\n',
    )
    path = build(library, folder=tmp_path)
    with pytest.raises(LibraryError, match=message):
        load_kernels(path, kernels_library())


def test_the_command_reports_what_it_cannot_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert main(["kernels", "--folder", str(tmp_path)]) == 1
    assert "mxamp: The kernels library of mxamp cannot be built" in capsys.readouterr().err


def test_the_command_knows_its_libraries(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["colonels"])
    assert "there is no library 'colonels': use kernels or operators" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("false") is None, reason="no program that fails")
def test_installing_succeeds_without_a_compiler_that_works(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    completed = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(tmp_path / "lib")],
        cwd=str(ROOT),
        env={**os.environ, "CXX": str(shutil.which("false"))},
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert completed.returncode == 0, completed.stdout
    assert "warning: mxamp is installed without a native library" in completed.stdout
    assert not list(tmp_path.rglob("*.so"))
