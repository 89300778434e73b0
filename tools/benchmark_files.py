"""Convert a large parameter file: the time against that of ``cp``, and the memory it takes.

    python -m tools.benchmark_files            (or: make bench-files)

Writes a model of 4 GB (tools/large_model.py), then copies its parameter file with ``cp`` and converts it, in
turn, each time to a new file on the same disk and with nothing of the last round left to be written. The
conversion is the whole command, from starting Python to the renamed files, and it waits until the disk has
what it wrote, which ``cp`` does not; so the time of ``cp`` and ``sync`` is shown too. The memory is the most
that the converting process held at any time, its code included. Everything written is removed at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Sequence

from mxamp.model import model_paths
from tools.benchmark_options import add_benchmark_options, write_measurements
from tools.large_model import parse_size, write_large_model
from tools.machine import ROOT, describe_machine, machine_lines

__all__ = ["Conversion", "FileBenchmark", "convert_in_child", "main", "measure"]

MOST_TIMES_CP = 2.5
MOST_MEGABYTES = 700

_CHILD = """
import json, resource, sys
from mxamp.cli.main import main
status = main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
try:
    # What getrusage says includes what the parent held before it started this program.
    with open("/proc/self/status") as file:
        peak = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))
except (OSError, StopIteration):
    pass
told = {"processor": used.ru_utime + used.ru_stime, "peak": peak, "mxnet": "mxnet" in sys.modules}
print("\\n" + json.dumps(told))
sys.exit(status)
"""


@dataclass(frozen=True)
class Conversion:
    """A conversion by a process of its own.

    Attributes
    ----------
    seconds : float
        From its start to its end.
    processor_seconds : float
        What the processors worked for it.
    peak_bytes : int
        The most memory that it held.
    imported_mxnet : bool
        Whether it imported MXNet.
    """

    seconds: float
    processor_seconds: float
    peak_bytes: int
    imported_mxnet: bool


@dataclass
class FileBenchmark:
    """What was measured.

    Attributes
    ----------
    size : int
        The bytes of the parameter file.
    cp_seconds, cp_sync_seconds : list of float
        How long ``cp`` took, and ``cp`` with a ``sync`` of the copy, one a round.
    conversions : list of Conversion
        One a round.
    """

    size: int
    cp_seconds: list[float] = field(default_factory=list)
    cp_sync_seconds: list[float] = field(default_factory=list)
    conversions: list[Conversion] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """The median over the rounds of the time of the conversion over that of ``cp``."""
        return statistics.median(found.seconds / cp for found, cp in zip(self.conversions, self.cp_seconds))

    @property
    def peak_bytes(self) -> int:
        """The most memory that a conversion held."""
        return max(found.peak_bytes for found in self.conversions)


def convert_in_child(
    arguments: Sequence[str], *, command: str = "convert", threads: int | None = None
) -> Conversion:
    """Run ``mxamp convert`` in a process of its own, or another command.

    Parameters
    ----------
    arguments : sequence of str
        Its arguments.
    command : str
        What to run.
    threads : int, optional
        The most threads of the libraries that it uses.

    Raises
    ------
    RuntimeError
        When it fails; with what it said.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, command, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - started
    if done.returncode:
        raise RuntimeError(f"mxamp {command} failed:\n{done.stdout}{done.stderr}")
    told = json.loads(done.stdout.splitlines()[-1])
    return Conversion(seconds, told["processor"], told["peak"], told["mxnet"])


def measure(
    folder: Path, size: int, *, dtype: str = "bfloat16", rounds: int = 3, seed: int = 0
) -> FileBenchmark:
    """Write a model into a folder, and time copying and converting it.

    Parameters
    ----------
    folder : pathlib.Path
        Where to write; what is written stays there.
    size : int
        The bytes of the parameter file, more or less.
    dtype : str
        What to convert to.
    rounds : int
        How often.
    seed : int
        Seed of the model's values.
    """
    prefix, out, copy = folder / "large", folder / "converted", folder / "copy.params"
    write_large_model(str(prefix), size, seed=seed)
    params = model_paths(prefix)[1]
    found = FileBenchmark(params.stat().st_size)
    for _ in range(rounds):
        os.sync()
        started = time.perf_counter()
        subprocess.run(["cp", str(params), str(copy)], check=True)
        found.cp_seconds.append(time.perf_counter() - started)
        os.sync()
        found.cp_sync_seconds.append(time.perf_counter() - started)
        copy.unlink()
        os.sync()
        found.conversions.append(convert_in_child([str(prefix), "--dtype", dtype, "-o", str(out), "--quiet"]))
        for path in folder.glob(f"{out.name}*"):
            path.unlink()
    return found


def _print(found: FileBenchmark) -> None:
    print(f"\n{'':<12}{'seconds, each round':<32}{'GB/s':>6}")
    rows = {
        "cp": found.cp_seconds,
        "cp, sync": found.cp_sync_seconds,
        "convert": [conversion.seconds for conversion in found.conversions],
        "  processor": [conversion.processor_seconds for conversion in found.conversions],
    }
    for name, seconds in rows.items():
        speed = found.size / statistics.median(seconds) / 1e9
        print(f"{name:<12}{'  '.join(f'{value:.2f}' for value in seconds):<32}{speed:>6.2f}")
    synced = statistics.median(
        conversion.seconds / cp for conversion, cp in zip(found.conversions, found.cp_sync_seconds)
    )
    print(f"\nconvert: {found.ratio:.2f} times the time of cp (wanted: at most {MOST_TIMES_CP}), ", end="")
    print(f"{synced:.2f} times that of cp and sync")
    print(f"memory:  {found.peak_bytes / 1e6:.0f} MB at most (wanted: under {MOST_MEGABYTES})")
    print(f"MXNet was {'' if any(one.imported_mxnet for one in found.conversions) else 'not '}imported")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.benchmark_files",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
    )
    parser.add_argument(
        "--size", type=parse_size, default="4GB", help="of the parameter file (default: %(default)s)"
    )
    parser.add_argument("--dtype", default="bfloat16", help="what to convert to (default: %(default)s)")
    parser.add_argument(
        "--folder",
        type=Path,
        default=ROOT / ".cache" / "benchmark-files",
        help="where to write, on the disk to be measured (default: .cache/benchmark-files in the clone)",
    )
    add_benchmark_options(parser, rounds=3, round_means="how often", seed_of="the values")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command-line arguments; None means those of the process.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(options.folder).free
    if free < 2.2 * options.size:
        parser.error(
            f"{options.folder} has {free / 1e9:.1f} GB free, and {2.2 * options.size / 1e9:.1f} are needed"
        )
    machine = describe_machine(seed=options.seed)
    print(f"{options.size / 1e9:.1f} GB of parameters to {options.dtype}, {options.rounds} rounds")
    print("\n".join(machine_lines(machine)), flush=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        found = measure(
            Path(folder), options.size, dtype=options.dtype, rounds=options.rounds, seed=options.seed
        )
    with contextlib.suppress(OSError):  # it holds something else
        options.folder.rmdir()
    _print(found)
    write_measurements(
        options.json,
        {"machine": machine, **asdict(found), "ratio": found.ratio, "peak_bytes": found.peak_bytes},
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
