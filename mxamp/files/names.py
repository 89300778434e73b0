"""What no name in a model file may be, whichever of the two files it is in."""

from __future__ import annotations

import re
import unicodedata

MAX_NAME_LENGTH = 2**16
"""The longest name that is read, in characters. Names made by a tool repeat the path to a layer: hundreds."""

_UNFIT = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode categories: control characters, lone surrogates, line and paragraph separators."""

_PARTS = re.compile(r"[/\\]")


def name_fault(name: str) -> str | None:
    """Say what makes a text unusable as a name, or return None.

    Names end up in terminals, logs, reports and C strings. A control character can end a C string or steer a
    terminal; a lone surrogate cannot be written to any file; ``..`` between separators leads a program that
    makes files from names out of its folder. A separator itself is kept, for MXNet's own importer of ONNX
    models keeps ``/layer1/conv1/weight``, and Keras writes ``dense_1/kernel``.

    """
    if len(name) > MAX_NAME_LENGTH:
        return f"has {len(name)} characters, more than the {MAX_NAME_LENGTH} that a name may have"
    # One quick look clears nearly every name.
    if not name.isprintable():
        for place, character in enumerate(name):
            if unicodedata.category(character) in _UNFIT:
                kind = "a lone surrogate" if "\ud800" <= character <= "\udfff" else "a control character"
                return f"contains {kind}, U+{ord(character):04X}, as character {place}"
    if ".." in name and ".." in _PARTS.split(name):
        return "leads out of a folder if a file is named after it ('..' between path separators)"
    return None


def short(value: object, limit: int = 80) -> str:
    """Return the ``repr`` of a value from a file for a message, cut where it is long."""
    if isinstance(value, (list, dict)):
        few = list(value)[:5]
        shown = ", ".join("..." if isinstance(item, (list, dict)) else short(item, 20) for item in few)
        more = ", ..." if len(value) > 5 else ""
        text = f"[{shown}{more}]" if isinstance(value, list) else f"{{{shown}{more}}}"
    elif isinstance(value, str):
        text = repr(value[: limit + 1])
    elif isinstance(value, int) and abs(value) >= 10**limit:
        # Python refuses to print an integer of thousands of digits.
        return f"a number of more than {limit} digits"
    else:
        text = repr(value)
    return text if len(text) <= limit + 2 else f"{text[:limit]}..."
