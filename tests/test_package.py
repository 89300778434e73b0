"""The package as a whole: what it offers, what it imports, and what an installation of it holds."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mxamp
from mxamp.ops import FACTS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "mxamp"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# What the README and the documentation call; more may be public.
PROMISED = {"__version__", "convert_block", "convert_model", "convert_symbol", "load"}

ONLY_IN_RUNTIME = {"mxnet", "gluoncv"}

_LIBRARY = Path(ast.__file__).parent
KNOWN_TO_PYTHON = {"tomllib", *sys.builtin_module_names} | set(
    getattr(sys, "stdlib_module_names", ())
    or (path.name.split(".")[0] for path in (*_LIBRARY.iterdir(), *_LIBRARY.glob("lib-dynload/*")))
)
"""The standard library; Python 3.10 is the first to list it."""

LONGEST_MODULE = 450
"""Lines."""


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a fresh interpreter in the root of the clone."""
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, check=False, capture_output=True, text=True)


def imported_packages(tree: ast.AST) -> set[str]:
    """Return the top-level packages that a module imports, by statement or by ``import_module("...")``."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name in {"import_module", "__import__"}:
                found.add(str(node.args[0].value))
    return {name.split(".")[0] for name in found}


def test_version_is_the_one_that_setup_reads_as_text() -> None:
    text = (PACKAGE / "version.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"$', text, flags=re.MULTILINE)
    assert match is not None
    assert mxamp.__version__ == match.group(1)
    assert re.fullmatch(r"\d+\.\d+\.\d+", mxamp.__version__)


def test_every_public_name_exists() -> None:
    missing = [name for name in mxamp.__all__ if not hasattr(mxamp, name)]
    assert not missing


def test_what_the_docstring_of_the_package_teaches_can_be_called() -> None:
    assert mxamp.__doc__ is not None
    lines = [line.strip() for line in mxamp.__doc__.split("::", 1)[1].strip().splitlines()]
    assert len(lines) == 10
    calls = [
        (node, node.func.attr)
        for node in ast.walk(ast.parse("\n".join(lines)))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "mxamp"
    ]
    assert len(calls) >= 8
    for call, name in calls:
        given = [None for argument in call.args for _ in range(3 if isinstance(argument, ast.Starred) else 1)]
        named = {str(keyword.arg): None for keyword in call.keywords}
        inspect.signature(getattr(mxamp, name)).bind(*given, **named)


def test_promised_names_are_public() -> None:
    assert set(mxamp.__all__) >= PROMISED


def test_public_names_are_sorted_and_unique() -> None:
    assert list(mxamp.__all__) == sorted(set(mxamp.__all__))


@pytest.mark.parametrize("module", ["mxamp", "mxamp.cli.main"])
def test_import_does_not_load_mxnet(module: str) -> None:
    statement = f"import sys, {module}; print(sorted({ONLY_IN_RUNTIME!r} & set(sys.modules)))"
    completed = run_python("-c", statement)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.strip() == "[]"


def test_import_writes_nothing_and_configures_no_logging() -> None:
    completed = run_python("-c", "import logging, mxamp; print(logging.getLogger().handlers)")
    assert completed.stdout.strip() == "[]", completed.stderr
    assert not completed.stderr


def test_only_runtime_imports_mxnet() -> None:
    offenders = {}
    for path in SOURCES:
        if PACKAGE / "runtime" in path.parents:
            continue
        found = imported_packages(ast.parse(path.read_text(encoding="utf-8"), filename=str(path)))
        if found & ONLY_IN_RUNTIME:
            offenders[str(path.relative_to(ROOT))] = sorted(found & ONLY_IN_RUNTIME)
    assert not offenders


@pytest.mark.parametrize(
    "source",
    [
        "import mxnet",
        "import mxnet.gluon as gluon",
        "from mxnet.gluon import nn",
        "def f():\n    import mxnet as mx",
        "import importlib\nimportlib.import_module('mxnet')",
        "__import__('mxnet')",
    ],
)
def test_the_import_scan_sees_every_way_to_import(source: str) -> None:
    assert "mxnet" in imported_packages(ast.parse(source))


DISTRIBUTIONS = {"cv2": "opencv-python", "PIL": "pillow", "pkg_resources": "setuptools"}
"""What a package is installed by, where the names differ."""


def top_level_imports(tree: ast.Module) -> set[str]:
    """Return the packages that importing a module imports; those for annotations alone do not count."""
    found, waiting = set(), list(tree.body)
    while waiting:
        node = waiting.pop()
        for_types = isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or for_types:
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= imported_packages(node)
        waiting.extend(child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt))
    return found


def declared_requirements() -> dict[str, set[str]]:
    """Return the distributions that each list in setup.py names, those of lists within it included."""
    lists: dict[str, set[str]] = {}
    for node in ast.parse((ROOT / "setup.py").read_text(encoding="utf-8")).body:
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.List)):
            continue
        names: set[str] = set()
        for element in node.value.elts:
            if isinstance(element, ast.Starred):
                names |= lists[getattr(element.value, "id", "")]
            else:
                requirement = re.match(r"[\w.-]+", ast.literal_eval(element))
                assert requirement is not None
                names.add(requirement[0].lower())
        lists[getattr(node.targets[0], "id", "")] = names
    return lists


def test_whatever_mxamp_imports_is_asked_for() -> None:
    lists = declared_requirements()
    by_extras = set().union(*(names for name, names in lists.items() if name not in ("CORE", "TEST", "DEV")))
    undeclared = []
    for path in (*SOURCES, ROOT / "mxamp_command.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        at_once = top_level_imports(tree) if PACKAGE / "runtime" not in path.parents else set()
        for name in imported_packages(tree) - KNOWN_TO_PYTHON - {"mxamp"}:
            distribution = DISTRIBUTIONS.get(name, name)
            allowed = lists["CORE"] if name in at_once else lists["CORE"] | by_extras
            if distribution not in allowed:
                undeclared.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not undeclared, (
        "setup.py must ask for these: CORE for what a module imports, an extra for the rest"
    )


def test_what_every_conversion_and_text_needs_is_no_extra() -> None:
    # Lost in a merge once: everything passed where the tests' own requirements bring them.
    needed = {"numpy", "scipy", "ml_dtypes", "tomli", "tomli_w", "jinja2", "rich", "shtab"}
    assert needed <= declared_requirements()["CORE"]


def test_the_import_scan_ignores_names_that_only_look_like_mxnet() -> None:
    source = "from mxamp.runtime import mxnet_symbols\nfrom . import mxnet\ntext = 'import mxnet'"
    assert "mxnet" not in imported_packages(ast.parse(source))


def test_every_module_is_one_idea_that_can_be_read_at_a_sitting() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES
    }
    too_long = {name: length for name, length in lengths.items() if length > LONGEST_MODULE}
    assert not too_long, "split these by idea, or delete"


def modules_imported_by(path: Path, known: set[str]) -> set[str]:
    """Return the modules of mxamp that one imports when it runs; those for annotations alone do not count."""
    found = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            submodules = {f"{node.module}.{alias.name}" for alias in node.names} & known
            found.update(submodules or {node.module})
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        waiting.extend(ast.iter_child_nodes(node))
    return found & known


def test_no_module_needs_itself_by_way_of_others() -> None:
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).replace(".__init__", ""): path
        for path in SOURCES
    }
    left = {name: modules_imported_by(path, set(names)) for name, path in names.items()}
    while True:
        settled = {name for name, imported in left.items() if not imported & left.keys()}
        if not settled:
            break
        left = {name: imported for name, imported in left.items() if name not in settled}
    assert not left, "these import each other, or import such modules"


def test_what_begins_with_an_underscore_is_its_modules_own() -> None:
    # That is all that says so: only packages list what they offer, in their __init__.
    wrong = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mxamp"):
                private = [alias.name for alias in node.names if re.match(r"_[^_]", alias.name)]
                wrong += [f"{path.relative_to(ROOT)} imports {name} of {node.module}" for name in private]
    assert not wrong


def test_every_folder_with_modules_is_a_package() -> None:
    # setup.py's find_packages leaves a folder without __init__.py out of the installation without a word.
    folders = {path.parent for path in SOURCES}
    missing = sorted(
        str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").exists()
    )
    assert not missing


def test_every_data_file_is_installed() -> None:
    setup = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    (package_data,) = (
        ast.literal_eval(node.value)
        for node in ast.walk(setup)
        if isinstance(node, ast.keyword) and node.arg == "package_data"
    )
    installed = {
        path
        for package, patterns in package_data.items()
        for pattern in patterns
        for path in ROOT.joinpath(*package.split(".")).glob(pattern)
    }
    present = {
        path
        for path in PACKAGE.rglob("*")
        # Shared libraries are built, not installed: setup.py builds them where the package goes.
        if path.is_file() and path.suffix not in {".py", ".pyc", ".so"} and "__pycache__" not in path.parts
    }
    left_out = sorted(str(path.relative_to(ROOT)) for path in present - installed)
    assert not left_out, "add these to package_data in setup.py"


def test_nothing_that_a_run_left_is_in_the_root_of_the_checkout() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout of git")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    root = {name for name in listed.split() if "/" not in name}
    assert {"setup.py", "README.md", "Makefile"} <= root
    kinds = {"", ".md", ".py", ".toml", ".in", ".yml"}
    assert sorted(name for name in root if Path(name).suffix not in kinds and name[0] != ".") == []


def test_command_prints_its_help() -> None:
    completed = run_python("-c", "import sys; from mxamp.cli.main import main; sys.exit(main())", "--help")
    assert completed.returncode == 0, completed.stderr
    for subcommand in ("convert", "inspect", "compare"):
        assert subcommand in completed.stdout


def test_console_script_is_declared() -> None:
    try:
        distribution = importlib.metadata.distribution("mxamp")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("mxamp runs from its source here and is not installed")
    (script,) = [entry for entry in distribution.entry_points if entry.group == "console_scripts"]
    assert script.name == "mxamp"
    # An installation from before mxamp_command.py names the function that it calls.
    assert script.value in {"mxamp_command:main", "mxamp.cli.main:main"}
    assert callable(script.load())
    assert distribution.version == mxamp.__version__


# Facts, casts and control flow are a dialect (mxamp/ops/); what decides and edits graphs knows no operator.
WITHOUT_OPERATORS = [
    *(
        source
        for folder in ("graph", "placement", "decisions")
        for source in (PACKAGE / folder).rglob("*.py")
    ),
    *(
        PACKAGE / "passes" / f"{name}.py"
        for name in ("base", "edit", "insert_casts", "planned", "preparation", "records", "state")
    ),
]


@pytest.mark.parametrize("source", WITHOUT_OPERATORS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_frame_knows_no_operator_by_name(source: Path) -> None:
    tree = ast.parse(source.read_text(encoding="utf-8"))
    texts = {
        str(node.value): node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    named = {f"{name} (line {texts[name]})" for name in texts.keys() & set(FACTS.names())}
    assert not named, "say it as a fact of the operator, in mxamp/ops/"


PRIVATE = re.compile(r"_[a-zA-Z]\w*")
OUR_PACKAGES = {"mxamp", "tools", "model_zoo_eval"}
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def reaches_inside(path: Path) -> list[str]:
    """Return what a test module takes from tests, from conftest, or from behind an underscore."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            *packages, last = node.module.split(".")
            if [*packages, last][0] == "tests" and re.match(r"test_|conftest", last):
                found.append(f"line {node.lineno} imports {node.module}")
            if {*packages, last} & OUR_PACKAGES:
                private = [alias.name for alias in node.names if PRIVATE.fullmatch(alias.name)]
                found += [f"line {node.lineno} imports {name}" for name in private]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("setattr", "patch", "object"):
            named = [part.value for part in node.args[:2] if isinstance(part, ast.Constant)]
            private = [str(name) for name in named if PRIVATE.fullmatch(str(name).split(".")[-1])]
            found += [f"line {node.lineno} patches {name}" for name in private]
    return found


@pytest.mark.parametrize(
    "source",
    [
        "from tests.cli.test_cli_main import run",
        "from tests.cli.conftest import small_model",
        "from mxamp.files.staged import _pieces",
        "monkeypatch.setattr(library, '_load', None)",
        "mock.patch('mxamp.runtime.library._load')",
    ],
)
def test_the_scan_of_tests_sees_every_way_inside(source: str, tmp_path: Path) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(source, "utf-8")
    assert reaches_inside(path)


def test_tests_ask_for_behaviour_and_share_what_they_need_in_modules_of_their_own() -> None:
    found = {str(path.relative_to(ROOT)): reaches_inside(path) for path in TESTS}
    assert {path: lines for path, lines in found.items() if lines} == {}
