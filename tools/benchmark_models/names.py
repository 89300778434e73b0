"""The models and the variants of the benchmark by name."""

from __future__ import annotations

from typing import Mapping, Sequence

from tools.networks.names import NETWORK_NAMES

__all__ = [
    "FP32",
    "GROUPS",
    "MODELS",
    "MXAMP",
    "MXAMP_NO_SHAPES",
    "MXAMP_PROFILED",
    "NOT_AVAILABLE",
    "PLAIN_RESNETS",
    "PREPARED",
    "STOCK",
    "STOCK_CAST_ONCE",
    "TITLES",
    "VARIANTS",
]

FP32 = "fp32"
PREPARED = "prepared"
STOCK = "stock"
STOCK_CAST_ONCE = "stock_cast_once"
MXAMP_NO_SHAPES = "mxamp_no_shapes"
MXAMP = "mxamp"
MXAMP_PROFILED = "mxamp_profiled"

TITLES: Mapping[str, str] = {
    FP32: "FP32",
    PREPARED: "prepared FP32",
    STOCK: "stock",
    STOCK_CAST_ONCE: "stock, cast once",
    MXAMP_NO_SHAPES: "mxamp, no shapes",
    MXAMP: "mxamp",
    MXAMP_PROFILED: "mxamp, profiled",
}
"""What tables and plots call each variant."""

VARIANTS = tuple(TITLES)

NOT_AVAILABLE = "not available in this version"
"""Why a variant is missing that mxamp cannot make yet."""

MODELS = (
    "resnet18_v1",
    "resnet50_v1",
    "resnet50_v2",
    "resnet50_v1d",
    "se_resnext50_32x4d",
    "resnest50",
    "vgg16",
    "alexnet",
    "squeezenet1.1",
    "densenet121",
    "inceptionv3",
    "xception",
    "mobilenet0.25",
    "mobilenet1.0",
    "mobilenetv2_1.0",
    "mobilenetv3_large",
    "mobilenetv3_small",
    "hrnet_w18_small_v1_c",
    "ssd_512_mobilenet1.0_voc",
    "yolo3_mobilenet1.0_voc",
    "center_net_resnet18_v1b_voc",
    "fcn_resnet50_voc",
    "simple_pose_resnet18_v1b",
)
"""GluonCV's names of the models of the zoo that are measured unless others are asked for."""

GROUPS: Mapping[str, Sequence[str]] = {"zoo": MODELS, "networks": NETWORK_NAMES}
"""What ``--models`` calls all models of the zoo, and all networks that are not of it."""

PLAIN_RESNETS = ("resnet18_v1", "resnet50_v1", "resnet50_v2", "resnet50_v1d")
"""Where nothing but convolutions, BatchNorm, rectifiers and additions round."""
