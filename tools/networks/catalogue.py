"""All the networks, by name."""

from __future__ import annotations

from typing import Mapping

from mxnet.gluon import rnn

from mxamp.errors import UnknownNameError, nearest_names
from tools.networks.detection import faster_rcnn
from tools.networks.digits import Capsules, lenet, perceptron
from tools.networks.faces import arcface, mobile_face_net, mtcnn_output, mtcnn_proposal
from tools.networks.language import Bert, LanguageModel, text_cnn
from tools.networks.names import NETWORK_NAMES
from tools.networks.network import Network, constant, image, noise, tokens, zeros
from tools.networks.pictures import StyleTransfer, UNet, dcgan_generator
from tools.networks.recommendation import matrix_factorisation
from tools.networks.sequences import DeepSpeech, HandwritingRecognition, captcha

__all__ = ["find_network", "networks"]


def find_network(name: str) -> Network:
    """Return the network of a name.

    Raises
    ------
    UnknownNameError
        When there is none; names the nearest.
    """
    found = networks()
    if name not in found:
        raise UnknownNameError(
            f"There is no network {name!r}.{nearest_names(name, list(found))} They are {', '.join(found)}."
        )
    return found[name]


def networks() -> Mapping[str, Network]:
    """Return every network by name, in the order of :data:`tools.networks.names.NETWORK_NAMES`."""
    own = {network.name: network for network in _ALL}
    return {name: own[name] for name in NETWORK_NAMES}


_WORDS, _CHARACTERS, _PIECES = 10_000, 96, 30_522

_ALL = (
    Network("lenet", "LeNet on digits of 28 by 28 pixels", lenet, {"data": image(1, 28, 28)}),
    Network(
        "perceptron", "a perceptron on digits of 28 by 28 pixels", perceptron, {"data": image(1, 28, 28)}
    ),
    Network("capsules", "capsules on digits of 28 by 28 pixels", Capsules, {"data": image(1, 28, 28)}),
    Network(
        "text_cnn",
        "a convolutional classifier of sentences of 56 words",
        lambda: text_cnn(length=56, vocabulary=20_000),
        {"data": tokens(56, vocabulary=20_000)},
    ),
    Network(
        "lstm_language_model",
        "two LSTM layers of 200 units over 35 words",
        lambda: LanguageModel(rnn.LSTM, vocabulary=_WORDS, embedding=200, hidden=200, layers=2),
        {
            "data0": tokens(35, vocabulary=_WORDS, batch_axis=1),
            "data1": zeros(2, 200, batch_axis=1),
            "data2": zeros(2, 200, batch_axis=1),
        },
    ),
    Network(
        "gru_language_model",
        "a GRU layer of 512 units over 64 characters",
        lambda: LanguageModel(rnn.GRU, vocabulary=_CHARACTERS, embedding=64, hidden=512, layers=1),
        {"data0": tokens(64, vocabulary=_CHARACTERS, batch_axis=1), "data1": zeros(1, 512, batch_axis=1)},
    ),
    Network(
        "bert_base",
        "BERT base over 128 word pieces",
        lambda: Bert(vocabulary=_PIECES, length=128),
        {
            "data0": tokens(128, vocabulary=_PIECES),
            "data1": tokens(128, vocabulary=2),
            "data2": constant(112),
        },
    ),
    Network(
        "handwriting_recognition",
        "convolutions and bidirectional LSTMs over lines of 32 by 400 pixels",
        HandwritingRecognition,
        {"data": image(1, 32, 400)},
    ),
    Network(
        "deep_speech",
        "convolutions and bidirectional GRUs over 200 frames of a spectrogram",
        DeepSpeech,
        {"data": noise(1, 200, 161)},
    ),
    Network(
        "captcha_lstm",
        "LSTM cells unrolled over 80 columns of an image",
        lambda: captcha(columns=80),
        {"data": noise(80, 30)},
    ),
    Network(
        "style_transfer", "style transfer, 256 by 256 pixels", StyleTransfer, {"data": image(3, 256, 256)}
    ),
    Network("u_net", "U-Net, 32 channels wide, 256 by 256 pixels", UNet, {"data": image(3, 256, 256)}),
    Network(
        "dcgan_generator",
        "a DCGAN's generator, to 64 by 64 pixels",
        dcgan_generator,
        {"data": noise(100, 1, 1)},
    ),
    Network(
        "arcface",
        "ArcFace's ResNet-34 with PReLU, 112 by 112 pixels",
        arcface,
        {"data": image(3, 112, 112, pixels="raw")},
    ),
    Network(
        "mobile_face_net",
        "MobileFaceNet, 112 by 112 pixels",
        mobile_face_net,
        {"data": image(3, 112, 112, pixels="raw")},
    ),
    Network(
        "mtcnn_proposal",
        "MTCNN's first stage, 216 by 384 pixels",
        mtcnn_proposal,
        {"data": image(3, 216, 384)},
    ),
    Network("mtcnn_output", "MTCNN's last stage, 48 by 48 pixels", mtcnn_output, {"data": image(3, 48, 48)}),
    Network(
        "faster_rcnn_symbols",
        "Faster R-CNN of symbols with a ResNet of 26 layers, 320 by 480 pixels",
        faster_rcnn,
        {"data": image(3, 320, 480), "im_info": constant(320, 480, 1)},
    ),
    Network(
        "matrix_factorisation",
        "a recommender's scores of 256 pairs a sample",
        lambda: matrix_factorisation(users=20_000, items=5_000),
        {"user": tokens(256, vocabulary=20_000), "item": tokens(256, vocabulary=5_000)},
    ),
)
