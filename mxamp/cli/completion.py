"""``mxamp completion``: what makes a shell complete commands, options and what they take."""

from __future__ import annotations

import argparse
from typing import Any, Iterator, Sequence

_EPILOG = """\
bash:  mxamp completion bash > ~/.local/share/bash-completion/completions/mxamp
zsh:   mxamp completion zsh > FOLDER/_mxamp, where FOLDER is in $fpath
tcsh:  mxamp completion tcsh > ~/.mxamp.completion, and `source ~/.mxamp.completion` in ~/.cshrc"""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "completion",
        help="print what makes a shell complete mxamp's commands and options",
        description="Print what makes a shell complete commands, options, files, dtypes and targets.",
        epilog=_EPILOG,
    )
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print it."""
    import shtab  # only this command needs it

    for action in _options_and_arguments(args.program):
        known = _known_values(action.metavar)
        if known:
            action.choices = known  # the program ends after this
        elif str(action.metavar).startswith(_FILES):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(args.program, shell=args.shell))
    return 0


_FILES = ("FILE", "PREFIX", "OUT", "FP32")
"""How the names begin of what the shell completes by the files that are there."""


def _options_and_arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield what a parser and those of its subcommands take that is free text so far."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from _options_and_arguments(subparser)
        elif action.choices is None and action.nargs != 0:
            yield action


def _known_values(metavar: object) -> Sequence[str]:
    """Return what an option may be told, where that is a list; any other value stays right."""
    if metavar == "DTYPE":
        return ("bf16", "bfloat16", "float16", "fp16")
    if metavar == "TARGET":
        from mxamp.targets import Target

        return ("auto", *Target.builtin_names())
    return ()
