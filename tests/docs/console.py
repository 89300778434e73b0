"""``mxamp`` as on a CPU that suits every target: ``python -m tests.docs.console ARGUMENTS``.

What a command says of the machine it runs on is not in the documents, which are read on others.
"""

from __future__ import annotations

import sys

import pytest

from mxamp.cli.main import main
from tests.machines import suit_every_target

if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        suit_every_target(patch)
        status = main(sys.argv[1:])
    sys.exit(status)
