"""What every name of GluonCV's model zoo is, read from ``registry.toml``."""

from __future__ import annotations

import fnmatch
import math
import sys
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Mapping, Sequence, Tuple

from mxamp.errors import DataError, UnknownNameError, nearest_names

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["CONTRIB", "PRIMITIVE", "SHORT_SET", "Case", "Entry", "find_entry", "registry", "select_cases"]

Shape = Tuple[int, ...]

CONTRIB = "contrib"
"""Boxes decode with ``_contrib_box_decode``, as GluonCV builds a detector without trained weights."""

PRIMITIVE = "primitive"
"""Boxes decode with elementary operators, as GluonCV builds a detector with trained weights."""

_FILE = Path(__file__).with_name("registry.toml")

_PIXELS = ("imagenet", "cifar", "unit", "raw")


@dataclass(frozen=True)
class Published:
    """A figure of GluonCV's published tables, measured by GluonCV on the whole data set it names."""

    metric: str
    value: float


@dataclass(frozen=True)
class Entry:
    """A model of the zoo.

    Attributes
    ----------
    name
        Its name in GluonCV.
    family, title, task
        What it is: the registry's key of its family, the family's name, the task.
    inputs
        Input name -> shape without the batch: channels, [frames,] height, width.
    outputs
        What each output is, in order.
    classes
        How many classes or keypoints it tells apart; 0 where the word has no meaning.
    arguments
        What to call the constructor with so that nothing is downloaded.
    constructor
        The dotted name of what to call; empty for ``gluoncv.model_zoo.get_model``.
    forms
        The graph forms there are; empty where there is one.
    pixels
        How a photograph becomes an input: ``imagenet``, ``cifar``, ``unit`` or ``raw``.
    baked
        Constructor arguments that say the input's size.
    batch
        The largest batch; 0 where there is no limit.
    smaller
        The shape to evaluate with, where that of ``inputs`` is too much.
    published
        GluonCV's own figure; None where its tables do not have the model.
    unavailable
        Why the model cannot be evaluated; empty where it can.
    note
        What the reader of a result should know.
    """

    name: str
    family: str
    title: str
    task: str
    inputs: Mapping[str, Shape]
    outputs: tuple[str, ...]
    classes: int = 0
    arguments: Mapping[str, Any] = field(default_factory=dict)
    constructor: str = ""
    forms: tuple[str, ...] = ()
    pixels: str = "imagenet"
    baked: tuple[str, ...] = ()
    batch: int = 0
    smaller: Shape | None = None
    published: Published | None = None
    unavailable: str = ""
    note: str = ""

    @property
    def is_runnable(self) -> bool:
        """Whether it can be evaluated offline."""
        return not self.unavailable

    @property
    def has_frames(self) -> bool:
        """Whether an input is a clip: channels, frames, height, width."""
        return any(len(shape) == 4 for shape in self.inputs.values())

    def shapes(self, size: int | None = None) -> dict[str, Shape]:
        """Return the inputs' shapes to evaluate with, without the batch.

        Parameters
        ----------
        size
            Height and width to use instead of the model's; of several inputs they keep their proportion.
        """
        inputs = dict(self.inputs)
        if size is not None:
            largest = max(shape[-1] for shape in inputs.values())
            return {
                name: (*shape[:-2], *[max(1, math.ceil(size * shape[-1] / largest))] * 2)
                for name, shape in inputs.items()
            }
        if self.smaller is not None:
            return dict.fromkeys(inputs, self.smaller)
        return inputs


@dataclass(frozen=True, order=True)
class Case:
    """One thing to evaluate: a model in one graph form.

    Attributes
    ----------
    name
        The model's name.
    form
        ``contrib`` or ``primitive`` for a detector that has both; otherwise empty.
    """

    name: str
    form: str = ""

    @property
    def key(self) -> str:
        """What results call it: the name, with ``+primitive`` for that form."""
        return f"{self.name}+{self.form}" if self.form == PRIMITIVE else self.name


SHORT_SET = (
    "resnet18_v1",
    "resnet18_v1b_0.89",
    "mobilenet0.25",
    "mobilenetv3_small",
    "squeezenet1.1",
    "se_resnet18_v1",
    "shufflenet_v2",
    "cifar_resnet20_v1",
    "ssd_300_mobilenet0.25_voc",
    "yolo3_mobilenet0.25_voc",
    "center_net_mobilenetv3_small_duc_voc",
    "mobile_pose_mobilenetv3_small",
    "simple_pose_resnet18_v1b",
    "fastscnn_citys",
    "resnet18_v1b_kinetics400",
    "c3d_kinetics400",
    "monodepth2_resnet18_kitti_mono_640x192",
    "siamrpn_alexnet_v2_otb15",
    "faster_rcnn_resnet50_v1b_voc+contrib",
)
"""One small model for every kind of network and task: what ``make zoo`` runs, in minutes."""


@lru_cache(maxsize=None)
def registry() -> Mapping[str, Entry]:
    """Return every model of the zoo by name, in the registry's order.

    Raises
    ------
    DataError
        When the registry is damaged.
    """
    try:
        document = tomllib.loads(_FILE.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{_FILE} is no TOML: {error}.") from error
    entries: dict[str, Entry] = {}
    for key, family in document.items():
        common = {name: value for name, value in family.items() if name != "models"}
        for name, own in family["models"].items():
            if name in entries:
                raise DataError(f"{_FILE} has the model {name!r} in two families: list it once.")
            entries[name] = _entry(name, key, {**common, **own})
    return entries


def _entry(name: str, family: str, values: Mapping[str, Any]) -> Entry:
    known = {
        *("title", "task", "outputs", "data", "inputs", "classes", "arguments", "constructor", "forms"),
        *("pixels", "baked", "batch", "smaller", "published", "unavailable", "note"),
    }
    unknown = [key for key in values if key not in known]
    if unknown:
        raise DataError(
            f"{_FILE} says {unknown[0]!r} of {name!r}.{nearest_names(unknown[0], sorted(known))} The file's "
            "head explains what can be said."
        )
    inputs = values["inputs"] if "inputs" in values else {"data": values["data"]}
    pixels = values.get("pixels", "imagenet")
    if pixels not in _PIXELS:
        raise DataError(f"{_FILE} says pixels = {pixels!r} of {name!r}; use one of {', '.join(_PIXELS)}.")
    published = values.get("published")
    smaller = values.get("smaller")
    return Entry(
        name=name,
        family=family,
        title=values["title"],
        task=values["task"],
        inputs={input_name: tuple(shape) for input_name, shape in inputs.items()},
        outputs=tuple(values["outputs"]),
        classes=values.get("classes", 0),
        arguments=values.get("arguments", {}),
        constructor=values.get("constructor", ""),
        forms=tuple(values.get("forms", ())),
        pixels=pixels,
        baked=tuple(values.get("baked", ())),
        batch=values.get("batch", 0),
        smaller=tuple(smaller) if smaller else None,
        published=Published(*published) if published else None,
        unavailable=values.get("unavailable", ""),
        note=values.get("note", ""),
    )


def find_entry(name: str) -> Entry:
    """Return the model of a name.

    Raises
    ------
    UnknownNameError
        When the zoo has no such model; names the nearest.
    """
    entries = registry()
    if name not in entries:
        raise UnknownNameError(
            f"GluonCV's zoo has no model {name!r}.{nearest_names(name, list(entries))} "
            "`python -m model_zoo_eval list` names all of them."
        )
    return entries[name]


def select_cases(patterns: Sequence[str] = (), *, everything: bool = False) -> list[Case]:
    """Return what to evaluate.

    Parameters
    ----------
    patterns
        Names, shell patterns, or names with ``+primitive``; empty for the short set.
    everything
        Whether to take all models, whatever ``patterns`` are.

    Returns
    -------
    list of Case
        In the registry's order; both forms of a detector that has two, unless a pattern says which.

    Raises
    ------
    UnknownNameError
        When a pattern fits nothing.
    """
    entries = registry()
    if everything:
        return [case for entry in entries.values() for case in _cases(entry)]
    chosen: dict[Case, None] = {}
    for pattern in patterns or SHORT_SET:
        bare, plus, form = pattern.partition("+")
        found = fnmatch.filter(entries, bare)
        if not found:
            find_entry(bare)
        wanted = [case for name in found for case in _cases(entries[name]) if not plus or case.form == form]
        if not wanted:
            raise UnknownNameError(
                f"{bare!r} has no graph form {form!r}. Detectors have {CONTRIB} and {PRIMITIVE}: SSD and the "
                "R-CNN families."
            )
        chosen.update(dict.fromkeys(wanted))
    order = {name: number for number, name in enumerate(entries)}
    return sorted(chosen, key=lambda case: (order[case.name], case.form))


def _cases(entry: Entry) -> list[Case]:
    return [Case(entry.name, form) for form in entry.forms or ("",)]
