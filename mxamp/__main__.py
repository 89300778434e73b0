"""``python -m mxamp`` is the command line."""

from __future__ import annotations

import sys

from mxamp.cli.main import main
from mxamp.interrupt import usual_from_here

if __name__ == "__main__":
    usual_from_here()
    sys.exit(main())
