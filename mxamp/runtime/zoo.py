"""Models of GluonCV's zoo by name, with pretrained weights where they can be had."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import urllib.request
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence, Tuple
from unittest import mock
from urllib.parse import urlsplit

from mxamp.errors import ModelFileNotFoundError, MxnetMissingError, TracingError, nearest_names
from mxamp.messages.installation import install_hint
from mxamp.model import Model
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.runtime.mxnet import import_mxnet
from mxamp.runtime.parameter import parameters_from_ndarrays
from mxamp.runtime.random_weights import RESIDUAL_SCALE, random_parameters

Shape = Tuple[int, ...]

_REACHABLE_WITHIN = 5.0
"""Seconds to wait for the server that holds the weights."""

_SHAPES = (
    (r"cifar", (1, 3, 32, 32)),
    (r"^ssd_(\d+)", None),
    (r"^yolo3", (1, 3, 416, 416)),
    (r"^center_net", (1, 3, 512, 512)),
    (r"rcnn", (1, 3, 600, 800)),
    (r"^monodepth2.*posenet", (1, 6, 192, 640)),
    (r"^monodepth2", (1, 3, 192, 640)),
    (r"^(simple_pose|mobile_pose|alpha_pose)", (1, 3, 256, 192)),
    (r"^fastscnn", (1, 3, 1024, 1024)),
    (r"^(fcn|psp|deeplab|icnet|danet|hrnet.*_s$)", (1, 3, 480, 480)),
    (r"^c3d", (1, 3, 16, 112, 112)),
    (r"^p3d", (1, 3, 16, 224, 224)),
    (r"^i3d_slow.*f16s4", (1, 3, 16, 224, 224)),
    (r"^slowfast_4x16", (1, 3, 36, 224, 224)),
    (r"^slowfast_8x8", (1, 3, 40, 224, 224)),
    (r"^slowfast", (1, 3, 80, 224, 224)),
    (r"^(i3d|r2plus1d)", (1, 3, 32, 224, 224)),
    (r"kinetics|ucf101|hmdb51|sthsth", (1, 3, 224, 224)),
    (r"^(inceptionv3|xception)", (1, 3, 299, 299)),
    (r"^resnest101", (1, 3, 256, 256)),
    (r"^resnest200", (1, 3, 320, 320)),
    (r"^resnest269", (1, 3, 416, 416)),
)
"""Name pattern -> input shape (batch, channels, [frames,] height, width); None: the size is in the name."""


@dataclass(frozen=True)
class ZooModel:
    """A model of the zoo.

    Attributes
    ----------
    name
        Its name in the zoo.
    model
        Graph and FP32 parameters.
    input_shapes
        Input name -> the shape it was built for.
    is_pretrained
        Whether the weights are the trained ones.
    weights
        Where the weights come from, in one sentence for the user.
    """

    name: str
    model: Model
    input_shapes: Mapping[str, tuple[int, ...]]
    is_pretrained: bool
    weights: str


def zoo_names() -> list[str]:
    """Return the names of the zoo's models, sorted.

    Raises
    ------
    MxnetMissingError
        When GluonCV cannot be imported.
    """
    return sorted(import_gluoncv().model_zoo.get_model_list())


def load_zoo(
    name: str,
    *,
    pretrained: bool | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
) -> ZooModel:
    """Build a model of GluonCV's zoo.

    Parameters
    ----------
    name
        Its name, such as ``resnet50_v1``.
    pretrained
        True: the trained weights, or an error. False: random ones. None: the trained ones where they are in
        the cache or can be downloaded, and otherwise random ones; ``is_pretrained`` says which.
    input_shapes
        Input name (``data``) -> shape; by default what the zoo evaluates the model with, batch size 1.
    seed
        Seed of random weights.

    Raises
    ------
    ModelFileNotFoundError
        When the zoo has no such model, or its trained weights cannot be had.
    TracingError
        When the network cannot be built or turned into one Symbol.
    MxnetMissingError
        When MXNet or GluonCV is missing.
    """
    import_mxnet()  # says what to do about a missing or unfit MXNet
    names = zoo_names()
    if name not in names:
        raise ModelFileNotFoundError(
            f"GluonCV's zoo has no model {name!r}.{nearest_names(name, names)} Its {len(names)} names are "
            "those of gluoncv.model_zoo.get_model_list()."
        )
    obstacle = "" if pretrained is False else weights_obstacle(name)
    if pretrained and obstacle:
        raise ModelFileNotFoundError(
            f"The trained weights of {name!r} cannot be had: {obstacle}. Use random ones (--no-pretrained) "
            "to try a conversion, or export the model where the weights are."
        )
    is_pretrained = pretrained is not False and not obstacle
    # GluonCV prints its downloads to standard output, which belongs to the caller.
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        # MXNet warns of parameters that a constructor initialised, and of types it infers later.
        warnings.filterwarnings("ignore", module=r"mxnet(\..*)?")
        warnings.filterwarnings("ignore", module=r"gluoncv(\..*)?")
        net = build_network(name, is_pretrained)
        model, shapes = model_of_network(
            net, input_shapes or default_input_shapes(name), seed=None if is_pretrained else seed
        )
    if is_pretrained:
        weights = "trained, from GluonCV's model store"
    else:
        why = f" because {obstacle}" if obstacle else ""
        weights = f"RANDOM (seed {seed}){why}: this is not a trained network, and its outputs mean nothing"
    return ZooModel(name, model, shapes, is_pretrained, weights)


def model_of_network(
    net: Any, input_shapes: Any, *, seed: int | None = None, residual_scale: float = RESIDUAL_SCALE
) -> tuple[Model, Mapping[str, tuple[int, ...]]]:
    """Return a network of the zoo as a model, and its inputs' shapes.

    Parameters
    ----------
    net
        A Gluon block, as GluonCV builds it.
    input_shapes
        As for :func:`mxamp.convert_block`.
    seed
        None for the parameters that the block holds. A number draws them at random, as
        :func:`mxamp.runtime.random_weights.random_parameters` does; the block needs none then.
    residual_scale
        How large residual branches end with random parameters.

    Raises
    ------
    TracingError
        When the network cannot be turned into one Symbol.
    DataError, UnknownNameError
        When the shapes do not fit it.
    """
    mx = import_mxnet()
    if seed is not None:
        net.initialize(mx.init.Zero())
    # Imported here: the module imports MXNet as it loads.
    from mxamp.runtime.trace import trace_block

    traced = trace_block(net, input_shapes=input_shapes)
    args, auxs = _parameters(traced.args), _parameters(traced.auxs)
    if seed is not None:
        learned = _learned(mx, net)
        shapes = {key: value.shape for key, value in {**args, **auxs}.items() if key in learned}
        drawn = random_parameters(traced.graph, shapes, seed=seed, residual_scale=residual_scale)
        for key, array in drawn.items():
            (args if key in args else auxs)[key] = ArrayParameter(array)
    return Model(traced.graph, args, auxs), traced.input_shapes or {}


def default_input_shapes(name: str) -> list[Shape]:
    """Return the shape of each input that a zoo model is evaluated with, batch size 1."""
    if name.startswith("siamrpn"):
        return [(1, 3, 127, 127), (1, 3, 287, 287)]
    for pattern, shape in _SHAPES:
        found = re.search(pattern, name)
        if found:
            if shape is not None:
                return [shape]
            size = int(next(group for group in found.groups() if group))
            return [(1, 3, size, size)]
    return [(1, 3, 224, 224)]


def import_gluoncv() -> Any:
    """Import GluonCV.

    Raises
    ------
    MxnetMissingError
        When it, or MXNet, cannot be imported; says what to do about it with this Python.
    """
    import_mxnet()  # says what to do about a missing or unfit MXNet
    try:
        import gluoncv
        import gluoncv.model_zoo
    except ImportError as error:
        raise MxnetMissingError(
            f"Models of the zoo need GluonCV, which cannot be imported: {error}. "
            f"{install_hint('zoo')} Model files need no GluonCV: give their prefix."
        ) from error
    return gluoncv


def models_folder() -> Path:
    """Return where GluonCV keeps weights; GluonCV reads MXNET_HOME for files, yet not for everything."""
    home = os.environ.get("MXNET_HOME") or str(Path("~", ".mxnet").expanduser())
    return Path(home, "models")


def weights_obstacle(name: str) -> str:
    """Return why a model's trained weights cannot be had, or nothing where they can.

    Looks into the cache first; otherwise asks the server whether it has the file, for a few seconds at most.
    """
    from gluoncv.model_zoo import model_store

    try:
        file_name = f"{name}-{model_store.short_hash(name)}"
    except ValueError:
        return "GluonCV publishes no weights for it"
    if (models_folder() / f"{file_name}.params").is_file():
        return ""
    server = os.environ.get("MXNET_GLUON_REPO", model_store.apache_repo_url).rstrip("/") + "/"
    url = model_store._url_format.format(repo_url=server, file_name=file_name)
    # GluonCV itself would wait for as long as the network lets it.
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=_REACHABLE_WITHIN):
            return ""
    except (OSError, ValueError) as error:
        return f"{urlsplit(server).hostname} cannot be reached ({getattr(error, 'reason', None) or error})"


def build_network(name: str, is_pretrained: bool) -> Any:
    """Return a network of GluonCV's zoo."""
    zoo = import_gluoncv().model_zoo
    options: dict[str, Any] = {"root": str(models_folder())}
    if is_pretrained:
        options["pretrained"] = True
    attempts = [options, {key: value for key, value in options.items() if key == "pretrained"}]
    if not is_pretrained:
        # Without these, networks download the weights of their backbone, or those they are fine-tuned from.
        base = {"pretrained": False, "pretrained_base": False}
        kinetics = {"use_kinetics_pretrain": False}
        attempts = [{**options, **base, **kinetics}, {**options, **base}, base, {"pretrained": False}, {}]
    failure: Exception | None = None
    for attempt in attempts:
        try:
            with _parameters_without_values() if not is_pretrained else contextlib.nullcontext():
                return zoo.get_model(name, **attempt)
        except (TypeError, Warning) as error:
            # An option that this constructor does not take; darknet53 raises a Warning.
            failure = error
        except Exception as error:
            # GluonCV raises whatever its layers raise, and requests' errors for downloads.
            failure = error
            break
    raise TracingError(
        f"GluonCV cannot build {name!r}: {_one_line(failure)} Build and export it in a script of yours, and "
        "convert the files."
    ) from failure


@contextlib.contextmanager
def _parameters_without_values() -> Iterator[None]:
    """Let networks be built of layers alone.

    Not every constructor hands ``pretrained_base`` on to its backbone, and those of action recognition move
    parameters to a device that have no values yet.
    """
    from gluoncv.model_zoo import model_store

    gluon = import_mxnet().gluon
    with contextlib.ExitStack() as patches:
        for owner, name in (
            (model_store, "get_model_file"),
            (gluon.Block, "load_parameters"),
            (gluon.Parameter, "reset_ctx"),
        ):
            patches.enter_context(mock.patch.object(owner, name, return_value=None))
        yield


def _parameters(arrays: Mapping[str, Any]) -> dict[str, Parameter]:
    return parameters_from_ndarrays(arrays)


def _learned(mx: Any, net: Any) -> frozenset[str]:
    """Return the names of the parameters that training sets; the others hold anchors and fixed factors."""
    return frozenset(
        parameter.name
        for parameter in net.collect_params().values()
        if not isinstance(parameter, mx.gluon.Constant)
        # Such as the factor that follows a normalisation in SSD.
        and not (isinstance(parameter.init, mx.init.Constant) and len(parameter.shape) > 1)
    )


def _one_line(error: BaseException | None) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1] if lines else type(error).__name__
    return text if text.endswith((".", "!", "?")) else text + "."
