"""Read JSON that somebody else wrote, and say where it is wrong.

Python's parser reads more than JSON, and a key that occurs twice silently loses its first value. Here every
departure is an error with a place: a line and column where the text itself is broken, a path such as
``$.nodes[3].attrs.kernel`` where it is well formed and still means nothing.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Iterator, NamedTuple, NoReturn, Tuple, Union

from mxamp.errors import MxampError
from mxamp.files.names import short

_ESCAPES_TO_CHECK = ("\\u", "\\b", "\\f")
"""What only such an escape can bring in: control characters and lone surrogates."""

_LONG_NUMBER = re.compile(r"\d{400}")
_ALLOWED_CONTROLS = "\t\n\r"
_DEEP = 200
_SEARCHED = 2**20


class _RepeatedKeyError(Exception):
    """Raised inside the parser, which knows no path; the path is then looked for."""


class _UnknownConstantError(Exception):
    """Likewise, for NaN and Infinity."""


class _Object(NamedTuple):
    """A JSON object with all its keys, repeated ones too."""

    pairs: list[tuple[str, Any]]


class _Constant(NamedTuple):
    """``NaN``, ``Infinity`` or ``-Infinity``."""

    spelling: str


def parse_json(
    text: str, *, source: str, error: type[MxampError], advice: str, has_unique_keys: bool = False
) -> Any:
    """Parse JSON text.

    Parameters
    ----------
    text
        The text.
    source
        How messages call it: a file name.
    error
        The exception to raise.
    advice
        What the user should do about a damaged text; a sentence.
    has_unique_keys
        Whether the text comes from a writer that cannot repeat a key, so that it need not be looked for.

    Raises
    ------
    MxampError
        Of the given class: where the text is no JSON, nests too deeply, repeats a key, or holds what is no
        number or no text.

    Notes
    -----
    What is wrong is found by the parser at its own speed; only where it is takes a second, slow walk.
    """
    _check_characters(text, source, error, advice)
    try:
        document = (_UNIQUE if has_unique_keys else _STRICT).decode(text)
    except json.JSONDecodeError as fault:
        # A string cannot hold a line break, so one without an end runs into the end of the file.
        ended = fault.pos >= len(text.rstrip()) or fault.msg.startswith("Unterminated string")
        trouble = "it ends too early; the file is truncated" if ended else fault.msg
        raise error(
            f"{source} is not valid JSON: {trouble} (line {fault.lineno}, column {fault.colno}, "
            f"character {fault.pos} of {len(text)}). {advice}"
        ) from None
    except (_RepeatedKeyError, _UnknownConstantError):
        _fail_with_path(text, source, error, advice)
    except RecursionError:
        raise error(f"{source} nests JSON too deeply: {_deepest(text)}. {advice}") from None
    except ValueError:  # an integer with more digits than Python agrees to read
        raise _long_number(text, source, error, advice) from None
    if "\\" in text and any(escape in text for escape in _ESCAPES_TO_CHECK):
        _fail_with_path(text, source, error, advice, only_if_found=True)
    return document


def _check_characters(text: str, source: str, error: type[MxampError], advice: str) -> None:
    if text.startswith("\ufeff"):
        raise error(
            f"{source} begins with a byte order mark (character 0), which MXNet cannot read either. "
            "Save it as UTF-8 without one."
        )
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as fault:
            raise error(
                f"{source} is not valid text: character {fault.start} is a lone surrogate. {advice}"
            ) from None
    if not hasattr(sys, "get_int_max_str_digits") and _LONG_NUMBER.search(text):
        # Older Pythons read any number of digits, in quadratic time.
        raise _long_number(text, source, error, advice)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _RepeatedKeyError
    return found


def _constant(spelling: str) -> NoReturn:
    raise _UnknownConstantError(spelling)


_STRICT = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
_UNIQUE = json.JSONDecoder(parse_constant=_constant)
_LENIENT = json.JSONDecoder(object_pairs_hook=_Object, parse_constant=_Constant)


def _long_number(text: str, source: str, error: type[MxampError], advice: str) -> MxampError:
    found = _LONG_NUMBER.search(text)
    where = f" at character {found.start()}" if found else ""
    return error(f"{source} holds a number of hundreds of digits{where}. {advice}")


def _deepest(text: str) -> str:
    """Say where brackets nest most; those inside strings count too, which is near enough for a message."""
    depth = 0
    for place, character in enumerate(text[:_SEARCHED]):
        if character in "[{":
            depth += 1
            if depth >= _DEEP:
                return f"character {place} is {depth} brackets deep"
        elif character in "]}":
            depth -= 1
    return "there is no room on the stack to read it"


def _fail_with_path(
    text: str, source: str, error: type[MxampError], advice: str, *, only_if_found: bool = False
) -> None:
    try:
        document = _LENIENT.decode(text)
    except RecursionError:
        raise error(f"{source} nests JSON too deeply: {_deepest(text)}. {advice}") from None
    except ValueError:  # the strict parser stopped before it came to this
        raise error(f"{source} is not valid JSON. {advice}") from None
    for fault in _faults(document):
        raise error(f"{source}: {fault}. {advice}")
    if not only_if_found:
        raise error(f"{source} is not valid JSON. {advice}")


_Trail = Union[None, Tuple[Any, str]]
"""The way to a value: the trail of what holds it, and the last step. Shared, so that it costs no memory."""


def _faults(document: Any) -> Iterator[str]:
    """Yield what is wrong and where, in the order of the text."""
    waiting: list[tuple[_Trail, Any]] = [(None, document)]
    while waiting:
        trail, value = waiting.pop()
        if isinstance(value, _Constant):
            yield f"{_path(trail)} is {value.spelling}, which is no JSON number"
        elif isinstance(value, str):
            fault = _text_fault(value)
            if fault:
                yield f"{_path(trail)} is a text that {fault}"
        elif isinstance(value, _Object):
            seen = set()
            for key, _ in value.pairs:
                if key in seen:
                    yield f"{_path(trail)} has the key {short(key)} twice, and nothing says which is meant"
                fault = _text_fault(key)
                if fault:
                    yield f"{_path(trail)} has the key {short(key)}, which {fault}"
                seen.add(key)
            waiting.extend(((trail, _step(key)), item) for key, item in reversed(value.pairs))
        elif isinstance(value, list):
            waiting.extend(
                ((trail, f"[{number}]"), value[number]) for number in range(len(value) - 1, -1, -1)
            )


def _path(trail: _Trail) -> str:
    steps: list[str] = []
    while trail is not None:
        trail, step = trail
        steps.append(step)
    return "$" + "".join(reversed(steps[-_DEEP:]))


def _step(key: str) -> str:
    return f".{key}" if key.isprintable() and len(key) <= 80 else f".{short(key)}"


def _text_fault(text: str) -> str | None:
    for character in text:
        if character < " " and character not in _ALLOWED_CONTROLS:
            return f"contains a control character, U+{ord(character):04X}"
        if "\ud800" <= character <= "\udfff":
            return f"contains a lone surrogate, U+{ord(character):04X}"
    return None
