"""HTML reports in a real browser: they open, fold, find a node, and have nothing to complain of.

Chromium is the system's (Debian: ``apt-get install chromium-headless-shell``); playwright drives it, from
``make test-browser``. MXAMP_CHROMIUM names another one.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple

import pytest

import mxamp
from mxamp.html import Findings, write_html
from mxamp.model import Model
from tests.html.pages import evaluation, fidelity, model, tuned

pytestmark = pytest.mark.browser

SECONDS = 2.0
"""What the issue allows a page to take until it can be used."""

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


class Page(NamedTuple):
    """An open page, and what its console said."""

    page: Any
    complaints: list[str]

    def shown(self) -> int:
        count: int = self.page.evaluate("mxampPage.cy.nodes().filter((node) => !node.isParent()).length")
        return count

    def details(self) -> str:
        text: str = self.page.inner_text("#details")
        return text


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: make test-browser")
    program = os.environ.get("MXAMP_CHROMIUM") or next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip(f"needs one of {', '.join(PROGRAMS)}, or MXAMP_CHROMIUM")
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Return a function that writes the page of a model and opens it."""
    contexts = []

    def open_page(model: Model, findings: Findings | None = None, **options: Any) -> Page:
        write_html(tmp_path / "page.html", model, "a model", findings)
        context = browser.new_context(offline=True, **options)
        contexts.append(context)
        page = context.new_page()
        complaints: list[str] = []
        requests: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto((tmp_path / "page.html").as_uri())
        page.wait_for_selector("html[data-ready]", state="attached", timeout=20_000)
        assert [url for url in requests if not url.startswith(("data:", "blob:"))] == [page.url]
        return Page(page, complaints)

    yield open_page
    for context in contexts:
        context.close()


def chain() -> Model:
    from tools.synthetic_graphs import chain as long_chain

    made = long_chain(10_000)
    return mxamp.convert_model(made.graph, made.args, made.auxs, "bfloat16")


def of_zoo(name: str) -> Model:
    pytest.importorskip("mxnet")
    pytest.importorskip("gluoncv")
    from mxamp.runtime.zoo import load_zoo

    own = load_zoo(name, pretrained=False).model
    return mxamp.convert_model(own.graph, own.arg_params, own.aux_params, "bfloat16")


def bert() -> Model:
    pytest.importorskip("mxnet")
    from tools.networks.build import build_network
    from tools.networks.catalogue import find_network

    own = build_network(find_network("bert_base"))
    return mxamp.convert_model(own.graph, own.arg_params, own.aux_params, "bfloat16")


MODELS: dict[str, tuple[Callable[[], Model], str]] = {
    "chain of 10,000 nodes": (chain, "softmax4999"),
    "ResNet-50": (lambda: of_zoo("resnet50_v1"), "resnetv10_stage3_conv5_fwd"),
    "SSD": (lambda: of_zoo("ssd_512_resnet50_v1_voc"), "ssd0_box_nms0"),
    "BERT": (bert, ""),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_page_opens_folds_and_finds_a_node_without_a_complaint(name: str, opened: Any) -> None:
    make, wanted = MODELS[name]
    model = make()
    found = opened(model)
    page = found.page
    assert float(page.evaluate("document.documentElement.dataset.ready")) < 1000 * SECONDS
    if not wanted:
        wanted = [node.name for node in model.graph.nodes if node.op == "FullyConnected"][-1]

    page.click("#fold")
    folded = found.shown()
    assert folded <= 60
    page.click("#unfold")
    assert found.shown() > folded

    page.click("#fold")
    page.fill("#search", wanted)
    page.press("#search", "Enter")
    assert found.page.inner_text("#details h3") == wanted
    shown = page.evaluate(f"mxampPage.cy.getElementById('n' + mxampPage.find('{wanted}')).hasClass('chosen')")
    assert shown
    assert model.report is not None
    assert model.report.node(wanted).reason in found.details()
    assert found.complaints == []


def test_a_click_opens_a_group_and_tells_why_a_node_is_what_it_is(opened: Any) -> None:
    from tools.synthetic_graphs import chain as long_chain

    made = long_chain(300)
    model = mxamp.convert_model(made.graph, made.args, made.auxs, "bfloat16")
    found = opened(model)
    page = found.page
    page.click("#fold")
    before = found.shown()
    where = "(() => { const at = mxampPage.cy.$('.group')[0].renderedPosition(); return [at.x, at.y]; })()"
    page.mouse.click(*_on_page(page, page.evaluate(where)))
    assert found.shown() > before
    where = "(() => { const at = mxampPage.cy.$('.operator')[0].renderedPosition(); return [at.x, at.y]; })()"
    page.mouse.click(*_on_page(page, page.evaluate(where)))
    assert model.report is not None
    assert model.report.nodes[0].reason in found.details()
    assert found.complaints == []


def _on_page(page: Any, place: list[float]) -> tuple[float, float]:
    box = page.locator("#picture").bounding_box()
    return box["x"] + place[0], box["y"] + place[1]


def test_plots_are_drawn_and_nothing_is_wider_than_a_phone(opened: Any) -> None:
    found = opened(model(), Findings(fidelity=fidelity()), viewport={"width": 390, "height": 844})
    assert found.page.locator(".plot svg circle").count() == 2
    assert found.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert found.complaints == []


def test_a_page_with_all_there_is_fits_a_phone(opened: Any) -> None:
    converted = model("a_name_that_is_as_long_as_those_of_networks_within_networks_of_networks")
    assert converted.report is not None
    everything = Findings(
        report=tuned(converted.report), fidelity=fidelity(), evaluation=evaluation(), cautions=("Random.",)
    )
    found = opened(converted, everything, viewport={"width": 390, "height": 844}, has_touch=True)
    assert found.page.locator(".plot svg").count() == 2
    assert found.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert found.complaints == []


# Along each arrow, point by point: the nodes that it touches though it neither leaves nor reaches them.
CROSSED = """() => {
  const boxes = mxampPage.cy.nodes().filter((node) => !node.isParent());
  const crossed = [];
  mxampPage.cy.edges().forEach((edge) => {
    const corners = [edge.sourceEndpoint(), ...(edge.segmentPoints() || []), edge.targetEndpoint()];
    boxes.forEach((node) => {
      if (node.same(edge.source()) || node.same(edge.target())) return;
      const box = node.boundingBox({ includeLabels: false });
      for (let part = 1; part < corners.length; part += 1)
        for (let step = 0; step <= 50; step += 1) {
          const [a, b] = [corners[part - 1], corners[part]];
          const x = a.x + ((b.x - a.x) * step) / 50, y = a.y + ((b.y - a.y) * step) / 50;
          if (x > box.x1 && x < box.x2 && y > box.y1 && y < box.y2) {
            crossed.push(edge.id() + " over " + node.id());
            return;
          }
        }
    });
  });
  return crossed;
}"""


DRAWN = (
    "() => new Promise((done) => { mxampPage.cy.one('render', () => done(1)); mxampPage.cy.forceRender(); })"
)


def test_arrows_past_other_nodes_do_not_run_over_them(opened: Any) -> None:
    from tests.building import Net, parameters

    net = Net()
    x = net.op("relu", net.var("data"), name="relu0")
    for number in range(5):
        y = net.op("relu", net.conv(x, f"conv{number}"), name=f"within{number}")
        x = net.op("elemwise_add", x, net.conv(y, f"again{number}"), name=f"sum{number}")
    own = Model(net.graph(x), parameters(net.params), {})
    found = opened(mxamp.convert_model(own.graph, own.arg_params, {}, "bfloat16"))
    while found.page.evaluate("mxampPage.cy.$('.group').length"):
        found.page.click("#unfold")
    assert found.page.evaluate("mxampPage.cy.$('.led').length") >= 5
    # Arrows are led anew when the page is drawn next.
    found.page.evaluate(DRAWN)
    assert found.page.evaluate(CROSSED) == []
    # As they would run straight on, they do.
    found.page.evaluate("mxampPage.cy.$('.led').removeClass('led') && 1")
    found.page.evaluate(DRAWN)
    assert len(found.page.evaluate(CROSSED)) >= 5


def test_what_is_printed_holds_the_graph(opened: Any) -> None:
    found = opened(model(), Findings(fidelity=fidelity()))
    assert found.page.evaluate("!document.getElementById('printed').src")
    printed = found.page.pdf(format="A4")
    assert printed[:5] == b"%PDF-"
    assert found.page.evaluate("document.getElementById('printed').src.startsWith('data:image/png')")


def test_a_page_without_javascript_still_has_its_tables(opened: Any, browser: Any, tmp_path: Path) -> None:
    write_html(tmp_path / "plain.html", model(), "a model", Findings(fidelity=fidelity()))
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((tmp_path / "plain.html").as_uri())
    assert "need JavaScript" in page.inner_text("body")
    assert "softmax0_output" in page.inner_text("body")
    context.close()
