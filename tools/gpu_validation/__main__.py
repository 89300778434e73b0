"""``python -m tools.gpu_validation``."""

from __future__ import annotations

import sys

from tools.gpu_validation.export import main
from tools.machine import prepare_environment

if __name__ == "__main__":
    prepare_environment()
    sys.exit(main())
