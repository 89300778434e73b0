"""``mxamp probe``: measure this machine, and write a target."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

from mxamp.cli.console import supports_progress
from mxamp.dtypes import LOW_PRECISION, DType
from mxamp.errors import DeviceError, TargetError
from mxamp.report.table import paragraph, terminal_width
from mxamp.targets import Support, Target

if TYPE_CHECKING:
    from mxamp.probe.jobs import Unit

_EPILOG = """\
examples:
  mxamp probe -o my-machine.json
  mxamp targets my-machine.json
  mxamp convert resnet50 --dtype bfloat16 --target my-machine.json -o resnet50-bf16
  mxamp probe -o my-gpu.json --dtype float16 --ctx "gpu(0)"

Every operator that GluonCV's models use runs in processes of its own, since some end theirs. An interrupted
probe goes on where it was when the same command is given again. Let the machine be quiet meanwhile: what else
runs on it is in the times."""

_BAR = 24

_DEFAULT_OUTPUT = "probed-{dtype}.json"


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "probe",
        help="measure which operators run low on this machine, and what they cost: a target for convert",
        description="Measure this machine and its MXNet: which operators run in the low dtype and compute "
        "what they should, what the backend fuses, and how long operators, casts and kernels of random "
        "shapes take. Takes about ten minutes and writes a target for `mxamp convert --target`. Where MXNet "
        "has no bfloat16, on CPUs without AVX-512, only how long, in float32, which takes seven minutes.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "-o", "--out", metavar="FILE", help="the target to write (default: probed-DTYPE.json)"
    )
    parser.add_argument(
        "--dtype",
        metavar="DTYPE",
        help="bfloat16 for a CPU (the default there), float16 for a GPU (the default there)",
    )
    parser.add_argument(
        "--ctx", default="cpu", metavar="DEVICE", help='cpu (the default), or "gpu(0)" for the first GPU'
    )
    parser.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="OpenMP threads of MXNet (default: OMP_NUM_THREADS, or half the processors, as MXNet itself)",
    )
    parser.add_argument("--name", default="", help="the target's name (default: the file's)")
    parser.add_argument(
        "--description",
        default="",
        metavar="TEXT",
        help="what the target says of itself, before what it was measured on",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="GLOB",
        help="measure only operators whose name matches, such as 'Conv*'; may be repeated. The target then "
        "knows of these alone, of no costs and no fusion",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="begin anew instead of going on where an earlier run was"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure and write."""
    # Every other command does without the probe's cases.
    from mxamp.measuring.machine import default_threads
    from mxamp.probe import ProbeSettings, run_probe
    from mxamp.probe.journal import journal_path

    dtype = _dtype(args.dtype, args.ctx)
    if args.threads is not None and args.threads < 1:
        raise TargetError(f"--threads must be 1 or more, not {args.threads}.")
    output = args.out or _DEFAULT_OUTPUT.format(dtype=dtype)
    settings = ProbeSettings(
        dtype=dtype,
        ctx=args.ctx,
        threads=args.threads or default_threads(),
        only=tuple(args.only),
    )
    progress = ProbeProgress(sys.stderr, quiet=args.quiet)
    try:
        target = run_probe(
            output,
            settings,
            name=args.name,
            description=args.description,
            fresh=args.fresh,
            progress=progress.note,
        )
    except KeyboardInterrupt:
        progress.finish()
        if journal_path(output).exists():
            print(
                f"{journal_path(output)} holds what is done; the same command goes on from there.",
                file=sys.stderr,
            )
        raise
    finally:
        progress.finish()
    if not args.quiet:
        print("\n".join(_summary(target, output)))
    return 0


def _dtype(given: str | None, ctx: str) -> DType:
    if given is None:
        return DType.FLOAT16 if ctx.strip().lower().startswith("gpu") else DType.BFLOAT16
    dtype = DType.parse(given)
    if dtype not in LOW_PRECISION:
        raise DeviceError(f"A probe compares a low dtype with float32: bfloat16 or float16, not {dtype}.")
    return dtype


def _summary(target: Target, output: str) -> list[str]:
    width = terminal_width()
    counts = {support: len(target.operators_with(support)) for support in Support}
    found = "; ".join(f"{_WORDS[support]}: {count}" for support, count in counts.items() if count)
    measured = f"Operators measured: {len(target.operators)}. {found}."
    if not target.operators and target.cost is not None:
        timed = f"operators, and {target.cost.kernels_measured}"
        measured = f"Measured in float32: {timed}. No operator runs low on this CPU."
    lines = paragraph(measured, width, hanging="  ")
    if target.warning:
        lines += paragraph(f"Warning: {target.warning}", width, hanging="  ")
    return [
        *lines,
        *paragraph(
            f"Written: {output}. `mxamp targets {output}` explains it, and "
            f"`mxamp convert --target {output}` uses it.",
            width,
            hanging="  ",
        ),
    ]


_WORDS = {
    Support.WORKS: "Run low",
    Support.SLOW: "slow",
    Support.BIASED: "not rounded to nearest",
    Support.WRONG: "wrong results",
    Support.CRASHES: "crash MXNet",
    Support.UNSUPPORTED: "not run by MXNet",
    Support.UNMEASURED: "not seen to run",
}


class ProbeProgress:
    """A bar on a terminal; nothing elsewhere."""

    def __init__(self, stream: TextIO, *, quiet: bool) -> None:
        self._stream = stream
        self._is_shown = not quiet and supports_progress(stream)
        self._start: tuple[float, int] | None = None
        self._total = 0

    def note(self, unit: Unit, done: int, total: int) -> None:
        """Show how far it is, and how long the rest will take."""
        if not self._is_shown:
            return
        now = time.monotonic()
        if self._start is None or total != self._total:
            self._start, self._total = (now, done), total
        filled = round(_BAR * done / total)
        start, already = self._start
        left = (now - start) / (done - already) * (total - done) if done > already else None
        remaining = "" if left is None else f", {_clock(left)} left"
        doing = {"check": "checking", "time": "timing"}[unit.kind]
        line = f"[{'#' * filled}{'.' * (_BAR - filled)}] {done} of {total}{remaining}: {doing} {unit.case}"
        self._stream.write(f"\r{line[: max(20, terminal_width() - 1)]}\x1b[K")
        self._stream.flush()

    def finish(self) -> None:
        """Remove the bar."""
        if self._is_shown and self._start is not None:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._start = None


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
