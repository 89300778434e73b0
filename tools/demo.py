"""The demonstration: two real networks go from FP32 to bfloat16, and what that changed is measured.

    python -m tools.demo            (or: make demo)

1. A small network trained on handwritten digits, with its *accuracy* on digits it has never seen.
2. ResNet-50 v1 on two photographs, with its *fidelity*: how far the outputs are from those of FP32.

Both are converted, saved, and read back and run by MXNet alone, as they would be where they are deployed. On
a CPU that MXNet has no bfloat16 for, their results are emulated, and what is timed is the model as
``--target auto`` prepares it for that CPU.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
import time
from pathlib import Path
from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

import mxamp
from mxamp.compare import compare_models
from mxamp.compare.race import race
from mxamp.measuring.machine import AVX512, unmet_need
from mxamp.report.text import summary
from tools import digits, photographs, stock
from tools.machine import ROOT, describe_machine, machine_lines, prepare_environment, use_amx

__all__ = ["main", "show_digits", "show_resnet50"]

DIGITS_PREFIX = ROOT / "demo" / "cifar_resnet20_v1-digits"
OUTPUT_FOLDER = ROOT / "build" / "demo"
RESNET50 = "resnet50_v1"

_WIDTH = 100


def show_digits(folder: Path, *, images: int | None = None) -> tuple[int, int]:
    """Convert the digits network and print its accuracy before and after.

    Parameters
    ----------
    folder : pathlib.Path
        Where the converted files go; must exist.
    images : int, optional
        Use only so many of the held-out digits.

    Returns
    -------
    before, after : int
        How many held-out digits FP32 and bfloat16 get right.
    """
    _heading("1. Handwritten digits: accuracy")
    from mxamp.runtime.executor import run_outputs

    split = digits.load_digits_split()
    held_out, labels = split.heldout_images[:images], split.heldout_labels[:images]
    _paragraph(
        f"cifar_resnet20_v1, trained on {len(split.train_labels)} of scikit-learn's digits "
        f"(tools/train_digits.py); judged on {len(labels)} others."
    )
    started = time.perf_counter()
    model = mxamp.convert_model(*mxamp.load(DIGITS_PREFIX), target_dtype="bfloat16")
    milliseconds = 1e3 * (time.perf_counter() - started)
    prefix = folder / "digits-bf16"
    model.save(prefix)
    before = stock.predict(DIGITS_PREFIX, held_out).argmax(axis=1)
    if _missing():
        _say(f"Converted in {milliseconds:.0f} ms and saved; what it would compute is emulated.")
        emulated = mxamp.emulate(*mxamp.load(DIGITS_PREFIX), target_dtype="bfloat16")
        after = run_outputs(emulated, {"data": held_out})[0].argmax(axis=1)
    else:
        _say(f"Converted in {milliseconds:.0f} ms and saved; both are now read and run by stock MXNet.")
        after = stock.predict(prefix, held_out).argmax(axis=1)
    _say()
    right_before, right_after = int((before == labels).sum()), int((after == labels).sum())
    report = _report(model)
    _table(
        ("", "FP32", "BF16"),
        ("right", f"{right_before}/{len(labels)}", f"{right_after}/{len(labels)}"),
        ("accuracy", f"{right_before / len(labels):.2%}", f"{right_after / len(labels):.2%}"),
        (
            "parameters, MB",
            _megabytes(report.parameter_bytes_before),
            _megabytes(report.parameter_bytes_after),
        ),
    )
    _say(f"Different predictions: {int((before != after).sum())} of {len(labels)}.")
    _say()
    _conversion(model, prefix)
    return right_before, right_after


def show_resnet50(
    folder: Path, *, pretrained: bool | None = None, rounds: int = 30, seed: int = 0
) -> mxamp.Model:
    """Convert ResNet-50 v1 and print fidelity, speed and size.

    Parameters
    ----------
    folder : pathlib.Path
        Where the converted files go; must exist.
    pretrained : bool, optional
        Whether to use trained weights; by default where they can be had.
    rounds : int, default 30
        How often to time FP32 and bfloat16, alternately.
    seed : int, default 0
        Seed of random weights.

    Returns
    -------
    mxamp.Model
        The converted model.
    """
    from mxamp.runtime.zoo import load_zoo

    _heading("2. ResNet-50 v1 on two photographs: fidelity, speed and size")
    pictures = photographs.load_photographs()
    shapes = {"data": (1, *pictures.images.shape[1:])}
    zoo = load_zoo(RESNET50, pretrained=pretrained, input_shapes=shapes, seed=seed)
    _paragraph(f"Weights: {zoo.weights}.")
    if not zoo.is_pretrained:
        _paragraph(
            "Weights and BatchNorm's statistics, scale and shift are random and independent of each other. "
            "So this shows how exactly the conversion computes what FP32 computes, and how fast; what the "
            "network sees in a photograph means nothing."
        )
    fp32 = zoo.model
    started = time.perf_counter()
    model = mxamp.convert_model(
        fp32.graph, fp32.arg_params, fp32.aux_params, target_dtype="bfloat16", input_shapes=shapes
    )
    milliseconds = 1e3 * (time.perf_counter() - started)
    prefix = folder / f"{RESNET50}-bf16"
    model.save(prefix)
    deployed = fastest = mxamp.load(prefix)
    label = "BF16"
    if _missing():
        own = (fp32.graph, fp32.arg_params, fp32.aux_params)
        deployed = mxamp.emulate(*own, target_dtype="bfloat16", input_shapes=shapes)
        fastest = mxamp.convert_model(*own, target_dtype="bfloat16", input_shapes=shapes, target="auto")
        label = "prepared"
    seen = "emulated" if _missing() else "read back from the files"
    _say(f"Converted in {milliseconds:.0f} ms, saved, and {seen}.")
    _say()

    _say(f"Fidelity: distance of the outputs from FP32's, on {' and '.join(pictures.names)}")
    fidelity = compare_models(fp32, deployed, pictures.images, layers=False)
    output = fidelity.outputs[0]
    agreeing = round((output.top1_agreement or 0.0) * fidelity.samples)
    _table(
        ("relative L2 error", f"{output.distance.relative_l2:.2e}"),
        ("bias (mean error)", f"{output.distance.mean_error:+.2e}"),
        ("same first choice", f"{agreeing}/{fidelity.samples}"),
        ("finite", "yes" if output.distance.is_finite else "NO"),
    )
    _show_probabilities(fp32, deployed, pictures, zoo.is_pretrained)

    _say(f"Latency: one photograph, FP32 and {label} in turn, {rounds} times each")
    timed = race([fp32, fastest], pictures.images[:1], rounds=rounds, is_clear=None)
    ratio = timed.ratio(1)
    report = _report(model)
    sizes = (
        "parameters, MB",
        _megabytes(report.parameter_bytes_before),
        _megabytes(report.parameter_bytes_after),
        f"{report.parameter_bytes_before / report.parameter_bytes_after:.2f}",
    )
    _table(
        ("", "FP32", label, f"FP32 / {label}"),
        (
            "one forward pass, ms",
            *(f"{milliseconds:.1f}" for milliseconds in timed.median_ms),
            f"{ratio.median:.2f}  ({ratio.low:.2f} to {ratio.high:.2f})",
        ),
        *(() if _missing() else (sizes,)),
    )
    if _missing():
        _table(("", "FP32", "BF16", "FP32 / BF16"), sizes)
    _say("Times are medians; the ratio is the median over rounds, with its 10th and 90th percentile.")
    _say()
    if ratio.high < 1 and not _missing():
        _paragraph(
            "Slower than FP32: the bfloat16 instructions of this CPU, as MXNet uses them, are not faster "
            "than float32's. `mxamp convert` warns of it; with --target auto and the shapes of the inputs "
            "(--input-shape data=1,3,224,224) it measures, and keeps float32 here (docs/guard.md). "
            "docs/targets.md says which CPUs gain."
        )
    _conversion(model, prefix)
    return model


def _show_probabilities(
    fp32: mxamp.Model, converted: mxamp.Model, pictures: photographs.Photographs, is_pretrained: bool
) -> None:
    """Name what a trained network sees; a random one sees nothing."""
    if not is_pretrained:
        return
    from gluoncv.data import ImageNet1kAttr

    from mxamp.runtime.executor import run_outputs

    classes = ImageNet1kAttr().classes
    rows = [("", "FP32", "BF16")]
    scores = [run_outputs(model, {"data": pictures.images})[0] for model in (fp32, converted)]
    for number, name in enumerate(pictures.names):
        seen = []
        for of_model in scores:
            probabilities = _softmax(of_model[number])
            best = int(probabilities.argmax())
            seen.append(f"{classes[best]} {probabilities[best]:.1%}")
        rows.append((name, *seen))
    _table(*rows)


def _softmax(scores: NDArray[Any]) -> NDArray[Any]:
    powers = np.exp(scores - scores.max())
    probabilities: NDArray[Any] = powers / powers.sum()
    return probabilities


def _missing() -> str:
    """Return what MXNet needs to compute in bfloat16 and does not have here; empty where it does."""
    return unmet_need((AVX512,)) or ""


def _report(model: mxamp.Model) -> mxamp.Report:
    assert model.report is not None  # conversion always makes one
    return model.report


def _conversion(model: mxamp.Model, prefix: Path) -> None:
    """Print what was converted, the casts, and where the files are."""
    _say(_indented(summary(_report(model), _WIDTH - 2)))
    _say()
    try:
        shown = prefix.relative_to(Path.cwd())
    except ValueError:
        shown = prefix
    _say(f"Saved: {shown}-symbol.json and {shown}-0000.params")


# ---------------------------------------------------------------------- layout


def _say(text: str = "") -> None:
    print(text, flush=True)


def _heading(text: str) -> None:
    _say()
    _say(text)
    _say("=" * len(text))


def _paragraph(text: str) -> None:
    _say(textwrap.fill(text, _WIDTH))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())


def _table(*rows: Sequence[str]) -> None:
    """Print rows with the first column to the left and the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths))
        _say("   ".join(["  " + first.strip().ljust(widths[0]), *others]).rstrip())
    _say()


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.2f}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.demo",
        description="Convert two models to bfloat16 and show what it changes. Takes about a minute.",
    )
    parser.add_argument(
        "--only", choices=("digits", "resnet50"), help="show one of the two models (default: both)"
    )
    parser.add_argument(
        "--no-pretrained",
        action="store_true",
        help="do not try to download weights for ResNet-50; use random ones",
    )
    parser.add_argument(
        "--rounds",
        metavar="N",
        type=int,
        default=30,
        help="how often to time each of FP32 and BF16 (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", metavar="N", type=int, default=0, help="seed of random weights (default: %(default)s)"
    )
    parser.add_argument(
        "--output",
        metavar="FOLDER",
        type=Path,
        default=OUTPUT_FOLDER,
        help="where the converted models are saved (default: build/demo in the clone)",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Show the demonstration.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command-line arguments; None means those of the process.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    prepare_environment()
    use_amx()
    started = time.perf_counter()
    options.output.mkdir(parents=True, exist_ok=True)
    _say("mxamp: trained FP32 models, converted to bfloat16 for this CPU")
    _say()
    for line in machine_lines(describe_machine(seed=options.seed)):
        _say(line)
    if _missing():
        _say()
        _paragraph(
            f"MXNet computes in bfloat16 on {_missing()}. So bfloat16 is emulated below, in float32 with "
            "every value rounded as such a CPU would (docs/emulation.md), and what is timed is the float32 "
            "model that --target auto prepares for this one."
        )
    try:
        if options.only != "resnet50":
            show_digits(options.output)
        if options.only != "digits":
            show_resnet50(
                options.output,
                pretrained=False if options.no_pretrained else None,
                rounds=options.rounds,
                seed=options.seed,
            )
    except mxamp.MxampError as error:
        print(f"mxamp: {error}", file=sys.stderr)
        return 1
    _say()
    _say(f"All of this took {time.perf_counter() - started:.0f} s. Convert a model of yours with:")
    _say("  .venv/bin/mxamp convert PREFIX --dtype bfloat16 -o OUT")
    _say("With --target auto --input-shape NAME=SIZES it is decided and measured for this machine.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
