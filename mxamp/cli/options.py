"""What several subcommands have on their command lines, said once."""

from __future__ import annotations

from typing import Any

from mxamp.compare.measure import DEFAULT_BATCH_SIZE


def _option(*names: str, **settings: Any) -> tuple[str, tuple[tuple[str, ...], dict[str, Any]]]:
    return names[-1], (names, settings)


_OPTIONS = dict(
    [
        _option(
            "--batch-size", type=int, metavar="N", help=f"samples of a pass (default: {DEFAULT_BATCH_SIZE})"
        ),
        _option("--ctx", default="cpu", metavar="DEVICE", help="cpu (default) or gpu(0)"),
        _option("--data", metavar="FILE", help=".npz with arrays named like the inputs, or .npy"),
        _option("--dtype", default="bfloat16", metavar="DTYPE", help="bfloat16 (default) or float16"),
        _option("--force", action="store_true", help="replace FILE.html where it exists"),
        _option("--html", metavar="FILE.html", help="write an HTML report: one file, to read and forward"),
        _option("--json", action="store_true", help="print JSON for machines"),
        _option("--labels", metavar="FILE", help=".npy, or .npz with one array, one label a sample"),
        _option(
            "--latency-seconds",
            type=float,
            default=10.0,
            metavar="SECONDS",
            help="about how long to time both models by turns; it ends early where the answer is clear, and "
            "0 leaves it out (default: %(default).0f)",
        ),
        _option("--max-samples", type=int, metavar="N", help="use only the first N samples"),
        _option("--out-epoch", type=int, metavar="N", help="read OUT-000N.params (default: 0)"),
        _option("--quiet", action="store_true", help="print nothing but warnings and errors"),
        _option("--target", metavar="TARGET", help="the machine; see mxamp targets"),
        _option("-v", "--verbose", action="store_true", help="tell everything, and not in short"),
    ]
)
"""Option -> what argparse is told of it."""


def add_common(parser: Any, *options: str, **changed: Any) -> None:
    """Add options that other subcommands have, too.

    Parameters
    ----------
    parser
        A parser, or a group of options.
    options
        Their names.
    changed
        What argparse is told otherwise of these.
    """
    for option in options:
        names, settings = _OPTIONS[option]
        parser.add_argument(*names, **{**settings, **changed})
