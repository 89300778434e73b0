"""``python -m mxamp`` is the command line."""

from __future__ import annotations

import sys

from mxamp.cli.interrupt import usual_from_here
from mxamp.cli.main import main

if __name__ == "__main__":
    usual_from_here()
    sys.exit(main())
