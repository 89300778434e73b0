"""Train the networks of this folder: ``python -m model_zoo_eval.trained.train NAME``.

Each takes minutes on a CPU core and writes three files::

    NAME-symbol.json.xz   the graph         `xz -d` gives the two files that stock MXNet loads,
    NAME-0000.params.xz   the parameters    with all parameters in float32
    NAME.json             how it was trained

Held-out digits and photographs are not touched here: `python -m model_zoo_eval accuracy` judges by them.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import sys
import tempfile
import time
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any, Callable, NamedTuple, Sequence

import mxnet as mx
import numpy as np
from numpy.typing import NDArray

from model_zoo_eval.accuracy.scenes import BACKGROUND, SIZE, TRAINING, Scene, compose, to_input
from model_zoo_eval.trained.networks import (
    CLASSIFIER,
    DETECTOR,
    NETWORKS,
    SEGMENTER,
    Network,
    build,
    enlarge_to,
    enlarged,
    find_network,
    read,
)
from mxamp.errors import MxampError
from mxamp.files import atomic_write
from tools.digits import load_digits_split
from tools.train_digits import augment

__all__ = ["SETTINGS", "Settings", "main", "train"]


class Settings(NamedTuple):
    """What one training run is determined by.

    Attributes
    ----------
    steps
        How many batches.
    batch
        Images in one.
    rate
        Peak learning rate of Adam: reached linearly over the first tenth, then a half cosine down to zero.
    decay
        L2 penalty of every parameter.
    seed
        Of initial weights, of order and augmentation, and of the scenes.
    """

    steps: int
    batch: int
    rate: float
    decay: float = 1e-5
    seed: int = 0


SETTINGS = {
    "mobilenet0.25-digits": Settings(800, 64, 3e-3),
    "vgg11-digits": Settings(1200, 64, 1e-3),
    "ssd-mobilenet0.25-scenes": Settings(1000, 16, 3e-3),
    "fastscnn-scenes": Settings(1200, 8, 4e-3),
}

Batch = Sequence[Any]

_COARSE = SIZE // 4
"""Height and width that a segmentation network's output is enlarged to while it is trained."""

_BACKGROUND_WEIGHT = 0.3


class _Initial(mx.init.Xavier):  # type: ignore[misc]
    """Xavier's initial weights, for networks that leave BatchNorm's parameters to the caller, as SSD does."""

    def __init__(self) -> None:
        super().__init__(rnd_type="gaussian", factor_type="in", magnitude=2)

    def _init_weight(self, desc: Any, array: Any) -> None:
        if len(array.shape) >= 2:
            super()._init_weight(desc, array)
        else:
            array[:] = 1.0 if str(desc).endswith(("gamma", "var")) else 0.0


def train(network: Network, settings: Settings) -> Any:
    """Train a network from random weights, printing a line now and then.

    Returns
    -------
    mxnet.gluon.HybridBlock
        The trained network, hybridized and ready for ``export``.
    """
    mx.random.seed(settings.seed)
    random = np.random.RandomState(settings.seed)
    net = build(network)
    with warnings.catch_warnings():
        # FastSCNN initialises itself while it is built, before there is a seed.
        warnings.simplefilter("ignore")
        net.initialize(_Initial(), ctx=mx.cpu(), force_reinit=True)
    if network.start:
        _start_from(net, network)
    net.hybridize(static_alloc=True, static_shape=True)
    task = {CLASSIFIER: _Digits, DETECTOR: _Boxes}.get(network.task, _Pixels)(network, random, settings)
    schedule = mx.lr_scheduler.CosineScheduler(
        max_update=settings.steps,
        base_lr=settings.rate,
        final_lr=0.0,
        warmup_steps=settings.steps // 10,
    )
    trainer = mx.gluon.Trainer(
        net.collect_params(),
        "adam",
        {"learning_rate": settings.rate, "lr_scheduler": schedule, "wd": settings.decay},
    )
    started, sums = time.perf_counter(), []
    for step in range(settings.steps):
        batch = task.batch()
        with mx.autograd.record():
            loss = task.loss(net, batch)
        loss.backward()
        trainer.step(1)
        sums.append(float(loss.asscalar()))
        if (step + 1) % 50 == 0 or step + 1 == settings.steps:
            print(
                f"step {step + 1:4d}/{settings.steps}  loss {np.mean(sums):.4f}  "
                f"{time.perf_counter() - started:.0f} s",
                flush=True,
            )
            sums = []
    return net


def _start_from(net: Any, network: Network) -> None:
    """Take over the backbone of a network that was trained before, as detectors are trained."""
    assert network.start is not None
    other, own, theirs = network.start
    trained = read(find_network(other))
    for name, parameter in net.collect_params().items():
        if name.startswith(own):
            source = theirs + name[len(own) :]
            value = trained.arg_params[source] if source in trained.arg_params else trained.aux_params[source]
            parameter.set_data(mx.nd.array(value.numpy()))


class _Digits:
    """Batches of the training digits, each shifted, turned and zoomed a little."""

    def __init__(self, network: Network, random: np.random.RandomState, settings: Settings) -> None:
        split = load_digits_split()
        self._images, self._labels = split.train_images, split.train_labels
        self._network = network
        self._random = random
        # augment draws from a Generator; PCG64's raw bits are frozen, its distributions nearly so.
        self._generator = np.random.default_rng(settings.seed)
        self._size = settings.batch
        self._order: list[int] = []
        self._loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()

    def batch(self) -> Batch:
        if len(self._order) < self._size:
            self._order = list(self._random.permutation(len(self._labels)))
        chosen, self._order = self._order[: self._size], self._order[self._size :]
        images = augment(self._images[chosen], self._generator)
        return mx.nd.array(enlarged(images, self._network)), mx.nd.array(self._labels[chosen])

    def loss(self, net: Any, batch: Batch) -> Any:
        return self._loss(net(batch[0]), batch[1]).mean()


class _Boxes:
    """Batches of scenes, and the loss that SSD is trained with."""

    def __init__(self, network: Network, random: np.random.RandomState, settings: Settings) -> None:
        from gluoncv.loss import SSDMultiBoxLoss
        from gluoncv.model_zoo.ssd.target import SSDTargetGenerator

        self._scenes = _scenes(random, settings)
        self._targets = SSDTargetGenerator(negative_mining_ratio=-1)
        self._loss = SSDMultiBoxLoss()

    def batch(self) -> Batch:
        scenes = self._scenes()
        most = max(len(scene.labels) for scene in scenes)
        # Rows of -1 are no boxes.
        boxes = np.full((len(scenes), most, 4), -1.0, np.float32)
        labels = np.full((len(scenes), most, 1), -1.0, np.float32)
        for number, scene in enumerate(scenes):
            boxes[number, : len(scene.boxes)] = scene.boxes
            labels[number, : len(scene.labels), 0] = scene.labels
        return mx.nd.array(to_input(scenes)), mx.nd.array(boxes), mx.nd.array(labels)

    def loss(self, net: Any, batch: Batch) -> Any:
        images, boxes, labels = batch
        classes, offsets, anchors = net(images)
        with mx.autograd.pause():
            wanted, offsets_wanted, _ = self._targets(anchors, classes, boxes, labels)
        losses, _, _ = self._loss(classes, offsets, wanted, offsets_wanted)
        return losses[0].mean()


class _Pixels:
    """Batches of scenes, and the cross entropy of every fourth pixel of every fourth row.

    The network's own output is at an eighth of the size. Enlarging that to every pixel, and the gradient of
    it, takes longer than all else, so it is enlarged less while it is trained.
    """

    def __init__(self, network: Network, random: np.random.RandomState, settings: Settings) -> None:
        self._scenes = _scenes(random, settings)
        self._loss = mx.gluon.loss.SoftmaxCrossEntropyLoss(axis=1)
        # BilinearResize2D puts corners on corners.
        self._rows = np.rint(np.linspace(0, SIZE - 1, _COARSE)).astype(int)

    def batch(self) -> Batch:
        scenes = self._scenes()
        masks = np.stack([scene.mask[self._rows][:, self._rows] for scene in scenes])[:, np.newaxis]
        # Ink is a fifteenth of a scene; the classes are learned from it.
        weights = np.where(masks == BACKGROUND, _BACKGROUND_WEIGHT, 1.0)
        return mx.nd.array(to_input(scenes)), mx.nd.array(masks), mx.nd.array(weights)

    def loss(self, net: Any, batch: Batch) -> Any:
        images, masks, weights = batch
        enlarge_to(net, _COARSE)
        return self._loss(net(images)[0], masks, weights).mean()


def _scenes(random: np.random.RandomState, settings: Settings) -> Callable[[], list[Scene]]:
    """Return a function that composes the scenes of one batch, new ones every time."""
    return lambda: compose(TRAINING, settings.batch, seed=int(random.randint(2**31 - 1)))


def _example(network: Network) -> NDArray[np.float32]:
    if network.task == CLASSIFIER:
        return enlarged(load_digits_split().train_images[:1], network)
    return to_input(compose(TRAINING, 1, seed=0))


def _without_addresses(graph: bytes) -> bytes:
    """Remove the initialisers that SSD notes in its graph: addresses in the memory of this process."""
    document = json.loads(graph)
    for node in document["nodes"]:
        node.get("attrs", {}).pop("__init__", None)
    return json.dumps(document).encode("utf-8")


def save(net: Any, network: Network, settings: Settings, folder: Path) -> list[Path]:
    """Write the three files, or none."""
    # Detectors return other things while they are trained, and a graph keeps what it was traced as.
    net.hybridize()
    if network.task == SEGMENTER:
        enlarge_to(net, SIZE)
    net(mx.nd.array(_example(network)))
    contents = {}
    with tempfile.TemporaryDirectory(prefix="mxamp-train-") as scratch:
        net.export(str(Path(scratch, network.name)), epoch=0)
        for file in (f"{network.name}-symbol.json", f"{network.name}-0000.params"):
            content = Path(scratch, file).read_bytes()
            if file.endswith(".json"):
                content = _without_addresses(content)
            packed = lzma.compress(content, preset=9 | lzma.PRESET_EXTREME)
            contents[folder / f"{file}.xz"] = packed
    record = {
        "network": network.zoo,
        "change": network.change,
        "task": network.task,
        "data": network.data,
        "starts_from": network.start[0] if network.start else "random weights",
        "settings": settings._asdict(),
        "command": network.command,
        "threads": os.environ.get("OMP_NUM_THREADS", ""),
        "packages": {name: metadata.version(name) for name in ("mxnet", "gluoncv", "numpy", "scikit-learn")},
    }
    folder.mkdir(parents=True, exist_ok=True)
    contents[folder / f"{network.name}.json"] = (json.dumps(record, indent=2) + "\n").encode("utf-8")
    with atomic_write(*contents) as files:
        for file, content in zip(files, contents.values()):
            file.write(content)
    return list(contents)


def main(argv: Sequence[str] | None = None) -> int:
    """Train a network, and write its files."""
    parser = argparse.ArgumentParser(
        prog="python -m model_zoo_eval.trained.train",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=(
            "Train a network on scikit-learn's digits, or on scenes of them, and save it in float32.\n"
            "Nothing is downloaded. On one machine, one thread (OMP_NUM_THREADS=1) gives the same\n"
            "parameters every time, bit for bit; several may add up in another order."
        ),
        epilog="example:\n  OMP_NUM_THREADS=1 python -m model_zoo_eval.trained.train vgg11-digits",
    )
    parser.add_argument("name", metavar="NAME", help=", ".join(SETTINGS))
    parser.add_argument("--steps", type=int, help="batches; fewer to try it (default: the network's own)")
    parser.add_argument("--seed", type=int, default=0, help="default: 0, the committed networks'")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        default=Path(__file__).resolve().parent,
        help="default: this program's own folder",
    )
    args = parser.parse_args(argv)
    try:
        network = find_network(args.name)
    except MxampError as error:
        parser.error(str(error))
    if args.name not in SETTINGS:
        parser.error(f"{args.name} has a program of its own: {NETWORKS[args.name].command}")
    if args.steps is not None and args.steps < 10:
        parser.error("--steps must be 10 or more")
    settings = SETTINGS[args.name]._replace(seed=args.seed)
    if args.steps is not None:
        settings = settings._replace(steps=args.steps)
    for file in save(train(network, settings), network, settings, args.output):
        print(f"wrote {file}, {file.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
