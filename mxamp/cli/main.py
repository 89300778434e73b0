"""The entry point of the command line: ``mxamp`` and ``python -m mxamp``."""

from __future__ import annotations

import argparse
import io
import os
import sys
import traceback
from typing import Any, Sequence

from mxamp.cli import (
    calibrate,
    compare,
    completion,
    convert,
    debug,
    evaluate,
    export,
    inspect,
    policy,
    probe,
    race,
    report,
    sensitivity,
    targets,
    tune,
    verify,
    zoo,
)
from mxamp.cli.console import SeveralMistakesError, print_message, show_warnings
from mxamp.cli.interrupt import INTERRUPTED, INTERRUPTED_TEXT
from mxamp.errors import MxampError, nearest_names
from mxamp.messages.arguments import as_options
from mxamp.version import __version__

USER_ERROR = 2
INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h
BROKEN_PIPE = 141  # 128 + SIGPIPE

_DESCRIPTION = """\
Turn trained FP32 MXNet models into mixed-precision ones for inference: bfloat16 for CPUs, float16 for GPUs.
What it writes loads in stock MXNet, without mxamp."""

_EPILOG = """\
examples:
  mxamp convert resnet50 --dtype bfloat16 -o resnet50-bf16
      reads resnet50-symbol.json and resnet50-0000.params, writes resnet50-bf16-symbol.json and
      resnet50-bf16-0000.params
  mxamp inspect resnet50-bf16
      what runs in which precision, the casts, the sizes
  mxamp compare resnet50 resnet50-bf16 --data images.npz
      how far the outputs are apart, and where it starts
  mxamp verify resnet50-bf16
      whether the files are still what was written

`mxamp COMMAND --help` says more about each. Converting and inspecting files needs no MXNet.
With --strict every warning is an error, for scripts and CI.
Exit status: 0 success, 1 a comparison beyond its --tolerance or files that are not what was written, 2 an
error you can act on, 70 a bug in mxamp, 130 interrupted."""


class CommandParser(argparse.ArgumentParser):
    """Parses one subcommand; its texts keep their lines."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter, **settings})


def build_parser() -> argparse.ArgumentParser:
    """Return the parser with all subcommands; parsed arguments have ``run(args) -> int``."""
    parser = argparse.ArgumentParser(
        prog="mxamp",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"mxamp {__version__}")
    _add_common_options(parser, default=False)
    subparsers = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="command", parser_class=CommandParser
    )
    for module in (
        convert,
        calibrate,
        export,
        inspect,
        compare,
        race,
        debug,
        evaluate,
        tune,
        sensitivity,
        report,
        verify,
        policy,
        zoo,
        targets,
        probe,
        completion,
    ):
        module.add_parser(subparsers)
    for subparser in subparsers.choices.values():
        if "-" in subparser.prefix_chars:  # `zoo` hands everything on
            # After the command too, which is where one adds it to a command that just failed.
            _add_common_options(subparser, default=argparse.SUPPRESS)
    return parser


def _add_common_options(parser: argparse.ArgumentParser, default: Any) -> None:
    parser.add_argument(
        "--strict",
        action="store_true",
        default=default,
        help="make every warning an error: exit status 2, and convert writes nothing",
    )
    parser.add_argument(
        "--traceback",
        action="store_true",
        default=default,
        help="show where in the code an error came from (also: MXAMP_DEBUG=1)",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line.

    Parameters
    ----------
    argv
        The arguments; by default those of the process.

    Returns
    -------
    int
        The exit status.
    """
    _print_any_name()
    parser = build_parser()
    args = _parse(parser, argv)
    args.program = parser
    if args.command is None:
        parser.print_help()
        return USER_ERROR
    show_traceback = args.traceback or os.environ.get("MXAMP_DEBUG", "0") not in ("", "0")
    try:
        with show_warnings(strict=args.strict) as args.shown_warnings, as_options():
            status = args.run(args)
            sys.stdout.flush()
            args.shown_warnings.refuse()
            return int(status)
    except KeyboardInterrupt:
        print(INTERRUPTED_TEXT, file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (head, a pager) has gone. Python would complain again while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        if show_traceback:
            traceback.print_exc()
        if isinstance(error, (MxampError, OSError)):
            for each in error.errors if isinstance(error, SeveralMistakesError) else (error,):
                print_message("error", each)
            return USER_ERROR
        print(_internal_error(error, show_traceback), file=sys.stderr)
        return INTERNAL_ERROR


def _parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse a command line; what a command does not know is told with the usage of that command."""
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        commands = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction)).choices
        own = commands.get(args.command, parser)
        options = [name for name in own._option_string_actions if name.startswith("--")]
        hint = nearest_names(unknown[0].partition("=")[0], options)
        own.error(f"unrecognized arguments: {' '.join(unknown)}.{hint}")
    return args


def _print_any_name() -> None:
    """Let names that the terminal's encoding lacks be printed as escapes instead of ending the program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _internal_error(error: Exception, shown: bool) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    more = "" if shown else " Run the command again with --traceback, and"
    return (
        f"mxamp: internal error: {type(error).__name__}: {text[:300]} "
        f"({os.path.basename(place.filename)}, line {place.lineno}). This is a bug in mxamp {__version__}, "
        f"not in your model.{more or ' Please'} report it with the output."
    )
