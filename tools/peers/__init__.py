"""Exported models beside other converters' files of the same FP32 model, and in runtimes that compute FP16.

Two environments take part: the one that has MXNet exports the models and judges; ``.venv-peers``
(``constraints/peers-python3.11.txt``) has the other converters, PyTorch and TVM, and reads nothing but files.
"""
