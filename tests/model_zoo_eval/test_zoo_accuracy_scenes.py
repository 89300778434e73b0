"""Scenes are the same every time, true to their boxes, and share nothing between the sides of the split."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
pytest.importorskip("cv2", reason="scenes are drawn with OpenCV")
pytest.importorskip("matplotlib", reason="a photograph comes with Matplotlib")

from model_zoo_eval.accuracy.scenes import (
    BACKGROUND,
    HELDOUT,
    SIZE,
    TRAINING,
    Scene,
    compose,
    digits_of,
    heldout_scenes,
    to_input,
)


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return heldout_scenes(12)


def test_scenes_are_the_same_every_time(scenes: list[Scene]) -> None:
    for first, second in zip(scenes, heldout_scenes(12)):
        for left, right in zip(first, second):
            np.testing.assert_array_equal(left, right)
    assert any(
        (first.image != second.image).any() for first, second in zip(scenes, heldout_scenes(12, seed=1))
    )


def test_fewer_scenes_are_the_first_of_more(scenes: list[Scene]) -> None:
    np.testing.assert_array_equal(heldout_scenes(3)[2].image, scenes[2].image)


def test_no_digit_and_no_photograph_is_on_both_sides() -> None:
    assert not set(TRAINING.photographs) & set(HELDOUT.photographs)
    training, heldout = ({scan.tobytes() for scan in digits_of(side)[0]} for side in (TRAINING, HELDOUT))
    assert not training & heldout
    assert len(digits_of(TRAINING)[0]) == 1258
    assert len(digits_of(HELDOUT)[0]) == 539


def test_boxes_surround_the_ink_and_do_not_overlap(scenes: list[Scene]) -> None:
    for scene in scenes:
        assert 1 <= len(scene.boxes) == len(scene.labels) <= 4
        for number, (box, label) in enumerate(zip(scene.boxes, scene.labels)):
            rows, columns = np.nonzero(scene.objects == number)
            assert (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) == tuple(box)
            assert (scene.mask[rows, columns] == label + 1).all()
        assert ((scene.mask == BACKGROUND) == (scene.objects == -1)).all()
        covered = np.zeros((SIZE, SIZE), int)
        for left, top, right, bottom in scene.boxes.astype(int):
            covered[top:bottom, left:right] += 1
        assert covered.max() == 1


def test_every_heldout_digit_is_used_before_any_is_used_again() -> None:
    drawn = compose(HELDOUT, 60, seed=5)
    counts = np.bincount(np.concatenate([scene.labels for scene in drawn]), minlength=10)
    assert counts.min() >= 3


def test_a_network_reads_normalized_pixels(scenes: list[Scene]) -> None:
    values = to_input(scenes[:2])
    assert values.shape == (2, 3, SIZE, SIZE)
    assert values.dtype == np.float32
    red = (scenes[0].image[0, 0, 0] / 255 - 0.485) / 0.229
    assert values[0, 0, 0, 0] == pytest.approx(red, abs=1e-5)
