"""The version of mxamp. ``setup.py`` reads this file as text, so that building needs no dependency."""

from __future__ import annotations

__version__ = "0.1.0"
