from __future__ import annotations

import json

import pytest

mx = pytest.importorskip("mxnet")
pytest.importorskip("cv2")
pytest.importorskip("sklearn")

from mxamp.measuring.machine import AMX_SETTING
from tools import demo


@pytest.fixture(autouse=True)
def _without_amx(monkeypatch):
    """Keep the demonstration from turning on AMX: processes of later tests would have no permission."""
    monkeypatch.setenv(AMX_SETTING[0], "DEFAULT")


@pytest.mark.zoo
def test_the_demonstration_shows_both_models(tmp_path, capsys):
    options = ["--no-pretrained", "--rounds", "2", "--output", str(tmp_path)]
    assert demo.main(options) == 0
    shown = capsys.readouterr().out
    stated = json.loads(demo.DIGITS_PREFIX.with_name(f"{demo.DIGITS_PREFIX.name}.json").read_text())[
        "heldout"
    ]
    digits, resnet = shown.split("2. ResNet-50")
    assert f"{stated['correct']}/{stated['images']}" in digits
    assert "accuracy" in digits
    # Random weights have no accuracy, and the output must not pretend so.
    assert "RANDOM" in resnet
    assert "accuracy" not in resnet
    for part in (
        "relative L2 error",
        "bias",
        "same first choice",
        "one forward pass, ms",
        "parameters, MB",
        "casts",
    ):
        assert part in resnet
    for name in ("digits-bf16", "resnet50_v1-bf16"):
        assert (tmp_path / f"{name}-symbol.json").is_file()
        mx.model.load_checkpoint(str(tmp_path / name), 0)


def test_bfloat16_loses_at_most_two_held_out_digits(tmp_path, capsys):
    before, after = demo.show_digits(tmp_path, images=200)
    assert abs(before - after) <= 2
    assert "Different predictions" in capsys.readouterr().out


def test_an_impossible_number_of_rounds_is_refused(capsys):
    with pytest.raises(SystemExit):
        demo.main(["--rounds", "0"])
    assert "--rounds must be at least 1" in capsys.readouterr().err
