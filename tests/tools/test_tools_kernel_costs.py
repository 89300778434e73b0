"""What rates leave unsaid is learned from timed kernels, and stands in the target's document."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mxamp.targets
from mxamp.targets import Target, Work
from tools import fit_corrections

pytest.importorskip("sklearn", reason="scikit-learn, which learns, is for Python before 3.12")


def document(**kernels: Any) -> dict[str, Any]:
    """Return a target that is cpu-bf16 but for what kernels cost."""
    path = Path(mxamp.targets.__file__).parent / "builtin" / "cpu-bf16.json"
    found = json.loads(path.read_text("utf-8"))
    found["cost"] = {**found["cost"], "kernels": kernels, "corrections": {}}
    return dict(found)


RATES = {"float32": {"one": 2.0, "read": 1e-3}, "low": {"one": 1.0, "read": 1e-3}}


def times_longer(channels: int) -> float:
    """Return what no rate says: channels that fill no block of 16 take half as long again."""
    return 1.0 if channels % 16 == 0 else 1.5


def timed(count: int) -> list[dict[str, Any]]:
    """Return kernels as they are timed in FP32, every other one as a guest."""
    random = np.random.default_rng(0)
    found = []
    for number in range(count):
        shape = (1, int(random.choice([16, 32, 48, 7, 20, 100])), int(random.integers(1, 40)))
        size = math.prod(shape)
        work = Work(0, 2 * size, channels=shape[1], rank=3, inputs=(shape,), output=shape)
        us = times_longer(shape[1]) * (2.0 + 4e-3 * size) * random.uniform(0.98, 1.02)
        found.append(
            {"guest": bool(number % 2), "op": "exp", "work": work.to_document(), "us": {"float32": us}}
        )
    return found


def run_main(tmp_path: Path, kernels: list[dict[str, Any]], *options: str) -> Target:
    path, timings = tmp_path / "mine.json", tmp_path / "kernels.jsonl"
    path.write_text(json.dumps(document(exp=RATES)), "utf-8")
    timings.write_text("".join(json.dumps(one) + "\n" for one in kernels), "utf-8")
    fit_corrections.main([str(path), "--timings", str(timings), *options])
    return Target.from_document(json.loads(path.read_text("utf-8")), source=str(path))


def test_what_rates_leave_unsaid_is_learned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cost = run_main(tmp_path, timed(600)).cost
    assert cost is not None
    for channels in (16, 20):
        shape = (1, channels, 30)
        work = Work(0, 2 * math.prod(shape), rank=3, inputs=(shape,), output=shape)
        expected = times_longer(channels) * (2.0 + 4e-3 * math.prod(shape))
        assert cost.microseconds("exp", work, low=False) == pytest.approx(expected, rel=0.08)
    said = capsys.readouterr().out
    assert "float32: 600 kernels" in said
    assert "100.0 % within 1.25 and 100.0 % within 2 with corrections" in said
    assert "low: 0 kernels are too few to learn from" in said
    assert cost.corrections.low is None


def test_kernels_are_timed_and_those_from_before_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {}

    def time_in_surroundings(timing: Any, target: Target, count: int, *, seed: int) -> Any:
        asked.update(seconds=timing.seconds, count=count, seed=seed)
        return [[{key: value for key, value in one.items() if key != "guest"}] for one in timed(300)]

    monkeypatch.setattr(fit_corrections, "time_in_surroundings", time_in_surroundings)
    run_main(tmp_path, timed(200), "--seconds", "50", "--seed", "7")
    assert asked == {"seconds": 50, "count": 300, "seed": 7}
    assert "float32: 500 kernels" in capsys.readouterr().out
    kept = [json.loads(line) for line in (tmp_path / "kernels.jsonl").read_text("utf-8").splitlines()]
    assert len(kept) == 500
    assert all(one["guest"] for one in kept[200:])


def test_a_target_that_knows_no_kernels_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(document()), "utf-8")
    with pytest.raises(SystemExit):
        fit_corrections.main([str(path)])
    assert "mxamp probe" in capsys.readouterr().err
