"""The program ``mxamp``: outside the package, so that Ctrl-C while that is imported is quiet, too."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> int:
    """Run the command line, and return the exit status."""
    try:
        from mxamp.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        print("mxamp: interrupted; nothing half-written is left behind.", file=sys.stderr)
        return 130  # 128 + SIGINT, as shells report it


if __name__ == "__main__":
    sys.exit(main())
