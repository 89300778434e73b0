"""What ``make docs`` does to links that leave docs/: the site has pages, the repository has the rest.

A hook of mkdocs (mkdocs.yml). ``../README.md`` and its neighbours are copied into the site as pages of their
own; links to anything else of the repository become text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"README.md": "about.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}

_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<to>[^)\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the repository's own pages."""
    from mkdocs.structure.files import File

    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_from_root(text)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Point links that leave docs/ at the copies, or make them text."""
    folder = ROOT / "docs" / Path(page.file.src_uri).parent

    def rewritten(link: re.Match[str]) -> str:
        target, mark, anchor = link["to"].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return link[0]
        path = (folder / target).resolve()
        if (ROOT / "docs") in path.parents and path.is_file():
            return link[0]
        if path.parent == ROOT and path.name in PAGES:
            up = "../" * (len(Path(page.file.src_uri).parts) - 1)
            return f"[{link['text']}]({up}{PAGES[path.name]}{mark}{anchor})"
        if page.file.src_uri in PAGES.values():
            return link[0]
        return str(link["text"])

    return _LINK.sub(rewritten, markdown)


def _from_root(text: str) -> str:
    """Return a page of the repository's root with its links as they are inside docs/."""

    def rewritten(link: re.Match[str]) -> str:
        target, mark, anchor = link["to"].partition("#")
        if target.startswith("docs/") and target.endswith(".md"):
            return f"[{link['text']}]({target[len('docs/') :]}{mark}{anchor})"
        if target in PAGES:
            return f"[{link['text']}]({PAGES[target]}{mark}{anchor})"
        if not target or "://" in target:
            return link[0]
        return str(link["text"])

    return _LINK.sub(rewritten, text)
