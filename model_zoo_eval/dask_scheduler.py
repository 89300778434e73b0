"""Evaluate models on a Dask cluster: the same processes, started by its workers.

Every worker needs this checkout and its environment (or the same at the same place). The rows are those that
a local run gives, but for times and memory.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any, Iterator, Mapping, Sequence

from model_zoo_eval.job import Job
from model_zoo_eval.process import Limits, run_in_process
from model_zoo_eval.registry import Case
from model_zoo_eval.rows import FAILED
from mxamp.errors import DataError

__all__ = ["DaskScheduler"]

_CONNECT_SECONDS = 10


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
        When dask.distributed is missing, or the scheduler cannot be reached or has no workers.
    """

    def __init__(self, address: str, command: Sequence[str] | None = None) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            raise DataError(
                f"--scheduler dask needs dask.distributed, which cannot be imported: {error}. Install it "
                "with: pip install 'mxamp[dask]'. Without it, --jobs runs several models at once on "
                "this machine."
            ) from error
        start = "Start a cluster on this machine with: python -m model_zoo_eval cluster"
        if not re.fullmatch(r"[a-z]+://.+:\d+", address):
            raise DataError(
                f"{address!r} is no address of a Dask scheduler, such as tcp://127.0.0.1:8786. {start}"
            )
        try:
            self._client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            said = str(error).splitlines()[0].rstrip(".")
            raise DataError(
                f"There is no Dask scheduler at {address!r}: {said}. Nothing was run and nothing is "
                f"lost. {start}"
            ) from error
        self._command = None if command is None else list(command)
        self.workers = sum(self._client.nthreads().values())
        if not self.workers:
            self.close()
            raise DataError(f"The Dask scheduler at {address!r} has no workers. {start}")

    def close(self) -> None:
        """Leave the cluster; it goes on without us."""
        with contextlib.suppress(OSError):
            self._client.close()

    def run(
        self, jobs: Sequence[tuple[Case, Job]], limits: Limits
    ) -> Iterator[tuple[Case, Mapping[str, Any]]]:
        """Yield the row of every job as it ends; what is left when the caller stops is cancelled."""
        from distributed import as_completed

        futures = {}
        for case, job in jobs:
            future = self._client.submit(
                run_in_process,
                job.to_mapping(),
                limits.to_mapping(),
                self._command,
                pure=False,
                # A process that takes a worker down with it is a result, not something to try again.
                retries=0,
                key=f"mxamp-zoo-{case.key}-{id(jobs)}",
            )
            futures[future] = case
        try:
            for future in as_completed(list(futures), loop=self._client.loop):
                case = futures.pop(future)
                error = future.exception()
                if error is None:
                    yield case, future.result()
                else:
                    yield (
                        case,
                        {"status": FAILED, "reason": f"the Dask worker: {type(error).__name__}: {error}"},
                    )
        finally:
            self._client.cancel(list(futures))


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
            f"A cluster needs dask.distributed, which cannot be imported: {error}. Install it with: pip "
            "install 'mxamp[dask]'"
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
    import asyncio

    await asyncio.Event().wait()
