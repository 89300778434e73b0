"""The report shows failures first and every task; the difference names every regression."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import pytest

from model_zoo_eval.journal import read_results
from model_zoo_eval.regressions import Tolerances, compare_results
from model_zoo_eval.report import report_parts, write_report
from model_zoo_eval.tables import to_html, to_markdown
from tests.model_zoo_eval.rows import head, ok_row

FAILED = {"status": "timeout", "reason": "not done after 5 s, at the stage bfloat16"}
ABSENT = {"status": "unavailable", "reason": "Its weights cannot be had."}

Write = Callable[..., Path]


def cells_of(text: str, start: str) -> dict[str, str]:
    """Return the first row of the Markdown table that begins so, by its columns' names."""
    header, _, row = text[text.index(start) :].splitlines()[:3]
    return dict(zip(header.strip("| ").split(" | "), row.strip("| ").split(" | ")))


def changed(**more: Any) -> dict[str, Any]:
    row = ok_row()
    row["results"]["bfloat16"].update(more)
    return row


def test_failures_come_first_and_every_reason_is_told(write_journal: Write) -> None:
    path = write_journal(
        "results.jsonl", {"resnet18_v1": ok_row(), "vgg11": FAILED, "resnet50_v1_int8": ABSENT}
    )
    text = to_markdown(report_parts(read_results(path)))
    places = [text.index(part) for part in ("## Failures: 1", "## Not evaluated: 1", "## Classification: 1")]
    assert places == sorted(places)
    assert "| vgg11 | timeout | not done after 5 s, at the stage bfloat16 |" in text
    assert "| 1 | Its weights cannot be had. | resnet50_v1_int8 |" in text
    assert (
        "3 of the zoo's 332 names: converted to bfloat16 and run 1, converted to float16 and run in "
        "emulation 1, cannot be evaluated 1, failed 1."
    ) in text
    assert "ImageNet top-1 70.93" in text  # GluonCV's figure, named as what it is
    assert "1 of 1 results are of random weights" in text
    assert "a processor (avx512_bf16), 2 cores, 2 threads a model, seed 0" in text


def test_a_table_has_fp32_bf16_and_fp16_beside_each_other(write_journal: Write) -> None:
    text = to_markdown(report_parts(read_results(write_journal("r.jsonl", {"resnet18_v1": ok_row()}))))
    cells = cells_of(text, "| model | input")
    errors = [cells[f"{dtype} error"] for dtype in ("FP32", "BF16", "FP16")]
    assert errors == ["1.0e-06", "5.0e-03", "5.0e-04"]
    assert (cells["BF16 speed"], cells["BF16 same class"], cells["BF16 casts"]) == ("1.80", "8/8", "2")
    assert "weights" not in cells
    assert "All of them have random weights." in text


def test_weights_are_told_by_model_where_they_differ(write_journal: Write) -> None:
    rows = {"resnet18_v1": ok_row(), "alexnet": ok_row(weights="trained")}
    text = to_markdown(report_parts(read_results(write_journal("r.jsonl", rows))))
    assert cells_of(text, "| model | input")["weights"] == "trained"
    assert "1 of 2 results are of random weights" in text


def test_a_task_without_a_measure_has_no_column_for_it(write_journal: Write) -> None:
    path = write_journal("r.jsonl", {"siamrpn_alexnet_v2_otb15": ok_row()})
    cells = cells_of(to_markdown(report_parts(read_results(path))), "| model | input")
    assert [name for name in cells if name.startswith("FP16")] == ["FP16 error", "FP16 dB", "FP16 casts"]
    assert (cells["FP16 error"], cells["parameters, MB"]) == ("5.0e-04", "10.0 to 5.0")


def test_what_was_not_run_on_a_gpu_is_told_with_its_reason(write_journal: Write) -> None:
    rows = {name: ok_row(skipped={"float16 on a GPU": "MXNet sees no GPU"}) for name in ("alexnet", "vgg11")}
    text = to_markdown(report_parts(read_results(write_journal("r.jsonl", rows))))
    assert "Not run: float16 on a GPU, because MXNet sees no GPU (2 cases)." in text


def test_what_needs_a_look_comes_before_the_tables(write_journal: Write) -> None:
    rows = {f"resnet{depth}_v1": ok_row() for depth in (18, 34, 50, 101, 152)}
    rows.update({f"resnet{depth}_v1b": ok_row() for depth in (18, 34, 50, 101, 152)})
    rows["alexnet"] = ok_row(ratio=0.9)
    rows["vgg11"] = changed(heads=[head(0.03, nan=2, fp32_nan=1, cosine=1.0)])
    rows["vgg13"] = changed(heads=[head(0.02, cosine=0.9998)])
    text = to_markdown(report_parts(read_results(write_journal("r.jsonl", rows))))
    names = (
        "NaN and Inf that FP32 does not have: 1",
        "Slower than FP32: 1",
        "Largest errors",
        "Classification",
    )
    places = [text.index(f"## {name}") for name in names]
    assert places == sorted(places)
    assert "| vgg11 | BF16 | logits | 2 | 0 |" in text
    assert "| alexnet | BF16 | 18.00 | 20.00 | 0.90 | 0.88 to 0.92 | yes |" in text
    largest = [
        "| vgg11 | BF16 | logits | 3.0e-02 | 100 % | 1.0e-06 |",  # the output times 1.03
        "| vgg13 | BF16 | logits | 2.0e-02 | 1 % | 1.0e-06 |",  # rounding
        "| alexnet | BF16 | logits",
    ]
    assert sorted(largest, key=text.index) == largest
    for name in names[:3]:
        assert f"[{name}](#{name.lower().replace(' ', '-').replace(':', '')})" in text


def test_nothing_that_needs_a_look_has_no_section(write_journal: Write) -> None:
    text = to_markdown(report_parts(read_results(write_journal("r.jsonl", {"resnet18_v1": ok_row()}))))
    for name in ("NaN and Inf", "Slower than FP32:", "Largest errors", "## Failures", "## Not evaluated"):
        assert name not in text


def test_a_detector_is_judged_before_its_ranking(write_journal: Write) -> None:
    row = ok_row()
    row["results"]["bfloat16"].update(heads=[head(1.4)], before_ranking=[head(0.004)])
    text = to_markdown(
        report_parts(read_results(write_journal("r.jsonl", {"ssd_300_vgg16_atrous_voc": row})))
    )
    assert cells_of(text, "| model | input")["BF16 error"] == "4.0e-03"
    assert "1.4e+00" not in text


# matplotlib 3.8 draws a logarithmic axis with what pyparsing calls by other names now.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_files_are_written_with_plots_and_html_needs_no_other(write_journal: Write, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = {"resnet18_v1": ok_row(), "alexnet": ok_row(ratio=0.9), "vgg11": FAILED}
    results = read_results(write_journal("results.jsonl", rows))
    files = write_report(results, tmp_path / "out")
    assert [file.name for file in files] == ["report.md", "report.html", "error.svg", "speed.svg"]
    page = files[1].read_text("utf-8")
    assert page.count("<svg") == 2
    assert "src=" not in page
    before = [file.read_bytes() for file in files]
    write_report(results, tmp_path / "out")
    assert [file.read_bytes() for file in files] == before


def test_html_shows_text_as_text(write_journal: Write) -> None:
    row = {"status": "failed", "reason": "<script>alert(1)</script> & more"}
    page = to_html("title", report_parts(read_results(write_journal("r.jsonl", {"vgg11": row}))))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


# ---------------------------------------------------------------------- regressions


@pytest.mark.parametrize(
    ("row", "kind", "said"),
    [
        (FAILED, "failure", "timeout: not done after 5 s"),
        (ok_row(error=0.01), "fidelity", "bfloat16 had an error of 0.005, and has 0.01"),
        (changed(heads=[head(0.005, nan=3)]), "fidelity", "3 more NaN and Inf"),
        (changed(heads=[head("inf")]), "fidelity", "has inf"),
        (ok_row(ratio=0.9), "speed", "was 1.80 times as fast as FP32, and is 0.90"),
        (ok_row(casts=3), "casts", "bfloat16 had 2, and has 3"),
    ],
    ids=["failure", "error", "nan", "infinite", "speed", "casts"],
)
def test_what_got_worse_is_named(write_journal: Write, row: dict[str, Any], kind: str, said: str) -> None:
    before = read_results(write_journal("before.jsonl", {"resnet18_v1": ok_row(), "alexnet": ok_row()}))
    after = read_results(write_journal("after.jsonl", {"resnet18_v1": row, "alexnet": ok_row()}))
    found = compare_results(before, after)
    assert found.compared == 2
    assert {regression.case for regression in found.regressions} == {"resnet18_v1"}
    assert kind in {regression.kind for regression in found.regressions}
    assert any(said in str(regression) for regression in found.regressions)


@pytest.mark.parametrize(
    "row",
    [ok_row(error=0.0055), ok_row(error=0.001), ok_row(ratio=1.7), ok_row(ratio=3.0), ok_row(casts=1)],
    ids=["error within tolerance", "smaller error", "speed within tolerance", "faster", "fewer casts"],
)
def test_what_is_no_worse_is_no_regression(write_journal: Write, row: dict[str, Any]) -> None:
    before = read_results(write_journal("before.jsonl", {"resnet18_v1": ok_row(), "vgg11": FAILED}))
    after = read_results(write_journal("after.jsonl", {"resnet18_v1": row, "vgg11": FAILED}))
    assert not compare_results(before, after).regressions


def test_less_in_low_precision_is_a_note_and_no_regression(write_journal: Write) -> None:
    before = read_results(write_journal("before.jsonl", {"resnet18_v1": ok_row()}))
    after = read_results(write_journal("after.jsonl", {"resnet18_v1": changed(low_multiply_adds=0.5)}))
    found = compare_results(before, after)
    assert not found.regressions
    assert found.notes == ("resnet18_v1 did 100.0 % of its multiply-adds in bfloat16, and does 50.0 %.",)


def test_a_short_run_is_compared_with_a_baseline_of_everything(write_journal: Write) -> None:
    baseline = {"resnet18_v1": ok_row(), "alexnet": ok_row(), "resnet50_v1_int8": ABSENT}
    before = read_results(write_journal("before.jsonl", baseline))
    after = read_results(write_journal("after.jsonl", {"alexnet": ok_row(casts=5)}))
    found = compare_results(before, after)
    assert (found.compared, found.notes) == (1, ())
    assert {regression.case for regression in found.regressions} == {"alexnet"}


def test_tolerances_are_the_users(write_journal: Write) -> None:
    before = read_results(write_journal("before.jsonl", {"resnet18_v1": ok_row()}))
    after = read_results(write_journal("after.jsonl", {"resnet18_v1": ok_row(error=0.01, ratio=1.0)}))
    assert not compare_results(before, after, Tolerances(fidelity=1.5, speed=0.5)).regressions


def test_a_baseline_that_was_disturbed_makes_no_regression(write_journal: Write) -> None:
    disturbed = ok_row()
    disturbed["results"]["bfloat16"]["latency"].update(ratio=7.7, ratio_low=0.9, ratio_high=12.0)
    before = read_results(write_journal("before.jsonl", {"resnet18_v1": disturbed}))
    after = read_results(write_journal("after.jsonl", {"resnet18_v1": ok_row(ratio=1.8)}))
    assert not compare_results(before, after).regressions


def test_a_speed_can_be_told_instead_of_failing(write_journal: Write) -> None:
    before = read_results(write_journal("before.jsonl", {"resnet18_v1": ok_row()}))
    after = read_results(write_journal("after.jsonl", {"resnet18_v1": ok_row(error=0.02, ratio=0.5)}))
    found = compare_results(before, after, Tolerances(slower_is_told=True))
    assert {regression.kind for regression in found.regressions} == {"fidelity"}
    assert found.notes == (
        "resnet18_v1: speed: bfloat16 was 1.80 times as fast as FP32, and is 0.50 times as fast.",
    )


def test_speeds_of_another_processor_are_not_compared(write_journal: Write) -> None:
    before = read_results(write_journal("before.jsonl", {"resnet18_v1": ok_row()}))
    after = read_results(write_journal("after.jsonl", {"resnet18_v1": ok_row(ratio=0.5)}, cpu="another"))
    found = compare_results(before, after)
    assert not found.regressions
    assert "Speeds are not compared" in found.notes[0]


def test_a_speed_is_compared_where_its_own_run_was_on_the_same_processor(write_journal: Write) -> None:
    here = write_journal("here.jsonl", {"resnet18_v1": ok_row(), "alexnet": ok_row()})
    there = write_journal("there.jsonl", {"vgg16": ok_row()}, cpu="another")
    here.write_bytes(here.read_bytes() + there.read_bytes())
    slow = {name: ok_row(ratio=0.5) for name in ("resnet18_v1", "alexnet", "vgg16")}
    found = compare_results(read_results(here), read_results(write_journal("after.jsonl", slow)))
    assert {regression.case for regression in found.regressions} == {"resnet18_v1", "alexnet"}
    assert "not compared of 1 cases: the baseline's are of another" in found.notes[0]


def test_other_weights_or_inputs_are_not_compared_and_the_reader_is_told(write_journal: Write) -> None:
    before = read_results(write_journal("before.jsonl", {"resnet18_v1": ok_row()}))
    after = read_results(
        write_journal(
            "after.jsonl", {"resnet18_v1": ok_row(error=1.0, weights="trained"), "alexnet": ok_row()}
        )
    )
    found = compare_results(before, after)
    assert not found.regressions
    assert found.notes == (
        "The baseline does not have alexnet.",
        "resnet18_v1 is not compared: its weights were random and are trained.",
    )


def test_a_dtype_that_was_asked_for_and_has_no_result_is_not_compared(write_journal: Write) -> None:
    before = read_results(write_journal("before.jsonl", {"resnet18_v1": ok_row(), "alexnet": ok_row()}))
    row = ok_row()
    del row["results"]["float16"]
    after = read_results(write_journal("after.jsonl", {"resnet18_v1": row, "alexnet": ok_row()}))
    found = compare_results(before, after)
    assert (found.compared, found.not_compared) == (1, ("resnet18_v1",))
    assert "resnet18_v1 is not compared in float16, which it has no result of." in found.notes
    run = {**after.runs[0], "options": {"dtypes": ["bfloat16"]}}
    asked = replace(after, run_of=dict.fromkeys(after.rows, run))
    assert compare_results(before, asked).not_compared == ()
