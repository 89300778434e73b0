"""Samples for the small model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray


@pytest.fixture
def images() -> NDArray[np.float32]:
    """Twelve samples, not all alike."""
    found: Any = np.random.default_rng(0).standard_normal((12, 4, 8, 8)).astype(np.float32)
    return found
