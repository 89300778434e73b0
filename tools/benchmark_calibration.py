"""What compensated weights take from the error of bfloat16, on samples that the calibration has not seen.

    python -m tools.benchmark_calibration            (or: make bench-calibration)
    python -m tools.benchmark_calibration --models resnet50_v1 --samples 32 --json found.json

Networks of the zoo have random weights here: they are calibrated on cuts of one photograph and judged on cuts
of another. Networks that were trained for this repository are calibrated on samples that they were trained
on, and judged on held-out ones.

The error is the relative L2 distance of the first output from float32's (fusion off): of the weights alone,
that is of the converted graph in float32 with the converted parameters, and of the model as it runs in
bfloat16.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
import warnings
from dataclasses import asdict, dataclass
from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

import mxamp
from model_zoo_eval.registry import Case
from mxamp.calibration.compensate import FULL, MEAN
from mxamp.dtypes import DType
from mxamp.errors import DataError, MxampError, MxampWarning
from mxamp.graph.builder import GraphBuilder
from mxamp.graph.graph import Entry
from mxamp.model import Model
from mxamp.ops.casts import AMP_CAST
from mxamp.report.table import Column, format_table, terminal_width
from mxamp.runtime.random_weights import RESIDUAL_SCALE
from tools.benchmark_options import add_benchmark_options, write_measurements
from tools.machine import describe_machine, machine_lines, prepare_environment, use_amx

__all__ = ["Subject", "main", "measure", "only_weights_rounded"]

MODELS = (
    "resnet18_v1",
    "resnet50_v1",
    "mobilenet1.0",
    "mobilenetv2_1.0",
    "mobilenetv3_large",
    "squeezenet1.1",
    "densenet121",
    "vgg16",
    "simple_pose_resnet18_v1b",
)
"""Networks of the zoo that are measured unless others are asked for: those whose outputs are no rankings."""

_PLAIN = "nearest"
_ZOOMS = (0.6, 1.0)
"""How large a cut of a photograph is, as a part of its shorter side."""


@dataclass(frozen=True)
class Subject:
    """A network with samples.

    Attributes
    ----------
    name
        What it is called.
    weights
        Where its weights come from.
    model
        The float32 model.
    calibration, held_out
        Samples to calibrate with and to judge by, shape ``(samples, channels, height, width)``.
    labels
        The classes of the latter, where there are any.
    """

    name: str
    weights: str
    model: Model
    calibration: NDArray[np.float32]
    held_out: NDArray[np.float32]
    labels: NDArray[Any] | None = None


@dataclass(frozen=True)
class Found:
    """What was measured of one network, rounded in one way.

    Attributes
    ----------
    name, weights, rounding
        The network, and how its weights were rounded.
    samples, held_out
        How many samples it was calibrated with and judged by.
    weights_error, error
        Relative L2 error of the first output: of the weights alone, and of the model as it runs.
    accuracy
        Top-1 on the labels in bfloat16; None without labels.
    calibrate_seconds, convert_seconds, peak_megabytes
        What it took; the memory is that of the process so far.
    """

    name: str
    weights: str
    rounding: str
    samples: int
    held_out: int
    weights_error: float
    error: float
    accuracy: float | None
    calibrate_seconds: float
    convert_seconds: float
    peak_megabytes: float


def measure(subject: Subject, *, low_precision: str | None = None) -> list[Found]:
    """Calibrate a network, convert it in each way, and measure the errors.

    Parameters
    ----------
    subject
        The network and its samples.
    low_precision
        Which nodes are low: see :func:`mxamp.convert_model`.
    """
    from mxamp.runtime.executor import run_outputs

    started = time.perf_counter()
    calibration = mxamp.calibrate(subject.model, subject.calibration)
    calibrated = time.perf_counter() - started
    (name,) = calibration.data[0].shapes
    data = {name: subject.held_out}
    expected = run_outputs(subject.model, data, fusion=False, batch_size=8)[0]
    shape = {name: (1, *subject.held_out.shape[1:])}
    found = []
    for mode in (None, MEAN, FULL):
        started = time.perf_counter()
        converted = mxamp.convert_model(
            subject.model.graph,
            subject.model.arg_params,
            subject.model.aux_params,
            "bfloat16",
            target="cpu-bf16",
            low_precision=low_precision,
            input_shapes=shape,
            calibration=calibration,
            compensate=mode,
        )
        seconds = time.perf_counter() - started
        weights = run_outputs(only_weights_rounded(converted), data, fusion=False, batch_size=8)[0]
        output = run_outputs(converted, data, batch_size=8)[0]
        accuracy = None
        if subject.labels is not None:
            accuracy = float((output.argmax(axis=1) == subject.labels).mean())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        found.append(
            Found(
                subject.name,
                subject.weights,
                mode or _PLAIN,
                len(subject.calibration),
                len(subject.held_out),
                _error(weights, expected),
                _error(output, expected),
                accuracy,
                calibrated,
                seconds,
                peak,
            )
        )
    return found


def only_weights_rounded(converted: Model) -> Model:
    """Return a converted model in float32 with its parameters as they were rounded, and no other rounding."""
    graph, builder = converted.graph, GraphBuilder()
    moved: dict[Entry, Entry] = {}
    for position, node in enumerate(graph.nodes):
        inputs = tuple(moved[entry] for entry in node.inputs)
        if node.op == AMP_CAST:
            moved[Entry(position)] = inputs[0]
            continue
        place = builder.add(node._replace(inputs=inputs))
        for output in range(node.num_outputs):
            moved[Entry(position, output)] = Entry(place, output)
    heads = [moved[head] for head in graph.heads]
    return Model(
        builder.build(heads, graph.attrs),
        {name: value.cast(DType.FLOAT32) for name, value in converted.arg_params.items()},
        {name: value.cast(DType.FLOAT32) for name, value in converted.aux_params.items()},
    )


def _error(found: NDArray[Any], expected: NDArray[Any]) -> float:
    exact = expected.astype(np.float64)
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


# ---------------------------------------------------------------------- networks and samples


def zoo_subject(
    name: str, *, samples: int, held_out: int, seed: int, residual_scale: float = RESIDUAL_SCALE
) -> Subject:
    """Return a network of the zoo with random weights, and cuts of two photographs.

    Parameters
    ----------
    name
        The network.
    samples, held_out
        How many cuts of one and of the other.
    seed
        Of the weights and the cuts.
    residual_scale
        How large residual branches end, beside their trunk.

    Raises
    ------
    DataError
        When it reads no single image.
    """
    from model_zoo_eval.build import build_model

    zoo = build_model(Case(name), pretrained=False, seed=seed, residual_scale=residual_scale, smaller=False)
    shapes = list(zoo.shapes.values())
    if len(shapes) != 1 or len(shapes[0]) != 3 or shapes[0][0] != 3:
        raise DataError(f"{name} does not read one image, so photographs are no samples for it.")
    size = (int(shapes[0][1]), int(shapes[0][2]))
    return Subject(
        name,
        "random",
        zoo.model,
        cuts("china.jpg", samples, size, seed=seed),
        cuts("flower.jpg", held_out, size, seed=seed),
    )


def cuts(photograph: str, count: int, size: tuple[int, int], *, seed: int) -> NDArray[np.float32]:
    """Return cuts of a photograph of scikit-learn's, normalized as networks of ImageNet read them."""
    import cv2
    from sklearn.datasets import load_sample_image

    from tools.photographs import IMAGENET_MEAN, IMAGENET_STD

    pixels: Any = load_sample_image(photograph)
    random = np.random.default_rng(seed)
    found = []
    for number in range(count):
        side = int(min(pixels.shape[:2]) * random.uniform(*_ZOOMS))
        down, across = (int(random.integers(0, length - side + 1)) for length in pixels.shape[:2])
        cut = pixels[down : down + side, across : across + side]
        cut = cv2.resize(cut[:, ::-1] if number % 2 else cut, size[::-1], interpolation=cv2.INTER_AREA)
        normalized = (cut.astype(np.float32) / 255 - np.float32(IMAGENET_MEAN)) / np.float32(IMAGENET_STD)
        found.append(normalized.transpose(2, 0, 1))
    return np.stack(found).astype(np.float32)


def trained_subject(name: str, *, samples: int, held_out: int) -> Subject:
    """Return a network that was trained here, with samples of its training and held-out ones.

    Parameters
    ----------
    name
        The network.
    samples, held_out
        How many of each, at most.
    """
    from model_zoo_eval.accuracy.scenes import TRAINING, compose, heldout_scenes, to_input
    from model_zoo_eval.trained.networks import CLASSIFIER, enlarged, find_network, read
    from tools.digits import load_digits_split

    network = find_network(name)
    model = read(network)
    if network.task != CLASSIFIER:
        scenes = to_input(compose(TRAINING, samples, seed=0)), to_input(heldout_scenes(held_out))
        return Subject(name, "trained", model, *scenes)
    split = load_digits_split()
    return Subject(
        name,
        "trained",
        model,
        enlarged(split.train_images[:samples], network),
        enlarged(split.heldout_images[:held_out], network),
        split.heldout_labels[:held_out],
    )


def trained_names() -> list[str]:
    """Return the networks that were trained here and whose outputs are no rankings."""
    from model_zoo_eval.trained.networks import DETECTOR, NETWORKS

    return [name for name, network in NETWORKS.items() if network.task != DETECTOR]


# ---------------------------------------------------------------------- the command


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print a table.

    Parameters
    ----------
    argv
        The arguments; by default those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", nargs="+", metavar="NAME", help="of the zoo, or trained here")
    parser.add_argument("--samples", type=int, default=32, help="to calibrate with (default: %(default)s)")
    parser.add_argument("--held-out", type=int, default=8, help="to judge by (default: %(default)s)")
    add_benchmark_options(
        parser, rounds=1, round_means="nothing is timed by turns; left at 1", seed_of="weights and cuts"
    )
    options = parser.parse_args(argv)
    prepare_environment()
    use_amx()
    warnings.simplefilter("ignore", MxampWarning)
    machine = describe_machine(seed=options.seed)
    print("\n".join(machine_lines(machine)), flush=True)
    trained = trained_names()
    found: list[Found] = []
    for name in options.models or [*trained, *MODELS]:
        try:
            if name in trained:
                subject = trained_subject(name, samples=2 * options.samples, held_out=32 * options.held_out)
            else:
                subject = zoo_subject(
                    name, samples=options.samples, held_out=options.held_out, seed=options.seed
                )
            found += measure(subject)
        except MxampError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        print("\n".join(_table(found[-3:])), flush=True)
    print("\n" + "\n".join(_table(found)))
    print(_summary(found))
    write_measurements(options.json, {"machine": machine, "found": [asdict(each) for each in found]})
    return 0


def _table(found: Sequence[Found]) -> list[str]:
    columns = (
        Column("network", 12),
        Column("weights", 7),
        Column("rounding", 8),
        Column("of the weights", right=True),
        Column("in bfloat16", right=True),
        Column("top-1", right=True),
        Column("calibrate s", right=True),
        Column("convert s", right=True),
        Column("peak MB", right=True),
    )
    rows = [
        (
            each.name,
            each.weights,
            each.rounding,
            f"{each.weights_error:.2e}",
            f"{each.error:.2e}",
            "" if each.accuracy is None else f"{each.accuracy:.4f}",
            f"{each.calibrate_seconds:.1f}",
            f"{each.convert_seconds:.1f}",
            f"{each.peak_megabytes:.0f}",
        )
        for each in found
    ]
    return format_table(columns, rows, max(120, terminal_width()))


def _summary(found: Sequence[Found]) -> str:
    plain = {each.name: each for each in found if each.rounding == _PLAIN}
    lines = []
    for mode in (MEAN, FULL):
        of_mode = [each for each in found if each.rounding == mode]
        ratios = [each.weights_error / plain[each.name].weights_error for each in of_mode]
        whole = [each.error / plain[each.name].error for each in of_mode]
        if ratios:
            lines.append(
                f"{mode}: error of the weights {np.exp(np.mean(np.log(ratios))):.3f} of nearest rounding's "
                f"(geometric mean; largest {max(ratios):.3f}), in bfloat16 "
                f"{np.exp(np.mean(np.log(whole))):.3f} (largest {max(whole):.3f})"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
