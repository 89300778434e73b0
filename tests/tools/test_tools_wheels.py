"""What users install: the checks of wheels, the page of the package, the version, the container."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import mxamp
from tools import installed, wheels

ROOT = Path(__file__).resolve().parents[2]
NAME = "mxamp-0.1.0-py3-none-manylinux_2_24_x86_64.whl"
FILES = {"mxamp/__init__.py", "mxamp/py.typed"}
LIBRARIES = {
    "mxamp/ops/lib/libmxamp_kernels-0123.so",
    "mxamp/ops/lib/libmxamp_operators-mxnet1.9.1-4567.so",
}
METADATA = "\n".join(
    [
        *(
            "Name: mxamp",
            "Version: 0.1.0",
            "Summary: s",
            "Requires-Python: >=3.8",
            "Keywords: k",
            "Author: a",
        ),
        *("Description-Content-Type: text/markdown", "License: Apache-2.0"),
        *(f"Classifier: Programming Language :: Python :: 3.{minor}" for minor in range(8, 14)),
        *("", "See [there](https://example.org/x) and [below](#below)."),
    ]
)


def wheel_of(folder: Path, names: set[str], metadata: str = METADATA, name: str = NAME) -> Path:
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        for file in names:
            archive.writestr(file, "")
        archive.writestr("mxamp-0.1.0.dist-info/METADATA", metadata)
        archive.writestr("mxamp-0.1.0.dist-info/licenses/LICENSE", "")
    return path


@pytest.fixture(autouse=True)
def on_linux_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "PATCHABLE", True)
    monkeypatch.delenv("MXAMP_URL", raising=False)


def test_nothing_is_wrong_with_a_wheel_that_has_everything(tmp_path: Path) -> None:
    assert wheels.check_wheel(wheel_of(tmp_path, FILES | LIBRARIES), FILES) == []


@pytest.mark.parametrize(
    ("names", "metadata", "name", "said"),
    [
        (FILES, METADATA, NAME, "it holds 0 native libraries libmxamp_operators-mxnet1.9.1-"),
        (LIBRARIES | {"mxamp/__init__.py"}, METADATA, NAME, "it lacks mxamp/py.typed"),
        (FILES | LIBRARIES | {"tests/a.py"}, METADATA, NAME, "it holds tests/a.py, which is no file of"),
        (
            FILES | LIBRARIES | {"mxamp/ops/lib/libmxamp_kernels-89.so"},
            METADATA,
            NAME,
            "it holds 2 native libraries libmxamp_kernels-",
        ),
        (FILES | LIBRARIES, METADATA, NAME.replace("2_24", "2_35"), "need more than glibc 2.28"),
        (FILES | LIBRARIES, METADATA, "mxamp-0.1.0-py3-none-linux_x86_64.whl", "need more than glibc 2.28"),
        (FILES | LIBRARIES, METADATA, NAME.replace("py3", "cp311"), "not for every Python 3"),
        (FILES | LIBRARIES, METADATA.replace("Keywords: k\n", ""), NAME, "lack Keywords"),
        (FILES | LIBRARIES, METADATA.replace("License: Apache-2.0\n", ""), NAME, "lack a licence"),
        (FILES | LIBRARIES, METADATA.replace("3.13", "3.7"), NAME, "no classifier says Python 3.13"),
        (FILES | LIBRARIES, METADATA + " [a](docs/a.md)", NAME, "leads nowhere outside the checkout"),
        (FILES | LIBRARIES, METADATA + ' <img src="a.png">', NAME, "leads nowhere outside the checkout"),
    ],
)
def test_what_is_wrong_with_a_wheel_is_said(
    tmp_path: Path, names: set[str], metadata: str, name: str, said: str
) -> None:
    assert said in "\n".join(wheels.check_wheel(wheel_of(tmp_path, names, metadata, name), FILES))


def test_a_wheel_that_should_name_the_repository_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MXAMP_URL", "https://example.org/mxamp")
    wrong = wheels.check_wheel(wheel_of(tmp_path, FILES | LIBRARIES), FILES)
    assert wrong == ["its metadata lack URLs, though MXAMP_URL is set"]


def test_a_source_distribution_has_the_package_and_nothing_that_was_built(tmp_path: Path) -> None:
    path = tmp_path / "mxamp-0.1.0.tar.gz"
    (tmp_path / "file").write_text("")
    with tarfile.open(path, "w:gz") as archive:
        for name in ("mxamp/__init__.py", "mxamp/ops/lib/a.so", "setup.py"):
            archive.add(tmp_path / "file", f"mxamp-0.1.0/{name}")
    wrong = wheels.check_source(path, FILES)
    assert "it lacks mxamp/py.typed" in wrong
    assert "it lacks LICENSE" in wrong
    assert "it holds mxamp/ops/lib/a.so, which was built" in wrong


def test_the_package_is_what_git_has_of_it() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout of git")
    listed = subprocess.run(
        ["git", "ls-files", "mxamp", "mxamp_command.py"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert set(listed.stdout.split()) <= wheels.package_files()


@pytest.mark.parametrize("url", ["", "https://example.org/mxamp"])
def test_the_page_of_the_package_has_no_link_into_the_checkout(tmp_path: Path, url: str) -> None:
    pytest.importorskip("setuptools")
    subprocess.run(
        [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "MXAMP_URL": url},
        check=True,
        capture_output=True,
    )
    metadata = Parser().parsestr((tmp_path / "mxamp.egg-info" / "PKG-INFO").read_text("utf-8"))
    text = metadata.get_payload() or metadata["Description"]
    assert wheels.check_metadata(metadata) == []
    assert "mxamp turns a trained FP32 model" in text
    tag = f"{url}/blob/v{mxamp.__version__}"
    assert (f"]({tag}/docs/using.md)" in text) is bool(url)
    urls = metadata.get_all("Project-URL", [])
    assert urls == ([] if not url else urls)
    assert (f"Documentation, {tag}/docs/README.md" in urls) is bool(url)


def test_the_changelog_begins_with_this_version_and_a_date() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    first = next(heading for heading in headings if heading != "[Unreleased]")
    assert re.fullmatch(rf"\[{re.escape(mxamp.__version__)}\] - \d{{4}}-\d\d-\d\d", first)


# ------------------------------------------------------------------ installing it


def test_the_pythons_are_those_of_the_metadata_and_have_pins() -> None:
    setup = (ROOT / "setup.py").read_text("utf-8")
    listed = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', setup)
    assert tuple(listed) == installed.VERSIONS
    for version in installed.VERSIONS:
        pins = (ROOT / "constraints" / f"python{version}.txt").read_text("utf-8")
        assert ("\nmxnet==" in pins) is (version in installed.WITH_MXNET)


def test_tests_that_are_run_against_the_wheel_exist() -> None:
    assert [name for name in installed.SHORT if not (ROOT / "tests" / name).exists()] == []


def test_what_runs_against_the_wheel_does_not_see_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "LINKED", tmp_path / "installed")
    installed.link_all_but_the_package()
    installed.link_all_but_the_package()
    names = {path.name for path in (tmp_path / "installed").iterdir()}
    assert {"tests", "tools", "tours", "demo", "pyproject.toml"} <= names
    assert not {"mxamp", "mxamp_command.py", "build"} & names


def test_without_a_wheel_it_is_said_what_makes_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "ROOT", tmp_path)
    with pytest.raises(installed.InstallError, match="make wheels"):
        installed.find_wheel()


# ------------------------------------------------------------------ the container


def instructions() -> list[str]:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    lines = [line for line in text.split("\n") if line and not line.startswith("#")]
    return re.sub(r"\s*\\\n\s*", " ", "\n".join(lines)).split("\n")


def test_what_the_container_copies_is_in_the_checkout() -> None:
    copied = []
    for line in instructions():
        if line.startswith("COPY ") and "--from" not in line:
            copied += line.split()[1:-1]
    assert len(copied) >= 8
    assert [name for name in copied if not (ROOT / name).exists()] == []
    # All that setup.py reads or that is installed.
    assert {"setup.py", "pyproject.toml", "README.md", "LICENSE", "mxamp", "mxamp_command.py"} <= set(copied)


def test_the_extras_of_the_container_exist() -> None:
    (line,) = (line for line in instructions() if line.startswith("ARG WITH="))
    setup = (ROOT / "setup.py").read_text("utf-8")
    for extra in line.partition("=")[2].split(","):
        assert f'"{extra}": ' in setup


def test_the_container_has_the_python_of_its_pins_and_what_mxnet_loads() -> None:
    text = "\n".join(instructions())
    assert set(re.findall(r"FROM python:(\d+\.\d+)", text)) == set(re.findall(r"python(\d+\.\d+)\.txt", text))
    for package in ("libgomp1", "libquadmath0"):
        assert package in text
        assert package in (ROOT / "tools" / "environment.py").read_text("utf-8")
    assert "\nUSER " in text


def test_hadolint_has_nothing_to_say_of_the_container() -> None:
    program = shutil.which("hadolint") or shutil.which("hadolint", path=str(ROOT / ".venv-wheels" / "bin"))
    if program is None:
        pytest.skip("hadolint is not installed (make wheels brings it)")
    # Debian's packages are the release's; the user is named, and has a number, too.
    ignored = [word for rule in ("DL3008", "DL3066") for word in ("--ignore", rule)]
    done = subprocess.run(
        [program, *ignored, str(ROOT / "Dockerfile")], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
