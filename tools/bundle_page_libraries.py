"""Bundle the JavaScript libraries that HTML reports hold: mxamp/html/assets/libraries.js and its record.

    python -m tools.bundle_page_libraries            write the bundle
    python -m tools.bundle_page_libraries --check    only compare it with what is there

Needs Node.js with npm, and the network. tools/page_libraries/package-lock.json names every package with its
version and checksum, which npm checks; esbuild then makes the same bytes from the same packages. The bundle
begins with the licence of each package that is in it; libraries.json beside it has their versions, their
checksums and that of the bundle.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "tools" / "page_libraries"
ASSETS = ROOT / "mxamp" / "html" / "assets"
BUNDLE, RECORD = "libraries.js", "libraries.json"


INLINED = {"node_modules/cytoscape-dagre": ("node_modules/@dagrejs/dagre", "node_modules/@dagrejs/graphlib")}
"""What a package holds a copy of, so that it is in the bundle, too."""


class BundlingError(Exception):
    """The bundle cannot be made; the message says why."""


def bundle() -> tuple[str, str]:
    """Return the text of the bundle, and that of its record.

    Raises
    ------
    BundlingError
        When npm is missing or fails, or a package has no licence.
    """
    if shutil.which("npm") is None:
        raise BundlingError("npm was not found. Install Node.js, which brings it.")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for source in SOURCES.iterdir():
            shutil.copy(source, folder)
        _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], folder)
        _run(
            [
                str(folder / "node_modules" / ".bin" / "esbuild"),
                "entry.js",
                "--bundle",
                "--minify",
                "--format=iife",
                "--global-name=libraries",
                "--target=es2019",
                "--legal-comments=none",
                "--log-level=warning",
                "--metafile=meta.json",
                "--outfile=bundle.js",
            ],
            folder,
        )
        code = (folder / "bundle.js").read_text(encoding="utf-8")
        lock = json.loads((folder / "package-lock.json").read_text(encoding="utf-8"))["packages"]
        packages = list(_packages(json.loads((folder / "meta.json").read_text(encoding="utf-8"))))
        licences = [_licence(folder / package, lock[package]) for package in packages]
    if "</script" in code.lower():
        raise BundlingError("The bundle holds </script, which would end the element that it is put into.")
    text = "/*!\n" + "\n".join(licences).replace("*/", "* /") + "*/\n" + code
    record = {
        "made_by": "python -m tools.bundle_page_libraries",
        "sha256": hashlib.sha256(text.encode("utf-8")).hexdigest(),
        "packages": {
            package.rpartition("node_modules/")[2]: {
                "version": lock[package]["version"],
                "license": lock[package]["license"],
                "integrity": lock[package]["integrity"],
            }
            for package in packages
        },
        "bundled_with": f"esbuild {lock['node_modules/esbuild']['version']}",
    }
    return text, json.dumps(record, indent=1) + "\n"


def _run(command: Sequence[str], folder: Path) -> None:
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise BundlingError(f"{' '.join(command[:2])} failed: {finished.stderr.strip()[-2000:]}")


def _packages(meta: Any) -> Iterator[str]:
    """Yield the packages that are in the bundle, as their places in the lock file."""
    found = set()
    for output in meta["outputs"].values():
        for path, used in output["inputs"].items():
            if used["bytesInOutput"] and path.startswith("node_modules/"):
                parts = path.split("/")
                found.add("/".join(parts[: 3 if parts[1].startswith("@") else 2]))
    for package in tuple(found):
        found.update(INLINED.get(package, ()))
    yield from sorted(found)


def _licence(folder: Path, locked: Any) -> str:
    """Return name, version and licence of a package, as its terms ask for in every copy."""
    texts = [
        path for path in sorted(folder.iterdir()) if path.name.lower().startswith(("license", "licence"))
    ]
    if not texts:
        raise BundlingError(f"{folder.name} {locked['version']} has no licence file.")
    name = json.loads((folder / "package.json").read_text(encoding="utf-8"))["name"]
    terms = texts[0].read_text(encoding="utf-8").strip()
    return f"{name} {locked['version']} ({locked['license']})\n\n{terms}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the bundle, or compare it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail where it would differ")
    options = parser.parse_args(arguments)
    try:
        made = dict(zip((BUNDLE, RECORD), bundle()))
    except BundlingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for name, text in made.items():
        path = ASSETS / name
        if options.check:
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                print(f"error: {path.relative_to(ROOT)} is not what its sources make.", file=sys.stderr)
                return 1
            print(f"{path.relative_to(ROOT)} is what its sources make.")
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}, {len(text.encode('utf-8')):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
