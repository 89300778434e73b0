"""The registry has every name of GluonCV's zoo, and says what each takes or why it cannot be evaluated."""

from __future__ import annotations

import pytest

from model_zoo_eval.registry import (
    CONTRIB,
    PRIMITIVE,
    SHORT_SET,
    Case,
    find_entry,
    registry,
    select_cases,
)
from mxamp.errors import UnknownNameError


@pytest.mark.zoo
def test_every_name_of_the_zoo_is_in_the_registry_and_no_other() -> None:
    pytest.importorskip("mxnet")
    gluoncv = pytest.importorskip("gluoncv")
    names = set(gluoncv.model_zoo.get_model_list())
    assert set(registry()) == names
    assert len(registry()) == 332


def test_at_least_300_can_be_evaluated_and_every_other_says_why() -> None:
    entries = registry().values()
    assert sum(entry.is_runnable for entry in entries) >= 300
    reasons = {entry.unavailable for entry in entries if not entry.is_runnable}
    assert all(reason.endswith(".") and len(reason) > 20 for reason in reasons)
    assert {entry.family for entry in entries if not entry.is_runnable} == {"int8", "resnet-groupnorm"}


def test_entries_say_what_to_feed_and_what_comes_out() -> None:
    for name, entry in registry().items():
        assert all((entry.task, entry.title, entry.outputs)), name
        for shape in entry.inputs.values():
            assert len(shape) in (3, 4), name
            assert shape[0] in (3, 6), name
            assert all(size > 0 for size in shape), name
        assert entry.published is None or 0 < entry.published.value <= 100, name
        assert entry.batch == (1 if "rcnn" in name or "siamrpn" in name else 0), name
        if name.endswith(("voc", "coco")) and entry.task == "detection":
            assert entry.classes == (20 if name.endswith("voc") else 80), name
        if "ucf101" in name or "hmdb51" in name:
            assert entry.classes == (101 if "ucf101" in name else 51), name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("resnet50_v1", 77.36),
        ("mobilenetv3_small", 67.72),
        ("ssd_512_resnet50_v1_voc", 80.1),
        ("yolo3_darknet53_coco", 36.0),
        ("fcn_resnet50_ade", 39.5),
        ("simple_pose_resnet50_v1b", 71.0),
        ("resnet50_v1b_gn", 77.36),
        ("monodepth2_resnet18_posenet_kitti_mono_640x192", 0.021),
    ],
)
def test_published_figures_are_gluoncvs(name: str, value: float) -> None:
    published = find_entry(name).published
    assert published is not None
    assert published.value == value


def test_nothing_that_builds_downloads_the_weights_of_a_backbone() -> None:
    downloading = {"ssd", "yolo3", "faster-rcnn", "fcn", "deeplab-v3", "tsn-resnet", "monodepth2"}
    for entry in registry().values():
        if entry.family in downloading:
            assert entry.arguments["pretrained_base"] is False, entry.name


def test_short_set_has_every_task_and_both_forms_of_a_detector() -> None:
    cases = select_cases()
    tasks = {find_entry(case.name).task for case in cases}
    assert tasks >= {
        "classification",
        "detection",
        "segmentation",
        "pose",
        "action recognition",
        "depth",
        "tracking",
    }
    assert {case.form for case in cases} == {"", CONTRIB, PRIMITIVE}
    assert all(find_entry(case.name).is_runnable for case in cases)
    assert len(cases) >= len(SHORT_SET)


def test_patterns_choose_models_and_forms_in_the_registrys_order() -> None:
    assert select_cases(["resnet50_v1", "resnet18_v1"]) == [Case("resnet18_v1"), Case("resnet50_v1")]
    assert [case.key for case in select_cases(["ssd_300_vgg16_atrous_voc"])] == [
        "ssd_300_vgg16_atrous_voc",
        "ssd_300_vgg16_atrous_voc+primitive",
    ]
    assert [case.form for case in select_cases(["ssd_300_vgg16_atrous_voc+primitive"])] == [PRIMITIVE]
    assert len(select_cases(["*_int8"])) == 22
    assert len({case.key for case in select_cases(everything=True)}) == len(select_cases(everything=True))


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("resnet51_v1", "Did you mean 'resnet50_v1'"),
        ("ssd_512_resnet50_voc", "ssd_512_resnet50_v1_voc"),
        ("resnet50_v1+primitive", "has no graph form 'primitive'"),
    ],
    ids=["near name", "near detector", "no such form"],
)
def test_a_wrong_name_is_an_error_with_the_nearest_names(pattern: str, said: str) -> None:
    with pytest.raises(UnknownNameError, match=r"model|form") as raised:
        select_cases([pattern])
    assert said in str(raised.value)


def test_what_is_too_much_for_two_cores_has_a_smaller_input_and_its_own_stays_known() -> None:
    entry = find_entry("r2plus1d_resnet152_kinetics400")
    assert entry.inputs == {"data": (3, 32, 224, 224)}
    assert entry.shapes() == {"data": (3, 16, 224, 224)}


def test_a_smaller_input_keeps_frames_channels_and_proportions() -> None:
    assert find_entry("c3d_kinetics400").shapes(56) == {"data": (3, 16, 56, 56)}
    assert find_entry("siamrpn_alexnet_v2_otb15").shapes(143) == {
        "data0": (3, 64, 64),
        "data1": (3, 143, 143),
    }
    assert find_entry("resnet50_v1").shapes() == {"data": (3, 224, 224)}
