"""``mxamp completion``: what makes a shell complete commands, options and file names."""

from __future__ import annotations

import argparse
from typing import Any

_EPILOG = """\
bash:  mxamp completion bash > ~/.local/share/bash-completion/completions/mxamp
zsh:   mxamp completion zsh > FOLDER/_mxamp, where FOLDER is in $fpath
tcsh:  mxamp completion tcsh > ~/.mxamp.completion, and `source ~/.mxamp.completion` in ~/.cshrc"""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "completion",
        help="print what makes a shell complete mxamp's commands and options",
        description="Print what makes a shell complete mxamp's commands, options and file names.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print it."""
    import shtab  # only this command needs it

    print(shtab.complete(args.program, shell=args.shell))
    return 0
