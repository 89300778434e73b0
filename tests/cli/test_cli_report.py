"""``mxamp report`` and ``--html``: the page that a command writes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from mxamp.model import Model
from mxamp.model.provenance import read_provenance
from tests.building import Net, parameters


def data_of(path: Path) -> dict:
    page = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'(?s)id="data">(.*?)</script>', page).group(1))


def reason_of(path: Path, node: str) -> str:
    drawing = data_of(path)["drawing"]
    shape = next(shape for shape in drawing["shapes"] if shape["n"] == node)
    return drawing["texts"][shape["w"]]


def test_a_report_of_files_has_their_reasons_and_their_origin(mxamp, folder):
    assert mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out").status == 0
    result = mxamp("report", "out", "-o", "out.html")
    assert (result.status, result.err) == (0, "")
    assert re.fullmatch(r"Wrote out\.html \(0\.8 MB\)\.\n", result.out)
    recorded = json.loads((folder / "out-mxamp.json").read_text(encoding="utf-8"))
    reasons = {node["name"]: node["reason"] for node in recorded["decisions"]["nodes"]}
    assert reason_of(folder / "out.html", "exp0") == reasons["exp0"]
    page = (folder / "out.html").read_text(encoding="utf-8")
    provenance = read_provenance("out")
    assert provenance.source_symbol.digest in page


def test_convert_writes_the_page_that_report_writes(mxamp, folder):
    result = mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out", "--html", "converted.html")
    assert result.status == 0
    assert "converted.html" in result.out
    assert mxamp("report", "out", "-o", "reported.html").status == 0
    assert (folder / "converted.html").read_bytes() == (folder / "reported.html").read_bytes()


def test_a_file_that_is_there_is_replaced_only_when_that_is_asked_for(mxamp, folder):
    (folder / "page.html").write_text("mine")
    result = mxamp("report", "net", "-o", "page.html")
    assert result.status == 2
    assert "'page.html' already exists. Give --force" in result.err
    assert (folder / "page.html").read_text() == "mine"
    assert mxamp("report", "net", "-o", "page.html", "--force").status == 0
    result = mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out", "--html", "page.html")
    assert result.status == 2
    assert "page.html" in result.err
    assert not list(folder.glob("out*"))


@pytest.mark.parametrize("name", ["net-symbol.json", "net-0000.params"])
def test_a_report_does_not_replace_what_it_reads(mxamp, folder, name):
    before = (folder / name).read_bytes()
    result = mxamp("report", "net", "-o", name, "--force")
    assert result.status == 2
    assert "would overwrite what is read" in result.err
    assert (folder / name).read_bytes() == before


def test_a_report_about_changed_files_warns_and_shows_no_other_models_reasons(mxamp, folder):
    mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out")
    symbol = folder / "out-symbol.json"
    symbol.write_text(symbol.read_text().replace("exp0", "exp1"))
    result = mxamp("report", "out", "-o", "out.html")
    assert result.status == 0
    assert "no longer the model that was recorded" in result.err
    assert "How it was converted is not known" in (folder / "out.html").read_text(encoding="utf-8")


def images(folder: Path) -> str:
    random = np.random.default_rng(0)
    np.savez(folder / "images.npz", data=random.standard_normal((6, 4, 8, 8)).astype(np.float32))
    return "images.npz"


def test_data_add_fidelity_layers_and_speed(mxamp, folder):
    pytest.importorskip("mxnet")
    mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out")
    given = ("--data", images(folder), "--latency-seconds", "0.2")
    assert mxamp("report", "out", *given, "-o", "out.html").status == 0
    page = (folder / "out.html").read_text(encoding="utf-8")
    for heading in ("Speed", "Fidelity", "Error, layer by layer"):
        assert f"<h2>{heading}</h2>" in page
    assert any("e" in shape for shape in data_of(folder / "out.html")["drawing"]["shapes"])


def classified(folder: Path) -> str:
    """Write a classifier beside the network, ``cls``, and labelled samples of it."""
    net = Net()
    x = net.op("Activation", net.conv(net.var("data"), "conv0"), name="relu0", act_type="relu")
    pooled = net.op("Pooling", x, name="pool0", global_pool=True, kernel=(1, 1), pool_type="avg")
    Model(net.graph(net.fc(pooled, "fc0")), parameters(net.params), {}).save("cls")
    random = np.random.default_rng(0)
    data = random.standard_normal((24, 4, 8, 8)).astype(np.float32)
    np.savez(folder / "val.npz", data=data, label=random.integers(0, 4, 24))
    return "val.npz"


def test_labels_add_accuracy(mxamp, folder):
    pytest.importorskip("mxnet")
    given = ("--data", classified(folder), "--latency-seconds", "0")
    assert mxamp("convert", "cls", "--dtype", "bfloat16", "-o", "out").status == 0
    result = mxamp("report", "out", *given, "-o", "out.html")
    assert (result.status, result.out[:14]) == (0, "Wrote out.html"), result.err
    page = (folder / "out.html").read_text(encoding="utf-8")
    assert "<h2>Accuracy</h2>" in page
    assert "<h2>Fidelity</h2>" in page
    result = mxamp("evaluate", "cls", "out", *given, "--html", "evaluated.html")
    assert result.status == 0, result.err
    page = (folder / "evaluated.html").read_text(encoding="utf-8")
    assert "<h2>Accuracy</h2>" in page
    assert "<h1>out</h1>" in page
    result = mxamp("evaluate", "cls", *given, "--html", "alone.html")
    assert "<h1>cls</h1>" in (folder / "alone.html").read_text(encoding="utf-8")


def test_a_metric_without_labels_is_refused_before_anything_runs(mxamp, folder):
    pytest.importorskip("mxnet")
    result = mxamp(
        "report", "net", "--against", "net", "--data", images(folder), "--metric", "top-1", "-o", "a.html"
    )
    assert (result.status, "--metric needs labels" in result.err) == (2, True)
    result = mxamp("report", "net", "--labels", "labels.npy", "-o", "a.html")
    assert (result.status, "--labels goes with --data" in result.err) == (2, True)
    assert not (folder / "a.html").exists()


def test_the_curve_is_in_the_page_of_tune_and_in_later_ones_of_its_files(mxamp, folder):
    pytest.importorskip("mxnet")
    given = ("--data", classified(folder), "--latency-seconds", "0", "--target", "cpu-bf16", "--points", "3")
    result = mxamp("tune", "cls", *given, "--max-error", "0.5", "-o", "tuned", "--html", "tuned.html")
    assert result.status == 0, result.err
    assert mxamp("report", "tuned", "-o", "later.html").status == 0
    assert (folder / "later.html").read_bytes() == (folder / "tuned.html").read_bytes()
    page = (folder / "tuned.html").read_text(encoding="utf-8")
    assert "<h2>Speed against error</h2>" in page
    assert "cls-symbol.json" in page  # what it was made from
    assert mxamp("tune", "cls", *given, "--html", "curve.html").status == 0
    page = (folder / "curve.html").read_text(encoding="utf-8")
    assert "<h1>cls in bfloat16</h1>" in page
    result = mxamp("tune", "cls", *given, "--html", "curve.html")
    assert (result.status, "already exists" in result.err) == (2, True)


def test_labels_alone_let_tuning_measure_accuracy(mxamp, folder):
    pytest.importorskip("mxnet")
    with np.load(folder / classified(folder)) as file:
        np.savez(folder / "unlabelled.npz", **{name: file[name] for name in file if name != "label"})
        np.save(folder / "labels.npy", file["label"])
    given = ("--data", "unlabelled.npz", "--labels", "labels.npy", "--latency-seconds", "0")
    options = ("--target", "cpu-bf16", "--points", "3", "--max-error", "0.5", "-o", "tuned")
    result = mxamp("tune", "cls", *given, *options, "--html", "tuned.html")
    assert result.status == 0, result.err
    page = (folder / "tuned.html").read_text(encoding="utf-8")
    assert "Accuracy (top-1)" in page
    assert "top-1, points" in page


def test_compare_writes_the_page_of_the_converted_model(mxamp, folder):
    pytest.importorskip("mxnet")
    mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out")
    given = ("--data", images(folder), "--latency-seconds", "0", "--html", "compared.html")
    result = mxamp("compare", "net", "out", *given)
    assert result.status == 0
    assert "relative L2" in result.out
    assert "<h2>Fidelity</h2>" in (folder / "compared.html").read_text(encoding="utf-8")
    assert reason_of(folder / "compared.html", "exp0")


def test_a_page_of_several_models_is_refused_before_anything_runs(mxamp, folder):
    result = mxamp("compare", "net", "a", "b", "--random", "--html", "page.html")
    assert result.status == 2
    assert "--html is about one converted model" in result.err


def test_the_fp32_model_must_be_the_one_that_was_recorded(mxamp, folder):
    pytest.importorskip("mxnet")
    mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out")
    symbol = folder / "net-symbol.json"
    symbol.write_text(symbol.read_text().replace("relu0", "relu9"))
    result = mxamp("report", "out", "--data", images(folder), "-o", "out.html")
    assert result.status == 2
    assert "was converted from net-symbol.json, which is not beside it as it was then" in result.err
    assert "--against" in result.err
    assert not (folder / "out.html").exists()


def test_against_goes_with_data(mxamp, folder):
    result = mxamp("report", "net", "--against", "net", "-o", "out.html")
    assert result.status == 2
    assert "--against goes with --data" in result.err
