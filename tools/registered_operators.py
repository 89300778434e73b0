"""List the operators that MXNet registers, and keep the list where MXNet is not installed.

    python -m tools.registered_operators

writes ``tests/contract/registered-operators.txt`` from the MXNet that is installed: one operator a line, its
inputs in brackets, its aliases behind them. The contract test and ``docs/results/operators.md`` are made from
that file, so that both can be made and checked where MXNet cannot be installed.
"""

from __future__ import annotations

import ctypes
import functools
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Mapping, NamedTuple, Sequence

__all__ = [
    "LIST_FILE",
    "RegisteredOperator",
    "listed_operators",
    "listed_version",
    "operator_handle",
    "operator_list",
    "registered_operators",
]

LIST_FILE = Path(__file__).resolve().parent.parent / "tests" / "contract" / "registered-operators.txt"

OURS = ("_mxamp_", "_backward__mxamp_")
"""What the names of our own operators begin with; they are in the registry once their library is loaded."""

_HEADER = (
    "# The operators of MXNet {version}: name(inputs) aliases. A * marks a list of inputs.\n"
    "# Written by python -m tools.registered_operators\n"
)
_VERSION = re.compile(r"# The operators of MXNet ([\d.]+):")
_LINE = re.compile(r"(?P<name>\w+)\((?P<inputs>[\w* ]*)\)(?P<aliases>( \w+)*)")


@dataclass(frozen=True)
class RegisteredOperator:
    """One operator.

    Attributes
    ----------
    name
        The canonical name.
    aliases
        The other names it is registered under, sorted.
    inputs
        What the registry names its inputs; a list of inputs has one name.
    variadic
        Whether the last of them is a list.
    parameters
        Attribute name -> what MXNet says of its type, such as ``"int, required"``. Not in the file.
    count_key
        The attribute that holds how many inputs a variadic operator has, if one does. Not in the file.
    """

    name: str
    aliases: tuple[str, ...]
    inputs: tuple[str, ...]
    variadic: bool
    parameters: Mapping[str, str] = field(default_factory=dict, compare=False)
    count_key: str = field(default="", compare=False)

    @property
    def required(self) -> Mapping[str, str]:
        """The parameters that must be given, the count of inputs excepted."""
        return {
            name: kind
            for name, kind in self.parameters.items()
            if "required" in kind and name != self.count_key
        }

    def __str__(self) -> str:
        inputs = " ".join(self.inputs) + ("*" if self.variadic else "")
        return " ".join([f"{self.name}({inputs})", *self.aliases])


# ------------------------------------------------------------------ from MXNet


class _Info(NamedTuple):
    name: str
    count_key: str
    arguments: tuple[tuple[str, str], ...]


def operator_handle(name: str) -> int:
    """Return NNVM's handle of an operator: the same under each of its names."""
    from mxnet.base import _LIB, c_str, check_call

    handle = ctypes.c_void_p()
    check_call(_LIB.NNGetOpHandle(c_str(name), ctypes.byref(handle)))
    assert handle.value is not None
    return handle.value


def _info(handle: int) -> _Info:
    from mxnet.base import _LIB, check_call

    name, description, count_key, returns = (ctypes.c_char_p() for _ in range(4))
    count = ctypes.c_uint()
    names, types, descriptions = (ctypes.POINTER(ctypes.c_char_p)() for _ in range(3))
    results = (name, description, count, names, types, descriptions, count_key, returns)
    check_call(
        _LIB.MXSymbolGetAtomicSymbolInfo(
            ctypes.c_void_p(handle), *(ctypes.byref(result) for result in results)
        )
    )
    pairs = tuple(
        ((names[number] or b"").decode(), (types[number] or b"").decode()) for number in range(count.value)
    )
    return _Info((name.value or b"").decode(), (count_key.value or b"").decode(), pairs)


@functools.lru_cache(maxsize=None)
def registered_operators() -> Mapping[str, RegisteredOperator]:
    """Return every operator of the installed MXNet by its canonical name, sorted, ours left out."""
    from mxnet.operator import get_all_registered_operators

    aliases: dict[str, list[str]] = {}
    infos: dict[str, _Info] = {}
    for name in sorted(get_all_registered_operators()):
        if name.startswith(OURS):
            continue
        info = _info(operator_handle(name))
        infos[info.name] = info
        others = aliases.setdefault(info.name, [])
        if name != info.name:
            others.append(name)
    return {name: _registered(infos[name], aliases[name]) for name in sorted(infos)}


def _registered(info: _Info, aliases: Sequence[str]) -> RegisteredOperator:
    arrays = [(name, kind) for name, kind in info.arguments if kind.startswith(("NDArray", "Symbol"))]
    return RegisteredOperator(
        info.name,
        tuple(aliases),
        tuple(name for name, _ in arrays),
        any(kind.endswith("[]") for _, kind in arrays),
        {name: kind for name, kind in info.arguments if (name, kind) not in arrays},
        info.count_key,
    )


def operator_list() -> str:
    """Return the text of the list for the installed MXNet."""
    import mxnet

    lines = [str(operator) for operator in registered_operators().values()]
    return _HEADER.format(version=mxnet.__version__) + "\n".join(lines) + "\n"


# ------------------------------------------------------------------ from the file


@functools.lru_cache(maxsize=None)
def listed_operators() -> Mapping[str, RegisteredOperator]:
    """Return the operators that the committed file lists, by canonical name."""
    found = {}
    for line in LIST_FILE.read_text("utf-8").splitlines():
        match = None if line.startswith("#") else _LINE.fullmatch(line)
        if match is not None:
            inputs = match["inputs"].rstrip("*").split()
            found[match["name"]] = RegisteredOperator(
                match["name"], tuple(match["aliases"].split()), tuple(inputs), match["inputs"].endswith("*")
            )
        elif not line.startswith("#"):
            raise ValueError(f"{LIST_FILE.name} has the line {line!r}. Write the file anew: see its head.")
    return found


def listed_version() -> str:
    """Return the version of MXNet whose operators the committed file lists."""
    match = _VERSION.match(LIST_FILE.read_text("utf-8"))
    return match.group(1) if match else "unknown"


def main() -> int:
    """Write the list."""
    text = operator_list()
    LIST_FILE.write_text(text, encoding="utf-8")
    print(f"{LIST_FILE.name}: {text.count(chr(10)) - _HEADER.count(chr(10))} operators")
    return 0


if __name__ == "__main__":
    sys.exit(main())
