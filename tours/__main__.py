"""Run tours: ``python -m tours [NAME ...] [-o FOLDER]``.

``--pictures docs`` also takes the pictures of their reports that docs/tours.md shows; that needs Chromium.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Sequence

from mxamp.errors import MxampError
from mxamp.measuring.machine import AVX512, unmet_need
from tours.steps import ROOT, TourError

WITH_MXNET = ("own_classifier", "detection", "bert", "migration")
WITHOUT = ("files_only",)
IN_BFLOAT16 = frozenset({"migration"})
"""What runs stock's bfloat16 model beside mxamp's: on no CPU without AVX-512."""

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
SIZE = "900,1500"
"""Width and height of a picture, in pixels."""

GROUPS = {"with-mxnet": WITH_MXNET, "files-only": WITHOUT}


def take_picture(report: Path, picture: Path) -> None:
    """Take a picture of the upper part of a report.

    Raises
    ------
    TourError
        When there is no Chromium, or it writes no picture.
    """
    program = os.environ.get("MXAMP_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        raise TourError(f"pictures need one of {', '.join(BROWSERS)}, or MXAMP_CHROMIUM")
    command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    # Time for what the page draws; it passes at once.
    command += ["--virtual-time-budget=5000", f"--window-size={SIZE}"]
    picture.unlink(missing_ok=True)
    subprocess.run(
        [*command, f"--screenshot={picture}", report.as_uri()],
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=300,
    )
    if not picture.is_file():
        raise TourError(f"{program} wrote no picture of {report}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tours", description="Run tours of mxamp.")
    names = (*WITH_MXNET, *WITHOUT)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"{', '.join(names)}, with-mxnet or files-only (default: all that this Python can)",
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=ROOT / "build" / "tours", metavar="FOLDER", help="where files go"
    )
    parser.add_argument(
        "--pictures", type=Path, metavar="FOLDER", help="take pictures of the reports: FOLDER/tour-NAME.png"
    )
    options = parser.parse_args(arguments)
    has_mxnet = importlib.util.find_spec("mxnet") is not None
    chosen: list[str] = []
    for name in options.names or (*(["with-mxnet"] if has_mxnet else []), "files-only"):
        if name not in GROUPS and name not in names:
            parser.error(f"there is no tour {name!r}: choose from {', '.join((*names, *GROUPS))}")
        chosen += GROUPS.get(name, (name,))
    if not options.names and not has_mxnet:
        print(f"MXNet is not installed, so these are left out: {', '.join(WITH_MXNET)}")
    missing = unmet_need((AVX512,))
    for name in chosen:
        if name in IN_BFLOAT16 and missing is not None:
            print(f"\n{name} is left out: MXNet computes in bfloat16 on {missing}", flush=True)
            continue
        tour = importlib.import_module(f"tours.{name}")
        folder = options.output.resolve() / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print(f"\n{name}: {tour.__doc__.splitlines()[0]}", flush=True)
        began = time.monotonic()
        try:
            report = tour.main(folder)
            if options.pictures is not None:
                take_picture(report, options.pictures.resolve() / f"tour-{name.replace('_', '-')}.png")
        except (MxampError, TourError) as error:
            print(f"tours: {name}: {error}", file=sys.stderr)
            return 1
        print(f"\n{name} took {time.monotonic() - began:.0f} s and ends in {report}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
