"""The curve as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxamp.errors import DataError
from mxamp.files import atomic_write

if TYPE_CHECKING:
    from mxamp.tuning.tuning import Tuning

_SUFFIXES = (".png", ".svg")


def plot_tuning(tuning: Tuning, path: str | Path) -> None:
    """Draw error against speed.

    Parameters
    ----------
    tuning
        What was tuned.
    path
        The file: ``.png`` or ``.svg``.

    Raises
    ------
    DataError
        When matplotlib is not installed, or the suffix is another.
    ExportError
        When the file cannot be written.
    """
    import io

    path = Path(path)
    if path.suffix.lower() not in _SUFFIXES:
        raise DataError(f"The plot is a .png or an .svg file, not {path.name!r}.")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DataError(f"The plot needs matplotlib: {error}. pip install matplotlib") from error
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes: Any = figure.subplots()
    is_measured = all(point.speed is not None for point in tuning.points)
    speeds = [point.best_speed if is_measured else point.estimated_speed for point in tuning.points]
    errors = [point.on_choosing.error for point in tuning.points]
    below = [e - p.on_choosing.interval[0] for e, p in zip(errors, tuning.points)]
    above = [p.on_choosing.interval[1] - e for e, p in zip(errors, tuning.points)]
    axes.errorbar(
        speeds,
        errors,
        yerr=[[max(0.0, one) for one in below], [max(0.0, one) for one in above]],
        fmt="o",
        color="#1f6feb",
        label=f"{tuning.how}, 95 % over samples",
    )
    axes.plot(speeds, [p.predicted for p in tuning.points], "_", color="#888888", label="predicted", ms=10)
    for number, point in enumerate(tuning.points):
        if point.is_today or number == tuning.chosen:
            text = "chosen" if number == tuning.chosen else "today"
            axes.annotate(text, (speeds[number], errors[number]), textcoords="offset points", xytext=(6, 6))
    if min(errors) > 0:
        axes.set_yscale("log")
    axes.set_xlabel("times as fast as float32" + ("" if is_measured else ", as estimated"))
    axes.set_ylabel("relative L2 error of the outputs")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    drawn = io.BytesIO()
    # Without a date, the same curve is the same file.
    metadata = {"Date": None} if path.suffix.lower() == ".svg" else {}
    figure.savefig(drawn, format=path.suffix[1:].lower(), dpi=150, metadata=metadata)
    with atomic_write(path) as (file,):
        file.write(drawn.getvalue())
