"""The exceptions mxamp raises.

Every error that a user can cause derives from :class:`MxampError` and from the built-in exception that
fits, so both ``except MxampError`` and ``except ValueError`` work. A message says what is wrong, where
(file, node, operator, entry), why it matters, and what to do about it.
"""

from __future__ import annotations

import difflib
from typing import Iterable


class MxampError(Exception):
    """Root of every error mxamp raises on purpose."""


class MxampWarning(UserWarning):
    """Root of every warning mxamp issues."""


class GraphError(MxampError, ValueError):
    """A graph breaks an invariant: a cycle, an entry that does not exist, a duplicate input name."""


class SymbolFormatError(GraphError):
    """A ``symbol.json`` text is damaged, or is not a symbol at all."""


class OperatorError(MxampError, ValueError):
    """An operator's inputs, attributes or registered facts do not fit together."""


class PolicyError(MxampError, ValueError):
    """A policy contradicts itself or holds a value that is not allowed."""


class UnknownNameError(PolicyError, KeyError):
    """A name that a policy mentions does not exist in the model."""

    # KeyError.__str__ shows the repr of its argument, which turns a message into a quoted blob.
    __str__ = Exception.__str__


class TargetError(MxampError, ValueError):
    """The target cannot do what was asked: an unknown target, or a dtype it cannot run."""


class DeviceError(TargetError):
    """A device that is not there, or that cannot execute the model's dtype."""


class ParamsError(MxampError, ValueError):
    """Parameters are missing, have the wrong shape or dtype, or their file is damaged."""


class ModelFileNotFoundError(MxampError, FileNotFoundError):
    """A model file does not exist."""


class DataError(MxampError, ValueError):
    """Input data for a comparison is missing, misnamed or misshaped."""


class MemoryBoundError(DataError, MemoryError):
    """What was asked for would take more memory than there is, or than was allowed."""


class PassError(MxampError, RuntimeError):
    """A pass left the graph broken; the message names the passes that ran before it."""


class AccuracyError(MxampError, ValueError):
    """A converted model is further from the FP32 model than was allowed."""


class LibraryError(MxampError, RuntimeError):
    """The operator library cannot be built or loaded."""


class ExportError(MxampError, OSError):
    """A model could not be written; nothing half-written is left behind."""


class ReportError(MxampError, ValueError):
    """A report's text is damaged, or is no report of mxamp."""


class TracingError(MxampError, ValueError):
    """A Gluon block cannot be turned into one Symbol."""


class MxnetMissingError(MxampError, ImportError):
    """The operation needs MXNet, and MXNet cannot be imported here."""


class DigestMissingError(MxampError, ImportError):
    """A file was hashed with an algorithm that is not installed here."""


class OnnxMissingError(MxampError, ImportError):
    """The operation needs onnx or ONNX Runtime, which cannot be imported here."""


class OpenvinoMissingError(MxampError, ImportError):
    """The operation needs OpenVINO, which cannot be imported here."""


def nearest_names(name: object, known: Iterable[str]) -> str:
    """Return a `` Did you mean ...?`` clause with the three known names nearest to ``name``, or ``""``.

    Parameters
    ----------
    name
        The name that was not found; what is no string resembles nothing.
    known
        The names that exist.
    """
    if not isinstance(name, str):
        return ""
    matches = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    if not matches:
        return ""
    return " Did you mean {}?".format(" or ".join(repr(match) for match in matches))
