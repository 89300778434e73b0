"""Networks of the kinds that are measured, in other sizes, for costs to be fitted to their kernels."""

from __future__ import annotations

from typing import Any

from mxnet.gluon import rnn

from tools.networks.detection import faster_rcnn
from tools.networks.digits import lenet
from tools.networks.faces import arcface, mtcnn_proposal, mtcnn_refinement
from tools.networks.language import Bert, LanguageModel, text_cnn
from tools.networks.network import Network, constant, image, noise, tokens, zeros
from tools.networks.pictures import StyleTransfer, UNet, dcgan_generator
from tools.networks.recommendation import matrix_factorisation
from tools.networks.sequences import DeepSpeech, HandwritingRecognition, captcha
from tools.networks.signals import InceptionTime, QuartzNet, TasNet, VolumeUNet, point_net
from tools.networks.vision import DiffusionUNet, Restormer, SuperPoint, SwishBackbone, ghost_net

__all__ = ["RELATIVES"]


def _language_model(
    kind: str, hidden: int, *, layers: int, words: int, vocabulary: int, embedding: int = 0
) -> Network:
    layer, states = {"lstm": (rnn.LSTM, 2), "gru": (rnn.GRU, 1)}[kind]
    width = embedding or hidden

    def build() -> Any:
        return LanguageModel(layer, vocabulary=vocabulary, embedding=width, hidden=hidden, layers=layers)

    return Network(
        f"{kind}_of_{hidden}",
        f"{layers} {kind.upper()} layers of {hidden} units over {words} words",
        build,
        {
            "data0": tokens(words, vocabulary=vocabulary, batch_axis=1),
            **{f"data{number}": zeros(layers, hidden, batch_axis=1) for number in range(1, states + 1)},
        },
    )


def _text_cnn(*, length: int, vocabulary: int) -> Network:
    return Network(
        f"text_cnn_of_{length}",
        f"a convolutional classifier of sentences of {length} words",
        lambda: text_cnn(length=length, vocabulary=vocabulary),
        {"data": tokens(length, vocabulary=vocabulary)},
    )


def _bert(units: int, *, layers: int, pieces: int) -> Network:
    return Network(
        f"bert_of_{units}",
        f"BERT of {layers} layers of {units} units over {pieces} word pieces",
        lambda: Bert(
            vocabulary=8_000, length=pieces, units=units, hidden=4 * units, layers=layers, heads=units // 64
        ),
        {
            "data0": tokens(pieces, vocabulary=8_000),
            "data1": tokens(pieces, vocabulary=2),
            "data2": constant(pieces - 14),
        },
    )


def _handwriting(hidden: int, *, width: int) -> Network:
    return Network(
        f"handwriting_of_{hidden}",
        f"convolutions and bidirectional LSTMs of {hidden} units over lines of 32 by {width} pixels",
        lambda: HandwritingRecognition(hidden=hidden),
        {"data": image(1, 32, width)},
    )


def _deep_speech(hidden: int, *, layers: int, frames: int) -> Network:
    return Network(
        f"deep_speech_of_{hidden}",
        f"convolutions and {layers} layers of {hidden} GRUs each way over {frames} frames of a spectrogram",
        lambda: DeepSpeech(hidden=hidden, layers=layers),
        {"data": noise(1, frames, 161)},
    )


def _captcha(hidden: int, *, layers: int, columns: int) -> Network:
    return Network(
        f"captcha_of_{hidden}",
        f"{layers} layers of {hidden} LSTM cells unrolled over {columns} columns of an image",
        lambda: captcha(columns=columns, hidden=hidden, layers=layers),
        {"data": noise(columns, 30)},
    )


def _u_net(width: int, side: int) -> Network:
    return Network(
        f"u_net_of_{width}",
        f"U-Net, {width} channels wide, {side} by {side} pixels",
        lambda: UNet(width=width),
        {"data": image(3, side, side)},
    )


def _proposal(height: int, width: int) -> Network:
    return Network(
        f"mtcnn_of_{height}",
        f"MTCNN's first stage, {height} by {width} pixels",
        mtcnn_proposal,
        {"data": image(3, height, width)},
    )


_ALL = (
    Network("lenet_of_32", "LeNet on 32 by 32 pixels", lenet, {"data": image(1, 32, 32)}),
    _text_cnn(length=30, vocabulary=5_000),
    _text_cnn(length=100, vocabulary=8_000),
    _language_model("lstm", 128, layers=2, words=20, vocabulary=2_000),
    _language_model("lstm", 300, layers=1, words=50, vocabulary=5_000),
    _language_model("lstm", 650, layers=2, words=30, vocabulary=8_000),
    _language_model("lstm", 1024, layers=1, words=25, vocabulary=4_000),
    _language_model("gru", 256, layers=1, words=30, vocabulary=8_000),
    _language_model("gru", 384, layers=1, words=100, vocabulary=120, embedding=48),
    _language_model("gru", 640, layers=2, words=40, vocabulary=96, embedding=128),
    _bert(256, layers=4, pieces=64),
    _bert(512, layers=4, pieces=96),
    _handwriting(128, width=256),
    _handwriting(300, width=500),
    _deep_speech(256, layers=2, frames=120),
    _deep_speech(512, layers=2, frames=160),
    _captcha(64, layers=2, columns=40),
    _captcha(150, layers=1, columns=60),
    Network("style_of_160", "style transfer, 160 by 160 pixels", StyleTransfer, {"data": image(3, 160, 160)}),
    _u_net(16, 192),
    _u_net(48, 128),
    Network(
        "dcgan_of_48",
        "a DCGAN's generator of 48 channels, to 64 by 64 grey pixels",
        lambda: dcgan_generator(width=48, channels=1),
        {"data": noise(100, 1, 1)},
    ),
    Network(
        "arcface_of_18",
        "ArcFace's ResNet-18 with PReLU, 112 by 112 pixels",
        lambda: arcface(units=(2, 2, 2, 2), embedding=256),
        {"data": image(3, 112, 112, pixels="raw")},
    ),
    Network(
        "mtcnn_refinement",
        "MTCNN's second stage, 24 by 24 pixels",
        mtcnn_refinement,
        {"data": image(3, 24, 24)},
    ),
    _proposal(120, 160),
    _proposal(64, 96),
    Network(
        "faster_rcnn_of_240",
        "Faster R-CNN of symbols with a ResNet of 26 layers, 240 by 320 pixels",
        lambda: faster_rcnn(candidates=32),
        {"data": image(3, 240, 320), "im_info": constant(240, 320, 1)},
    ),
    Network(
        "factorisation_of_48",
        "a recommender's scores of 64 pairs a sample",
        lambda: matrix_factorisation(users=5_000, items=2_000, factors=48),
        {"user": tokens(64, vocabulary=5_000), "item": tokens(64, vocabulary=2_000)},
    ),
    Network("volume_u_net", "a U-Net over scans of 24 x 32 x 32", VolumeUNet, {"data": noise(1, 24, 32, 32)}),
    Network("quartz_net", "QuartzNet, 800 spectra of 64 values", QuartzNet, {"data": noise(64, 800)}),
    Network("tas_net", "Conv-TasNet, a second of sound at 8 kHz", TasNet, {"data": noise(1, 8_000)}),
    Network("inception_time", "InceptionTime, series of 300 steps", InceptionTime, {"data": noise(3, 300)}),
    Network("point_net", "PointNet, 1,024 points", point_net, {"data": noise(3, 1_024)}),
    Network(
        "diffusion_u_net",
        "a diffusion model's U-Net, 32 by 32 pixels",
        DiffusionUNet,
        {"data0": image(3, 32, 32), "data1": constant(37)},
    ),
    Network("restormer", "Restormer, 48 by 48 pixels", Restormer, {"data": image(3, 48, 48)}),
    Network("super_point", "SuperPoint, 96 by 96 grey pixels", SuperPoint, {"data": image(1, 96, 96)}),
    Network("ghost_net", "ghost modules, 112 by 112 pixels", ghost_net, {"data": image(3, 112, 112)}),
    Network(
        "swish_backbone", "YOLOv5's features, 128 by 128 pixels", SwishBackbone, {"data": image(3, 128, 128)}
    ),
)

RELATIVES = {network.name: network for network in _ALL}
"""All of them by name."""
