"""The fenced blocks of the documents, and running them.

In a document, blocks run in order, in one namespace and one empty folder that holds ``demo``:

- a ``python`` block is executed; a ``text`` block right after it is what it prints;
- a ``console`` block holds ``$ mxamp ...`` commands, each followed by what it prints;
- a ``toml`` block is written to the file that its first line names (``# my-policy.toml``).

Blocks of other languages, and those after a comment ``<!-- not run: why -->``, are only text. In expected
output, ``...`` stands for anything, line breaks included, and after a comment ``<!-- numbers vary -->`` any
number for any other. ``UPDATE_DOCS=1`` puts what is printed now into the documents, except where they hold a
``...``.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Sequence

ROOT = Path(__file__).resolve().parents[2]
WIDTH = "100"
"""Characters a line of printed text may have."""

_FENCE = re.compile(r"^```(\w*)\s*$")
_NOT_RUN = re.compile(r"^<!-- not run: .+ -->$")
_NUMBERS_VARY = "<!-- numbers vary -->"
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?")


@dataclass(frozen=True)
class Block:
    """One fenced block: its lines are ``lines[start:end]`` of the document."""

    language: str
    start: int
    end: int
    runs: bool
    follows_code: bool
    numbers_vary: bool

    def text(self, lines: Sequence[str]) -> str:
        return "\n".join(lines[self.start : self.end])


def documents() -> list[Path]:
    """Return every document, except the decision records, which are history."""
    return [
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
        *sorted((ROOT / "docs").glob("*.md")),
    ]


def blocks(lines: Sequence[str]) -> list[Block]:
    found: list[Block] = []
    language, start = None, 0
    for number, line in enumerate(lines):
        match = _FENCE.match(line)
        if match is None:
            continue
        if language is None:
            language, start = match.group(1), number + 1
            continue
        before = next((text for text in reversed(lines[: start - 1]) if text.strip()), "")
        gap = lines[found[-1].end + 1 : start - 1] if found else ["no block before"]
        nothing_between = not any(text.strip() not in ("", _NUMBERS_VARY) for text in gap)
        after_code = bool(found) and found[-1].language == "python" and found[-1].runs and nothing_between
        runs = _NOT_RUN.match(before) is None
        found.append(Block(language, start, number, runs, after_code, before == _NUMBERS_VARY))
        language = None
    assert language is None, f"the fence before line {start} is never closed"
    return found


def matches(expected: str, printed: str, *, numbers_vary: bool = False) -> bool:
    """Whether ``printed`` is ``expected``, in which ``...`` stands for anything."""
    if numbers_vary:
        expected, printed = _without_numbers(expected), _without_numbers(printed)
    parts = [re.escape(part) for part in _tidy(expected).split("...")]
    return re.fullmatch(".*".join(parts), _tidy(printed), re.DOTALL) is not None


def _without_numbers(text: str) -> str:
    # The width of a column follows from its numbers.
    return re.sub(r" +", " ", re.sub(r"-{2,}", "--", _NUMBER.sub("0", text)))


def _tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").split("\n")).rstrip()


class Runner:
    """Runs a document's blocks and says where what they print differs."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.folder = folder
        self.lines = path.read_text("utf-8").split("\n")
        self.namespace: dict[str, Any] = {"__name__": "__document__"}
        self.replacements: list[tuple[int, int, list[str]]] = []
        self.failures: list[str] = []

    def run(self) -> None:
        printed = ""
        for block in blocks(self.lines):
            if block.language == "text" and block.follows_code:
                self._compare(block, block.start, block.end, printed)
            elif not block.runs:
                continue
            elif block.language == "python":
                printed = self._python(block)
            elif block.language == "console":
                self._console(block)
            elif block.language == "toml":
                text = block.text(self.lines)
                name = re.match(r"# ([\w.-]+\.toml)\n", text)
                assert name, (
                    f"{self.path.name}:{block.start + 1}: the first line of a toml block names its file"
                )
                (self.folder / name.group(1)).write_text(text, "utf-8")
        self._update()

    def _place(self, number: int) -> str:
        return f"{self.path.name}, line {number + 1}"

    def _python(self, block: Block) -> str:
        # Line numbers in a traceback are those of the document.
        source = "\n" * block.start + block.text(self.lines)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(source, str(self.path), "exec", dont_inherit=True), self.namespace)
        return out.getvalue()

    def _console(self, block: Block) -> None:
        commands = [n for n in range(block.start, block.end) if self.lines[n].startswith("$ ")]
        for number, following in zip(commands, [*commands[1:], block.end]):
            command = shlex.split(self.lines[number][2:], comments=True)
            assert command[0] == "mxamp", f"{self._place(number)}: only mxamp runs in a console block"
            done = subprocess.run(
                [sys.executable, "-m", "tests.docs.console", *command[1:]],
                cwd=self.folder,
                env={**os.environ, "COLUMNS": WIDTH, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            # Where an error is what the document shows, it shows all of it.
            if done.returncode and "mxamp: error:" not in "\n".join(self.lines[number + 1 : following]):
                self.failures.append(
                    f"{self.path.name}, line {number + 1}: the command fails:\n{done.stdout}"
                )
                continue
            self._compare(block, number + 1, following, done.stdout)

    def _compare(self, block: Block, start: int, end: int, printed: str) -> None:
        expected = "\n".join(self.lines[start:end])
        if matches(expected, printed, numbers_vary=block.numbers_vary):
            return
        self.failures.append(
            f"{self._place(start)}: the document has\n{expected}\n\nand the code prints\n{printed}"
        )
        if "..." not in expected:
            self.replacements.append((start, end, printed.rstrip().split("\n")))

    def _update(self) -> None:
        if os.environ.get("UPDATE_DOCS") != "1" or not self.replacements:
            return
        for start, end, lines in reversed(self.replacements):
            self.lines[start:end] = [line.rstrip() for line in lines]
        self.path.write_text("\n".join(self.lines), "utf-8")
        self.failures.append("The document was updated; read what changed, and run the tests again.")
