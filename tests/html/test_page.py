"""The HTML report as text: what it says, that it loads nothing, and that names cannot break it."""

from __future__ import annotations

import hashlib
import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.compare.latency import Latency
from mxamp.compare.metrics import distance
from mxamp.errors import ExportError
from mxamp.evaluation import Evaluation, MetricComparison
from mxamp.html import Figure, Findings, html_page, write_html
from mxamp.model import Model
from mxamp.model.provenance import read_provenance
from mxamp.report.model import Report
from tests.building import Net, parameters
from tests.html.pages import evaluation, fidelity, model, tuned

ASSETS = Path(mxamp.__file__).parent / "html" / "assets"


def text_of(page: str) -> str:
    """Return what a reader sees, scripts and styles left out."""
    shown = re.sub(r"(?s)<(script|style).*?</\1>", " ", page)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", shown)).split())


def data_of(page: str) -> Any:
    found = re.search(r'(?s)<script type="application/json" id="data">(.*?)</script>', page)
    assert found is not None
    return json.loads(found.group(1))


class References(HTMLParser):
    """Collects whatever an element would load, and where it links to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "srcset", "action")]
        if tag not in ("meta", "input", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_loads_nothing_and_every_element_is_closed() -> None:
    page = html_page(model(), "net", Findings(fidelity=fidelity()))
    reader = References()
    reader.feed(page)
    assert {attribute for attribute in reader.found if attribute != "a href"} == set()
    links = re.findall(r'<a href="([^"]*)"', page)
    assert links  # all of them lead to a section of the page itself
    assert all(link.startswith("#") and f'id="{link[1:]}"' in page for link in links)
    assert reader.open == []
    assert "default-src 'none'" in page
    assert not re.search(r"@import|url\(", (ASSETS / "page.css").read_text(encoding="utf-8"))


def test_a_page_says_what_was_converted_how_fast_how_large_and_how_far() -> None:
    text = text_of(html_page(model(), "my net", Findings(fidelity=fidelity())))
    for said in (
        "my net",
        "1 of 2 operator nodes compute in bfloat16, with 2 casts at run time",
        "2.00\u00d7 10.00 ms to 5.00 ms; 1.80 to 2.20 over rounds",
        "1.95 to 2.05",
        "a processor, 1 thread",
        "0.009 to 0.011",
        "87.5 % (53.0 to 98.0)",
        "Where the error grows most",
        "What stayed in FP32, and why",
    ):
        assert said in text


def test_reasons_of_the_report_are_in_the_page() -> None:
    converted = model()
    page = html_page(converted, "net")
    assert converted.report is not None
    assert converted.report.node("softmax0").reason in text_of(page)
    data = data_of(page)
    shape = next(shape for shape in data["drawing"]["shapes"] if shape["n"] == "conv0")
    assert data["drawing"]["texts"][shape["w"]] == converted.report.node("conv0").reason


def test_a_name_that_looks_like_markup_stays_a_name() -> None:
    name = "</script><script>alert(1)</script>&amp;"
    page = html_page(model(name), name, Findings(cautions=(name,)))
    assert "<script>alert" not in page
    assert data_of(page)["drawing"]["shapes"][1]["n"] == name
    assert name in text_of(page)


def test_errors_that_json_cannot_hold_are_still_drawn() -> None:
    found = fidelity()
    infinite = distance(np.ones(2), np.array([np.inf, 1.0]))
    assert found.layers is not None
    worst = replace(found, layers=(replace(found.layers[0], distance=infinite), found.layers[1]))
    data = data_of(html_page(model(), "net", Findings(fidelity=worst)))
    assert data["drawing"]["shapes"][1]["e"] == "inf"
    assert data["plots"][0]["points"][0][1] == 1e3


def test_a_slower_model_says_so_at_the_top() -> None:
    found = fidelity()
    slow = replace(found, latency=Latency(5.0, 10.0, 0.5, 0.4, 0.6, 0.48, 0.52, 40, 8, "here"))
    page = html_page(model(), "net", Findings(fidelity=slow))
    assert re.search(r'class="figure bad"><div class="title">Speed', page)
    page = html_page(model(), "net", Findings(fidelity=found))
    assert not re.search(r'class="figure bad"><div class="title">Speed', page)


def test_accuracy_stands_at_the_top_and_is_compared_in_a_section() -> None:
    text = text_of(html_page(model(), "net", Findings(fidelity=fidelity(), evaluation=evaluation())))
    assert "Accuracy (top-1) 74.00 % FP32 75.00 %; -3.00 to +1.00 points (95 %), 500 labelled samples" in text
    assert "top-1 75.00 % (71.00 to 79.00) 74.00 % -1.00 -3.00 to +1.00 9, 4 0.27 a note" in text
    assert "within chance; a loss of more than 3.00 points is ruled out" in text
    assert "evaluated, batch 16 10.00 ms 4.00 ms 2.50" in text  # beside what comparing timed


@pytest.mark.parametrize(
    ("bounds", "said", "bad"),
    [
        ((-0.03, -0.01), "it loses at least 1.00 points of top-1", True),
        ((0.01, 0.03), "does better on top-1: by 1.00 points or more", False),
    ],
)
def test_a_difference_beyond_chance_is_said_to_be_one(
    bounds: tuple[float, float], said: str, bad: bool
) -> None:
    page = html_page(model(), "net", Findings(evaluation=evaluation(*bounds)))
    assert said in text_of(page)
    assert bool(re.search(r'class="figure bad"><div class="title">Accuracy', page)) == bad


def test_an_interval_of_no_width_rules_nothing_out() -> None:
    text = text_of(html_page(model(), "net", Findings(evaluation=evaluation(0.0, 0.0))))
    assert "too few or too alike to bound it" in text
    assert "ruled out" not in text
    text = text_of(html_page(model(), "net", Findings(evaluation=evaluation(0.0, 0.01))))
    assert "a loss of more than 0.00 points is ruled out" in text


def test_the_accuracy_of_one_model_has_its_bounds_and_no_comparison() -> None:
    alone = Evaluation((MetricComparison("miou", 30, 0.5, (0.4, 0.6)),), 30)
    text = text_of(html_page(model(), "net", Findings(evaluation=alone)))
    assert "Accuracy (miou) 50.00 % 40.00 to 60.00, 30 labelled samples" in text
    assert "Metric This model 95 % bounds miou 50.00 % 40.00 to 60.00" in text


def test_the_curve_shows_which_point_the_model_is() -> None:
    converted = model()
    assert converted.report is not None
    page = html_page(converted, "net", Findings(report=tuned(converted.report)))
    text = text_of(page)
    assert "speeds are estimated, not measured" in text
    assert "Asked for: the fastest with an error of at most 0.03. The samples confirm it." in text
    assert "this model 2.00 0.02 0.018 to 0.022 -1.00 -2.00 to +0.00 0 nodes" in text
    points = data_of(page)["plots"][0]["points"]
    assert [point[3] for point in points] == ["this model", "without tuning", "other conversions"]
    assert [point[4] for point in points] == [[0.018, 0.022], [0.009, 0.011], None]


def test_what_tuning_measured_stands_at_the_top(tmp_path: Path) -> None:
    converted = model()
    assert converted.report is not None
    report = tuned(converted.report)
    assert report.curve is not None
    timed = replace(report, curve=replace(report.curve, is_timed=True))
    text = text_of(html_page(converted, "net", Findings(report=timed)))
    assert "Speed, measured 2.00\u00d7 by turns with FP32, when tuned" in text
    assert "Nothing was measured" not in text
    assert "Accuracy (top-1) -1.00 points less FP32's; -2.00 to +0.00 (95 %), 50 samples" in text
    assert "Error 0.02 relative L2 distance from FP32, 0.018 to 0.022 (95 %), 50 samples, executed" in text
    # What was measured later on this model counts for more, and estimates are not called measured.
    text = text_of(html_page(converted, "net", Findings(report=timed, fidelity=fidelity())))
    assert "when tuned" not in text.partition("Speed against error")[0]
    assert "Error 0.02" not in text
    assert "when tuned" not in text_of(html_page(converted, "net", Findings(report=report)))


def test_a_curve_is_read_back_from_a_report_and_an_infinite_error_is_still_drawn() -> None:
    converted = model()
    assert converted.report is not None
    report = tuned(converted.report, error=float("inf"))
    assert Report.from_json(report.to_json()) == report
    points = data_of(html_page(converted, "net", Findings(report=report)))["plots"][0]["points"]
    assert points[2][1] == 1e3


def test_any_command_can_add_figures() -> None:
    page = html_page(model(), "net", Findings(figures=(Figure("Watts", "3 W"),)))
    assert "Watts 3 W" in text_of(page)


def test_a_model_that_was_not_converted_has_a_page_too() -> None:
    net = Net()
    own = Model(net.graph(net.conv(net.var("data"), "conv0")), parameters(net.params), {})
    text = text_of(html_page(own, "net"))
    assert "1 operator node, 0 of them in low precision, with 0 casts" in text
    assert "How it was converted is not known" in text


def test_files_and_memory_give_the_same_picture(tmp_path: Path) -> None:
    converted = model()
    converted.save(tmp_path / "net")
    provenance = read_provenance(tmp_path / "net")
    assert provenance is not None
    page = html_page(mxamp.load(tmp_path / "net"), "net", Findings(provenance=provenance))
    assert data_of(page) == data_of(html_page(converted, "net"))
    assert provenance.params.digest in text_of(page)


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_html(tmp_path / "net.html", model(), "net")
    assert (tmp_path / "net.html").read_text(encoding="utf-8") == html_page(model(), "net")
    with pytest.raises(ExportError, match="does not exist"):
        write_html(tmp_path / "nowhere" / "net.html", model(), "net")


def test_the_bundled_libraries_are_what_their_record_says() -> None:
    record = json.loads((ASSETS / "libraries.json").read_text(encoding="utf-8"))
    bundle = (ASSETS / "libraries.js").read_bytes()
    assert hashlib.sha256(bundle).hexdigest() == record["sha256"]
    assert b"</script" not in bundle.lower()
    licences = bundle.decode("utf-8").partition("*/")[0]
    for name, package in record["packages"].items():
        assert f"{name} {package['version']} ({package['license']})" in licences


@pytest.mark.network
def test_the_bundle_can_be_made_again_byte_for_byte() -> None:
    import shutil

    from tools.bundle_page_libraries import bundle

    if shutil.which("npm") is None:
        pytest.skip("needs npm")
    text, record = bundle()
    assert text == (ASSETS / "libraries.js").read_text(encoding="utf-8")
    assert record == (ASSETS / "libraries.json").read_text(encoding="utf-8")
