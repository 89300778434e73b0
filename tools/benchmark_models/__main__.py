"""``python -m tools.benchmark_models``."""

from __future__ import annotations

import sys

from tools.benchmark_models.cli import main

if __name__ == "__main__":
    sys.exit(main())
