"""Evaluate models on a Dask cluster: the same processes, started by its workers.

Every worker needs this checkout and its environment (or the same at the same place), and is asked whether it
has them before anything runs. The rows are those that a local run gives, but for times and memory.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import re
import time
import uuid
from typing import Any, Iterator, Mapping, Sequence

from model_zoo_eval.environment import describe_environment
from model_zoo_eval.job import Job
from model_zoo_eval.process import Limits, run_in_process
from model_zoo_eval.registry import Case
from model_zoo_eval.rows import FAILED
from mxamp.errors import DataError
from mxamp.messages.installation import install_hint

__all__ = ["DaskScheduler", "run_cluster"]

CONNECT_SECONDS = 10

_LOOK_EVERY = 5.0
"""Seconds between looks whether workers are left."""

_WITHOUT_WORKERS = 60.0
"""Seconds to wait for a worker when none is left: one that died may be started again."""

_SAME = ("mxamp", "commit", "python", "packages")
"""What of a worker's environment must be this one's: results would differ otherwise."""

_START = "Start a cluster on this machine with: python -m model_zoo_eval cluster"

_LOST = (concurrent.futures.CancelledError, asyncio.CancelledError)
_LATE = (asyncio.TimeoutError, concurrent.futures.TimeoutError, TimeoutError)


class DaskScheduler:
    """Runs jobs on the workers of a cluster.

    Parameters
    ----------
    address
        The scheduler's, such as ``tcp://127.0.0.1:8786``.
    command
        What to run instead of the evaluation.

    Raises
    ------
    DataError
        When dask.distributed is missing, the scheduler cannot be reached or has no workers, or a worker has
        not this checkout and environment.
    """

    def __init__(self, address: str, command: Sequence[str] | None = None) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            raise DataError(
                f"--scheduler dask needs dask.distributed, which cannot be imported: {error}. "
                f"{install_hint('dask')} Without it, --jobs runs several models at once on this machine."
            ) from error
        if not re.fullmatch(r"[a-z]+://.+:\d+", address):
            raise DataError(
                f"{address!r} is no address of a Dask scheduler, such as tcp://127.0.0.1:8786. {_START}"
            )
        self._address = address
        self._command = None if command is None else list(command)
        self._quiet = contextlib.ExitStack()
        self._quiet.enter_context(_quiet())
        try:
            self._client = Client(address, timeout=CONNECT_SECONDS)
        except (OSError, ValueError, TypeError, *_LATE) as error:
            self._quiet.close()
            said = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
            raise DataError(
                f"There is no Dask scheduler at {address!r}: {said}. Nothing was run and nothing is "
                f"lost. {_START}"
            ) from error
        try:
            self.environment = self._ask_workers()
        except BaseException:
            self.close()
            raise
        self.workers = sum(self._client.nthreads().values())

    def _ask_workers(self) -> dict[str, Any]:
        """Return what speeds are measured on; fail where a worker would give other results."""
        try:
            self._client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except _LATE as error:
            raise DataError(f"The Dask scheduler at {self._address!r} has no workers. {_START}") from error
        here = _environment()
        try:
            found: Mapping[str, Mapping[str, Any]] = self._client.run(_environment)
        except Exception as error:  # whatever a worker raises that cannot import this module is raised here
            raise DataError(
                f"A worker of {self._address!r} cannot run this evaluation: {type(error).__name__}: {error}. "
                "Start the workers in this checkout, with its Python."
            ) from error
        for worker, there in found.items():
            for key in _SAME:
                # Outside a repository no commit is known.
                if there[key] and here[key] and there[key] != here[key]:
                    raise DataError(
                        f"The worker {worker} has {key} {there[key]!r} and this machine {here[key]!r}, so "
                        "that their results could differ. Bring both to the same version."
                    )
        self.threads = threads_for(self._client.nthreads(), found)
        described = sorted({(str(there["cpu"]), tuple(there["cpu_flags"])) for there in found.values()})
        return {
            "scheduler": "dask",
            "cpu": " and ".join(cpu for cpu, _ in described),
            "cpu_flags": sorted({flag for _, flags in described for flag in flags}),
        }

    def close(self) -> None:
        """Leave the cluster; it goes on without us."""
        with contextlib.suppress(OSError, *_LATE):
            self._client.close()
        self._quiet.close()

    def run(
        self, jobs: Sequence[tuple[Case, Job]], limits: Limits
    ) -> Iterator[tuple[Case, Mapping[str, Any]]]:
        """Yield the row of every job as it ends; what is left when the caller stops is cancelled.

        Raises
        ------
        DataError
            When the scheduler is lost, or the last worker for a minute.
        """
        futures = {}
        run = uuid.uuid4().hex
        for case, job in jobs:
            future = self._client.submit(
                run_in_process,
                job.to_mapping(),
                limits.to_mapping(),
                self._command,
                pure=False,
                # What a model's process does is a result, whatever it is. A model whose worker dies is given
                # to another one by the scheduler itself (distributed.scheduler.allowed-failures).
                retries=0,
                # Of this run alone: a key that the scheduler knows already is not run again.
                key=f"mxamp-zoo-{case.key}-{run}",
            )
            futures[future] = case
        try:
            while futures:
                for future in self._ended(list(futures)):
                    row = self._row(future)
                    yield futures.pop(future), row
        finally:
            with contextlib.suppress(OSError, *_LATE, *_LOST):
                self._client.cancel(list(futures))

    def _ended(self, futures: Sequence[Any]) -> Sequence[Any]:
        """Wait for at least one, and return those that ended."""
        from distributed import wait

        last = time.monotonic()
        while True:
            try:
                done: Sequence[Any] = list(wait(futures, _LOOK_EVERY, return_when="FIRST_COMPLETED").done)
            except _LATE:
                if self._has_workers():
                    last = time.monotonic()
                elif time.monotonic() - last > _WITHOUT_WORKERS:
                    raise self._gone("has no workers left") from None
            except _LOST as error:
                raise self._gone("is gone") from error
            else:
                return done

    def _has_workers(self) -> bool:
        try:
            return bool(self._client.nthreads())
        except (OSError, *_LATE):
            return False

    def _row(self, future: Any) -> Mapping[str, Any]:
        try:
            error = future.exception()
            if error is None:
                row: Mapping[str, Any] = future.result()
                return row
        except _LOST as lost:
            raise self._gone("is gone") from lost
        if isinstance(error, _LOST):
            raise self._gone("is gone") from error
        return {"status": FAILED, "reason": f"the Dask worker: {type(error).__name__}: {error}"}

    def _gone(self, what: str) -> DataError:
        return DataError(
            f"The Dask scheduler at {self._address!r} {what}. What was done is in the journal; --resume goes "
            "on from there, on this cluster or another."
        )


def threads_for(at_once: Mapping[str, int], found: Mapping[str, Mapping[str, Any]]) -> int:
    """Return for how many threads a model has cores, where fewest are."""
    of_host: dict[str, int] = {}
    for worker, jobs in at_once.items():
        of_host[_host(worker)] = of_host.get(_host(worker), 0) + jobs
    return max(
        1, min(int(there["cores"]) // of_host.get(_host(worker), 1) for worker, there in found.items())
    )


def _host(worker: str) -> str:
    return worker.rpartition(":")[0]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep distributed from printing a stack for every attempt to connect; what became of it we say."""
    loggers = [logging.getLogger(f"distributed.{name}") for name in ("client", "core", "utils", "comm")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)


def _environment() -> dict[str, Any]:
    """Return the environment of the process that is asked."""
    return describe_environment(threads=1, seed=0)


def run_cluster(workers: int, port: int) -> None:
    """Run a scheduler with its workers on this machine until it is interrupted.

    Parameters
    ----------
    workers
        How many models at once.
    port
        The scheduler's port; 0 for any that is free.

    Raises
    ------
    DataError
        When dask.distributed is missing, or the port is taken.
    """
    try:
        from distributed import LocalCluster
    except ImportError as error:
        raise DataError(
            f"A cluster needs dask.distributed, which cannot be imported: {error}. {install_hint('dask')}"
        ) from error
    try:
        # Threads suffice: each only waits for the process that it started.
        cluster = LocalCluster(
            n_workers=1,
            threads_per_worker=workers,
            processes=False,
            scheduler_port=port,
            protocol="tcp",
            dashboard_address=None,
        )
    except (OSError, RuntimeError) as error:
        raise DataError(
            f"A cluster cannot be started on port {port}: {error}. Give another --port, or 0 for any."
        ) from error
    with cluster:
        print(f"--scheduler dask --address {cluster.scheduler_address}", flush=True)
        print(f"{workers} at once; stop it with Ctrl-C.", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            cluster.sync(_forever)


async def _forever() -> None:
    await asyncio.Event().wait()
