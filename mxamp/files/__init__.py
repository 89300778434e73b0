"""Finding model files, and writing several so that all of them change at once or none does."""

from mxamp.files.atomic import atomic_write
from mxamp.files.existing import check_folder, existing_file, why_unreadable
from mxamp.files.leftovers import settle_leftovers, unchanged_while_reading
from mxamp.files.staged import StagedFile

__all__ = [
    "StagedFile",
    "atomic_write",
    "check_folder",
    "existing_file",
    "settle_leftovers",
    "unchanged_while_reading",
    "why_unreadable",
]
