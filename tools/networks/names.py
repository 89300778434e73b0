"""The names of the networks, which can be had without MXNet."""

from __future__ import annotations

from typing import Mapping

__all__ = ["LARGEST_BATCH", "NETWORK_NAMES"]

NETWORK_NAMES = (
    "lenet",
    "perceptron",
    "capsules",
    "text_cnn",
    "lstm_language_model",
    "gru_language_model",
    "bert_base",
    "handwriting_recognition",
    "deep_speech",
    "captcha_lstm",
    "style_transfer",
    "u_net",
    "dcgan_generator",
    "arcface",
    "mobile_face_net",
    "mtcnn_proposal",
    "mtcnn_output",
    "faster_rcnn_symbols",
    "matrix_factorisation",
)
"""In the order in which they are measured."""

LARGEST_BATCH: Mapping[str, int] = {"faster_rcnn_symbols": 1, "faster_rcnn_of_240": 1}
"""The most samples of a forward pass, where there is a limit."""
