"""The documentation as a site: every page is in its navigation, and links that leave docs/ lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from tools.documentation_site import PAGES, on_page_markdown

ROOT = Path(__file__).resolve().parents[2]


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    listed = set(re.findall(r"[\w./-]+\.md", navigation))
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert pages - listed == set()
    assert listed - pages <= set(PAGES.values())


@pytest.mark.parametrize(
    ("source", "link", "expected"),
    [
        ("using.md", "[a](../README.md#an-example)", "[a](about.md#an-example)"),
        ("using.md", "[a](policies.md)", "[a](policies.md)"),
        ("adr/0001-one-door-to-mxnet.md", "[a](../../CHANGELOG.md)", "[a](../changelog.md)"),
        ("using.md", "[a](../LICENSE)", "a"),
        ("using.md", "[a](https://example.org/README.md)", "[a](https://example.org/README.md)"),
        ("using.md", "![a](benchmarks.png)", "![a](benchmarks.png)"),
    ],
)
def test_links_that_leave_the_folder_are_rewritten(source: str, link: str, expected: str) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri=source))
    assert on_page_markdown(link, page=page, config=None, files=None) == expected
