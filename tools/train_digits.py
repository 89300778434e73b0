"""Train the network of the demo: GluonCV's cifar_resnet20_v1 on scikit-learn's handwritten digits.

The demo needs a network whose accuracy is real and can be measured again anywhere, with nothing to download.
This script trains it from scratch on a CPU in a few minutes and writes three small files::

    PREFIX-symbol.json   the graph        what mx.model.load_checkpoint(PREFIX, 0) and
    PREFIX-0000.params   the parameters   SymbolBlock.imports read, all in float32
    PREFIX.json          how it was trained and what it scores on held-out digits

Run it from the top of the repository::

    python -m tools.train_digits --help

The held-out digits are looked at once, after the last epoch and through the files just written: nothing in a
run is chosen by them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any, Callable, NamedTuple, Sequence

import cv2
import gluoncv
import mxnet as mx
import numpy as np
import sklearn
from numpy.typing import NDArray

from tools import digits, stock

__all__ = ["MODEL", "Settings", "augment", "count_correct", "main", "train"]

MODEL = "cifar_resnet20_v1"
"""The name of the network in GluonCV's model zoo."""

_DEFAULT_OUTPUT = Path(__file__).resolve().parent.parent / "demo" / f"{MODEL}-digits"
# Gluon numbers the networks that a process builds; with a prefix of our own the names stay the same.
_NAME_PREFIX = "cifarresnetv1_"
_WARMUP_EPOCHS = 3
_MOMENTUM = 0.9
_MAX_SHIFT = 3.0  # pixels of 32
_MAX_ROTATION = 10.0  # degrees; a 6 turned much further starts to look like something else
_MAX_ZOOM = 0.1  # share of the size
_EVALUATION_BATCH = 128


class Settings(NamedTuple):
    """What one training run is determined by.

    Attributes
    ----------
    epochs : int
        Passes over the training digits.
    batch_size : int
        Digits in one step.
    learning_rate : float
        Peak learning rate: reached linearly over three epochs, then a half cosine down to zero.
    weight_decay : float
        L2 penalty of every parameter, as MXNet's SGD applies it.
    seed : int
        Seed of initial weights, order and augmentation. The split of the digits has a seed of its own.
    """

    epochs: int = 80
    batch_size: int = 64
    learning_rate: float = 0.1
    weight_decay: float = 5e-4
    seed: int = 0


def augment(images: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float32]:
    """Shift, turn and zoom every digit a little, each by amounts of its own.

    Parameters
    ----------
    images : numpy.ndarray
        float32, shape (images, channels, height, width), normalized, all channels of an image equal.
    random : numpy.random.Generator
        Where the amounts come from: at most 3 pixels, 10 degrees, and 10% of the size.

    Returns
    -------
    numpy.ndarray
        A new array of the same shape and dtype. What moves in from outside is blank paper.
    """
    count, channels, height, width = images.shape
    centre = ((width - 1) / 2.0, (height - 1) / 2.0)
    shifts = random.uniform(-_MAX_SHIFT, _MAX_SHIFT, size=(count, 2))
    angles = random.uniform(-_MAX_ROTATION, _MAX_ROTATION, size=count)
    zooms = random.uniform(1.0 - _MAX_ZOOM, 1.0 + _MAX_ZOOM, size=count)
    moved = np.empty((count, height, width), dtype=np.float32)
    for index in range(count):
        transform: NDArray[np.float64] = np.asarray(
            cv2.getRotationMatrix2D(centre, float(angles[index]), float(zooms[index])), dtype=np.float64
        )
        transform[:, 2] += shifts[index]
        moved[index] = cv2.warpAffine(
            images[index, 0],
            transform,
            (width, height),
            flags=cv2.INTER_LINEAR,
            borderMode=cv2.BORDER_CONSTANT,
            borderValue=(digits.BACKGROUND,),
        )
    return np.repeat(moved[:, np.newaxis], channels, axis=1)


def train(images: NDArray[np.float32], labels: NDArray[np.int64], settings: Settings) -> Any:
    """Train the network from random weights, printing one line an epoch.

    Parameters
    ----------
    images : numpy.ndarray
        float32, shape (images, 3, 32, 32), normalized: the training digits.
    labels : numpy.ndarray
        int64, shape (images,): the digit each one shows.
    settings : Settings
        Schedule and seed.

    Returns
    -------
    mxnet.gluon.HybridBlock
        The trained network, hybridized and ready for ``export``.

    Raises
    ------
    ValueError
        When there are fewer images than one batch holds.

    Notes
    -----
    The images left over after an epoch's last full batch are skipped, other ones each time: the statistics of
    a few images would count in BatchNorm's running averages as much as those of a full batch.
    """
    batches = len(images) // settings.batch_size
    if batches == 0:
        raise ValueError(
            f"one batch holds {settings.batch_size} images, but there are only {len(images)} to train on:"
            " give a smaller batch size"
        )
    mx.random.seed(settings.seed)
    random = np.random.default_rng(settings.seed)
    network = gluoncv.model_zoo.get_model(
        MODEL, pretrained=False, classes=digits.CLASSES, prefix=_NAME_PREFIX
    )
    network.initialize(mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2), ctx=mx.cpu())
    network.hybridize(static_alloc=True, static_shape=True)
    schedule = mx.lr_scheduler.CosineScheduler(
        max_update=settings.epochs * batches,
        base_lr=settings.learning_rate,
        final_lr=0.0,
        warmup_steps=min(_WARMUP_EPOCHS, settings.epochs // 2) * batches,
    )
    trainer = mx.gluon.Trainer(
        network.collect_params(),
        "nag",
        {"lr_scheduler": schedule, "momentum": _MOMENTUM, "wd": settings.weight_decay},
    )
    loss_function = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    for epoch in range(settings.epochs):
        started = time.perf_counter()
        order = random.permutation(len(images))[: batches * settings.batch_size]
        augmented = augment(images[order], random)
        loss_sum, correct = 0.0, 0
        for start in range(0, len(order), settings.batch_size):
            data = mx.nd.array(augmented[start : start + settings.batch_size])
            target = labels[order[start : start + settings.batch_size]]
            with mx.autograd.record():
                scores = network(data)
                loss = loss_function(scores, mx.nd.array(target))
            loss.backward()
            trainer.step(settings.batch_size)
            loss_sum += float(loss.sum().asscalar())
            correct += int((scores.asnumpy().argmax(axis=1) == target).sum())
        print(
            f"epoch {epoch + 1:3d}/{settings.epochs}  loss {loss_sum / len(order):.4f}"
            f"  training accuracy {correct / len(order):7.2%}  learning rate {trainer.learning_rate:.4f}"
            f"  {time.perf_counter() - started:.1f} s",
            flush=True,
        )
    return network


def count_correct(prefix: Path, images: NDArray[np.float32], labels: NDArray[np.int64]) -> int:
    """Count the digits that a saved network gets right, reading it as any MXNet user would.

    Parameters
    ----------
    prefix : pathlib.Path
        What the files' names start with; epoch 0 is read.
    images : numpy.ndarray
        float32, shape (images, 3, 32, 32), normalized.
    labels : numpy.ndarray
        int64, shape (images,): the digit each one shows.

    Returns
    -------
    int
        How many images score highest for their own digit.
    """
    scores = stock.predict(prefix, images, batch_size=_EVALUATION_BATCH)
    return int((scores.argmax(axis=1) == labels).sum())


def _save(network: Any, prefix: Path, settings: Settings, split: digits.DigitsSplit) -> dict[str, Any]:
    """Write the three files, or none: they are complete and scored before they get their names."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".train-digits-", dir=prefix.parent) as folder:
        draft = Path(folder) / prefix.name
        network.export(str(draft), epoch=0)
        correct = count_correct(draft, split.heldout_images, split.heldout_labels)
        record = _describe(settings, split, correct)
        # with_name, not with_suffix: a prefix such as "v1.0" has a dot of its own.
        draft.with_name(f"{draft.name}.json").write_text(
            json.dumps(record, indent=2) + "\n", encoding="utf-8"
        )
        for ending in ("-symbol.json", "-0000.params", ".json"):
            written = draft.with_name(draft.name + ending)
            with written.open("rb+") as stream:
                os.fsync(stream.fileno())
            os.replace(written, prefix.with_name(prefix.name + ending))
    return record


def _describe(settings: Settings, split: digits.DigitsSplit, correct: int) -> dict[str, Any]:
    """Say how the parameters came about and what they score, undated: the same run writes the same text."""
    return {
        "model": MODEL,
        "dataset": "handwritten digits of scikit-learn (sklearn.datasets.load_digits)",
        "heldout": {
            "images": len(split.heldout_labels),
            "correct": correct,
            "accuracy": round(correct / len(split.heldout_labels), 6),
        },
        "split": {
            "training_images": len(split.train_labels),
            "heldout_fraction": digits.HELDOUT_FRACTION,
            "seed": digits.SPLIT_SEED,
            "stratified": True,
        },
        "input": {
            "name": "data",
            "shape": ["batch", *digits.IMAGE_SHAPE],
            "dtype": "float32",
            "upscaling": "bicubic (OpenCV), clipped to the range of the ink",
            "mean": digits.PIXEL_MEAN,
            "std": digits.PIXEL_STD,
        },
        "training": {
            **settings._asdict(),
            "threads": os.environ.get("OMP_NUM_THREADS", "one per core"),
            "optimizer": "Nesterov momentum",
            "momentum": _MOMENTUM,
            "schedule": "linear warm-up, then half a cosine to zero",
            "augmentation": {
                "shift_pixels": _MAX_SHIFT,
                "rotation_degrees": _MAX_ROTATION,
                "zoom": _MAX_ZOOM,
            },
        },
        "versions": {
            "mxnet": mx.__version__,
            # gluoncv.__version__ of 0.10.5.post0 says "0.11.0".
            "gluoncv": metadata.version("gluoncv"),
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
            "opencv": cv2.__version__,
        },
    }


def _number(kind: Callable[[str], float], *, zero: bool = False) -> Callable[[str], float]:
    """Make an argparse type: a finite number above zero, or from zero on, refused in words otherwise."""

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
            noun = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(
                f"{text!r} is not {noun} {'from zero on' if zero else 'above zero'}"
            )
        return value

    return parse


def _parser() -> argparse.ArgumentParser:
    """Build the command line."""
    defaults = Settings()
    parser = argparse.ArgumentParser(
        prog="python -m tools.train_digits",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=(
            f"Train GluonCV's {MODEL} on scikit-learn's handwritten digits and save it in float32.\n\n"
            "Writes PREFIX-symbol.json and PREFIX-0000.params, which stock MXNet loads, and PREFIX.json:\n"
            "settings, versions and held-out accuracy. Nothing is downloaded. With the defaults it takes\n"
            "about three minutes on two CPU cores. OMP_NUM_THREADS sets how many are used; on one machine\n"
            "the same settings and number of threads give the same parameters, bit for bit."
        ),
        epilog=(
            "examples:\n"
            "  # Is everything installed? One quick epoch, written somewhere else.\n"
            "  python -m tools.train_digits --epochs 1 --output trial/digits\n\n"
            "  # Make the committed files of the demo again.\n"
            "  OMP_NUM_THREADS=2 python -m tools.train_digits\n\n"
            "  # How much is chance? Another start, order and augmentation; the same digits are held out.\n"
            "  python -m tools.train_digits --seed 1 --output trial/digits-seed1"
        ),
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="PREFIX",
        type=Path,
        default=_DEFAULT_OUTPUT,
        help=f"start of the files' names; existing files are replaced (default: demo/{_DEFAULT_OUTPUT.name})",
    )
    parser.add_argument(
        "--epochs",
        metavar="N",
        type=_number(int),
        default=defaults.epochs,
        help="passes over the training digits (default: %(default)s)",
    )
    parser.add_argument(
        "--batch-size",
        metavar="N",
        type=_number(int),
        default=defaults.batch_size,
        help="digits in one step (default: %(default)s)",
    )
    parser.add_argument(
        "--learning-rate",
        metavar="RATE",
        type=_number(float),
        default=defaults.learning_rate,
        help="peak rate, reached after a short warm-up; it ends at zero (default: %(default)s)",
    )
    parser.add_argument(
        "--weight-decay",
        metavar="DECAY",
        type=_number(float, zero=True),
        default=defaults.weight_decay,
        help="L2 penalty of every parameter (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=_number(int, zero=True),
        default=defaults.seed,
        help="seed of initial weights, order and augmentation, not of the split (default: %(default)s)",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, save, and print the held-out accuracy.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command-line arguments; None means those of the process.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    settings = Settings(
        epochs=options.epochs,
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        weight_decay=options.weight_decay,
        seed=options.seed,
    )
    started = time.perf_counter()
    split = digits.load_digits_split()
    print(
        f"{MODEL}: {len(split.train_labels)} digits to train on, {len(split.heldout_labels)} held out",
        flush=True,
    )
    if settings.batch_size > len(split.train_labels):
        parser.error(
            f"--batch-size {settings.batch_size}: there are only {len(split.train_labels)} digits to train on"
        )
    network = train(split.train_images, split.train_labels, settings)
    heldout = _save(network, options.output, settings, split)["heldout"]
    print(f"held-out accuracy {heldout['accuracy']:.2%} ({heldout['correct']} of {heldout['images']})")
    print(f"wrote {options.output}-symbol.json, {options.output}-0000.params and {options.output}.json")
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
