"""What the documents say is so: their examples run, their links lead somewhere, what they name exists."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from mxamp.ops import FACTS
from mxamp.placement.cut import SINK, SOURCE, CutProblem
from tests.docs.blocks import ROOT, WIDTH, Runner, blocks, documents, matches

ALL = pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")


def prose(path: Path) -> str:
    """Return a document without its fenced blocks."""
    lines = path.read_text("utf-8").split("\n")
    for block in reversed(blocks(lines)):
        lines[block.start - 1 : block.end + 1] = []
    return "\n".join(lines)


def anchors(path: Path) -> set[str]:
    """Return the anchors that GitHub gives a document's headings."""
    headings = re.findall(r"^#+ +(.+?) *$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@ALL
def test_examples_print_what_the_document_says(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = path.read_text("utf-8").split("\n")
    if not any(block.runs and block.language in ("python", "console", "toml") for block in blocks(lines)):
        pytest.skip("the document has no examples to run")
    if re.search(r"import mxnet|mxamp\.compare_models", path.read_text("utf-8")):
        pytest.importorskip("mxnet", reason="its examples run models in MXNet")
    if "tools.digits" in path.read_text("utf-8"):
        pytest.importorskip("sklearn")
        pytest.importorskip("cv2")
    (tmp_path / "demo").symlink_to(ROOT / "demo")
    monkeypatch.setattr(FACTS, "by_name", dict(FACTS.by_name))  # an example registers an operator
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", WIDTH)
    runner = Runner(path, tmp_path)
    try:
        runner.run()
    finally:  # an example that fails may have turned on NumPy mode
        if importlib.util.find_spec("mxnet") is not None:
            importlib.import_module("mxnet").npx.reset_np()
    assert not runner.failures, "\n\n".join(runner.failures)


@ALL
def test_links_lead_somewhere(path: Path) -> None:
    broken = []
    for link in _LINK.findall(prose(path)):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        destination = (path.parent / file).resolve() if file else path
        if not destination.exists():
            broken.append(f"{link}: there is no such file")
        elif anchor and anchor not in anchors(destination):
            broken.append(f"{link}: {destination.name} has no such heading")
    assert not broken, f"{path.name}:\n" + "\n".join(broken)


@ALL
def test_files_that_are_named_exist(path: Path) -> None:
    """``mxamp/...``, ``tests/...``, ``tools/...`` and the like in code spans are paths of the repository."""
    if path.name == "related-work.md":
        pytest.skip("it names the files of other projects")
    folders = ("mxamp/", "tests/", "tools/", "tours/", "docs/", "demo/", "constraints/")
    named = [span for span in _CODE.findall(prose(path)) if span.startswith(folders) and " " not in span]
    missing = [span for span in named if not (ROOT / span).exists() and not list(ROOT.glob(span))]
    assert not missing


@ALL
def test_names_of_the_package_exist(path: Path) -> None:
    """``mxamp.x.y`` in a code span can be imported or is an attribute."""
    missing = []
    for span in _CODE.findall(prose(path)):
        match = re.match(r"(mxamp(?:\.\w+)+)", span)
        if match and not _exists(match.group(1)):
            missing.append(match.group(1))
    assert not missing


def _exists(dotted: str) -> bool:
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@ALL
def test_make_targets_that_are_named_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z][\w-]*)", "\n".join(_code_of(path))))
    assert named <= targets


def _code_of(path: Path) -> list[str]:
    """Return the code spans and the shell blocks of a document."""
    lines = path.read_text("utf-8").split("\n")
    shell = [block.text(lines) for block in blocks(lines) if block.language in ("sh", "console")]
    return [*_CODE.findall(prose(path)), *shell]


@ALL
def test_lines_of_prose_and_code_are_short(path: Path) -> None:
    lines = path.read_text("utf-8").split("\n")
    unwrapped = {
        number
        for block in blocks(lines)
        if block.language in ("text", "console", "mermaid")
        for number in range(block.start, block.end)
    }
    long = [
        number + 1
        for number, line in enumerate(lines)
        if len(line) > 120 and number not in unwrapped and not line.startswith("|")
    ]
    assert not long, f"{path.name}: lines {long}"


@pytest.mark.parametrize(
    "path",
    [*documents(), *sorted((ROOT / "docs").glob("*/*.md"))],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_tables_are_whole(path: Path) -> None:
    """A rule below the header, and as many cells in every row: an edit once cut a table in half."""
    wrong = []
    table: list[int] = []  # the numbers of cells of the table's lines so far
    for number, line in enumerate(prose(path).split("\n"), 1):
        if not line.startswith("|"):
            table = []
            continue
        table.append(len(re.findall(r"(?<!\\)\|", line)))
        ruled = re.fullmatch(r"[\s|:-]+", line) is not None
        if table[-1] != table[0] or (len(table) == 2) != ruled:
            wrong.append(f"line {number} (fenced blocks not counted): {line[:60]}")
    assert not wrong, f"{path.name}:\n" + "\n".join(wrong)


def test_every_document_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    linked = {(ROOT / "docs" / link.partition("#")[0]).resolve() for link in _LINK.findall(index)}
    pages = {page for page in (ROOT / "docs").rglob("*.md") if page.name != "README.md"}
    assert pages <= linked, sorted(str(page.relative_to(ROOT)) for page in pages - linked)


# ------------------------------------------------------------------ claims that are drawn, not printed


def _text_block(page: str, first: str) -> list[str]:
    """Return the lines of the text block that begins with ``first``."""
    lines = (ROOT / "docs" / page).read_text("utf-8").split("\n")
    (found,) = (
        lines[block.start : block.end]
        for block in blocks(lines)
        if block.language == "text" and lines[block.start].startswith(first)
    )
    return found


def test_the_drawn_cut_is_the_minimum_cut_of_the_example() -> None:
    edges = [
        re.match(r"(\w+) -> (\w+) +(\d+|inf)\b", line)
        for line in _text_block("how-it-decides.md", "pool0 -> T")
    ]
    cut = CutProblem()
    vertex = {"S": SOURCE, "T": SINK}
    costs = []
    for edge in edges:
        assert edge is not None
        tail, head, cost = edge.groups()
        for end in (tail, head):
            if end not in vertex:
                vertex[end] = cut.add_vertex()
        if cost == "inf":
            cut.forbid(vertex[tail], vertex[head])
        else:
            cut.add_edge(vertex[tail], vertex[head], int(cost))
            costs.append((vertex[tail], vertex[head], int(cost)))
    downstream = set(vertex.values()) - {SOURCE, SINK, vertex["pool0"]}
    low = cut.solve(prefer_source=downstream)
    open_and_float32 = {name for name, place in vertex.items() if place not in low and name != "T"}
    assert open_and_float32 == {"pool0", "split0"}
    assert sum(cost for tail, head, cost in costs if tail in low and head not in low) == 3
    tie = cut.solve(prefer_source={*downstream, vertex["pool0"]})
    assert tie == low | {vertex["pool0"]}


def test_imports_go_the_way_the_table_says() -> None:
    rows = [line.split() for line in _text_block("architecture.md", "__init__")]
    row_of = {name: number for number, row in enumerate(rows) for name in row}
    wrong = []
    for path in sorted((ROOT / "mxamp").rglob("*.py")):
        own = path.relative_to(ROOT / "mxamp").parts[0].replace(".py", "")
        assert own in row_of, f"docs/architecture.md does not place {own}"
        for imported in _mxamp_imports(path):
            top = imported.name
            lazily_through_the_door = top == "runtime" and imported.inside_function and own == "model"
            if top == own or row_of[top] > row_of[own] or lazily_through_the_door:
                if top == "runtime" and own != "runtime" and not imported.inside_function:
                    wrong.append(f"{path.name} imports mxamp.runtime when it is imported itself")
                continue
            wrong.append(f"{path.relative_to(ROOT)} imports mxamp.{top}")
    assert not wrong


class _Import(NamedTuple):
    name: str
    inside_function: bool


def _mxamp_imports(path: Path) -> list[_Import]:
    found = []

    def visit(node: ast.AST, inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and isinstance(child.test, ast.Name):  # TYPE_CHECKING
                continue
            if isinstance(child, ast.ImportFrom) and (child.module or "").split(".")[0] == "mxamp":
                parts = (child.module or "").split(".")
                names = [parts[1]] if len(parts) > 1 else [alias.name for alias in child.names]
                found.extend(_Import(name, inside) for name in names)
            visit(child, inside or isinstance(child, (ast.FunctionDef, ast.Lambda)))

    visit(ast.parse(path.read_text("utf-8")), False)
    return found


# ------------------------------------------------------------------ the machinery itself


@pytest.mark.parametrize(
    ("expected", "printed", "fits"),
    [
        ("a\nb", "a\nb\n", True),
        ("a ... b", "a 17 b", True),
        ("a\n...\nb", "a\nx\ny\nb", True),
        ("a\nb", "a\nc", False),
        ("a.b", "axb", False),
    ],
)
def test_expected_output_is_compared_with_dots_for_anything(expected: str, printed: str, fits: bool) -> None:
    assert matches(expected, printed) is fits


def test_numbers_that_vary_may_change_and_words_may_not() -> None:
    assert matches("a  0.024\n----", "a 1e-3\n---", numbers_vary=True)
    assert not matches("a 0.024", "b 0.024", numbers_vary=True)


def test_a_wrong_output_in_a_document_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UPDATE_DOCS", raising=False)
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n", "utf-8")
    runner = Runner(page, tmp_path)
    runner.run()
    assert len(runner.failures) == 1
    assert "page.md, line 6" in runner.failures[0]


def test_a_block_that_is_marked_is_not_run(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- not run: needs a GPU -->\n\n```python\nraise SystemError\n```\n", "utf-8")
    runner = Runner(page, tmp_path)
    runner.run()
    assert not runner.failures
