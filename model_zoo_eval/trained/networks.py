"""The networks that are trained here: how each is built, where its files are, and how they are read."""

from __future__ import annotations

import lzma
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping

import numpy as np
from numpy.typing import NDArray

from model_zoo_eval.accuracy.scenes import SIZE
from mxamp.errors import ModelFileNotFoundError, ParamsError, UnknownNameError, nearest_names
from mxamp.model import Model, load
from mxamp.params.parameter import ArrayParameter
from tools.digits import CLASSES

__all__ = [
    "CLASSIFIER",
    "DETECTOR",
    "NETWORKS",
    "SEGMENTER",
    "Network",
    "build",
    "enlarge_to",
    "enlarged",
    "find_network",
    "read",
]

CLASSIFIER = "classification"
DETECTOR = "detection"
SEGMENTER = "segmentation"

_FOLDER = Path(__file__).resolve().parent
_DEMO = _FOLDER.parent.parent / "demo"


@dataclass(frozen=True)
class Network:
    """A network that is trained here.

    Attributes
    ----------
    name
        What results and files call it.
    zoo
        The name in GluonCV's zoo of the model that it is, or is a narrower one of.
    task
        What it does.
    data
        What it was trained on, and is judged on.
    change
        How it differs from the zoo's model, besides the number of classes.
    command
        What trains it.
    prefix
        Start of its files' names.
    scale
        How many times as large as the digits' 32x32 its input is; each pixel is repeated.
    start
        The network that its backbone is taken from when it is trained, and how parameters' names begin in
        this one and that one; None to start from random weights.
    packed
        Whether its files are compressed with xz.
    """

    name: str
    zoo: str
    task: str
    data: str
    change: str
    command: str
    prefix: Path
    scale: int = 1
    start: tuple[str, str, str] | None = None
    packed: bool = True


def _network(
    name: str, zoo: str, task: str, change: str, scale: int = 1, start: tuple[str, str, str] | None = None
) -> Network:
    data = "digits" if task == CLASSIFIER else "scenes"
    command = f"python -m model_zoo_eval.trained.train {name}"
    return Network(name, zoo, task, data, change, command, _FOLDER / name, scale, start)


def enlarged(images: NDArray[np.float32], network: Network) -> NDArray[np.float32]:
    """Return digits of shape (images, 3, 32, 32) in the size that a network reads."""
    return images.repeat(network.scale, axis=2).repeat(network.scale, axis=3)


NETWORKS: Mapping[str, Network] = {
    network.name: network
    for network in (
        Network(
            "cifar_resnet20_v1-digits",
            "cifar_resnet20_v1",
            CLASSIFIER,
            "digits",
            "",
            "python -m tools.train_digits",
            _DEMO / "cifar_resnet20_v1-digits",
            packed=False,
        ),
        _network("mobilenet0.25-digits", "mobilenet0.25", CLASSIFIER, "input of 64x64", 2),
        _network(
            "vgg11-digits",
            "vgg11",
            CLASSIFIER,
            "input of 32x32, 8 to 48 filters a layer instead of 64 to 512, and hidden layers of 128 instead "
            "of 4096",
        ),
        _network(
            "ssd-mobilenet0.25-scenes",
            "ssd_300_mobilenet0.25_voc",
            DETECTOR,
            f"input of {SIZE}x{SIZE}, two scales of features instead of six",
            start=("mobilenet0.25-digits", "ssd_mobilenet0_", "mobilenet_"),
        ),
        _network("fastscnn-scenes", "fastscnn_citys", SEGMENTER, f"input of {SIZE}x{SIZE}"),
    )
}


def find_network(name: str) -> Network:
    """Return the network of a name.

    Raises
    ------
    UnknownNameError
        When there is none; names the nearest.
    """
    if name not in NETWORKS:
        raise UnknownNameError(
            f"No network {name!r} was trained here.{nearest_names(name, list(NETWORKS))} There are "
            f"{', '.join(NETWORKS)}."
        )
    return NETWORKS[name]


def read(network: Network) -> Model:
    """Read a trained network from its files.

    Raises
    ------
    ModelFileNotFoundError
        When a file is missing.
    ParamsError
        When the parameters are damaged.
    """
    if not network.packed:
        return load(str(network.prefix))
    with tempfile.TemporaryDirectory(prefix="mxamp-trained-") as folder:
        for ending in ("-symbol.json", "-0000.params"):
            packed = Path(f"{network.prefix}{ending}.xz")
            if not packed.is_file():
                raise ModelFileNotFoundError(
                    f"There is no file {str(packed)!r}. Take it from git again, or train the network: "
                    f"{network.command}"
                )
            try:
                content = lzma.decompress(packed.read_bytes())
            except (lzma.LZMAError, EOFError) as error:
                raise ParamsError(
                    f"{str(packed)!r} is damaged: {error}. Take it from git again, or train the network: "
                    f"{network.command}"
                ) from error
            Path(folder, f"{network.name}{ending}").write_bytes(content)
        model = load(str(Path(folder, network.name)))
        # Parameters of a file are read when they are asked for, and this file is about to go.
        return Model(model.graph, _in_memory(model.arg_params), _in_memory(model.aux_params))


def _in_memory(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: ArrayParameter(value.numpy()) for name, value in parameters.items()}


def build(network: Network) -> Any:
    """Build a network through GluonCV's class, without parameters, for training.

    Notes
    -----
    Gluon numbers the networks that a process builds; with a prefix of their own the names in the files stay
    the same.
    """
    return _BUILDERS[network.name]()


def _mobilenet() -> Any:
    from gluoncv.model_zoo import get_model

    return get_model("mobilenet0.25", pretrained=False, classes=CLASSES, prefix="mobilenet_")


def _vgg() -> Any:
    from gluoncv.model_zoo.vgg import VGG
    from mxnet.gluon import nn

    network = VGG([1, 1, 2, 2, 2], [8, 16, 32, 48, 48], classes=CLASSES, prefix="vgg_")
    layers = list(network.features)
    with network.name_scope():
        # The class has no argument for its two hidden layers, which would hold 17 million numbers.
        network.features = nn.HybridSequential(prefix="")
        for layer in layers:
            dense = isinstance(layer, nn.Dense)
            network.features.add(nn.Dense(128, activation="relu") if dense else layer)
    return network


def _ssd() -> Any:
    from gluoncv.model_zoo.ssd.ssd import SSD

    return SSD(
        "mobilenet0.25",
        SIZE,
        features=["relu22_fwd"],
        num_filters=[96],
        min_depth=48,
        sizes=[40, 60, 80],
        ratios=[[1, 0.5]] * 2,
        steps=[16, 32],
        classes=[str(digit) for digit in range(CLASSES)],
        anchor_alloc_size=16,
        # As with GluonCV's trained weights: boxes decode with elementary operators.
        minimal_opset=True,
        prefix="ssd_",
    )


def _fastscnn() -> Any:
    from gluoncv.model_zoo.fastscnn import FastSCNN

    return FastSCNN(CLASSES + 1, aux=False, crop_size=SIZE)


def enlarge_to(net: Any, size: int) -> None:
    """Say how large FastSCNN's output is to be, as its own ``demo`` method does."""
    net._up_kwargs = {"height": size, "width": size}


_BUILDERS = {
    "mobilenet0.25-digits": _mobilenet,
    "vgg11-digits": _vgg,
    "ssd-mobilenet0.25-scenes": _ssd,
    "fastscnn-scenes": _fastscnn,
}
