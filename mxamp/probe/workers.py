"""Processes that do the probe's work, and die of it: a crash is charged to the unit that caused it.

A process takes one unit after the other. Where it dies, the unit it was at is done again in a fresh one: if
it dies there too, it is to blame, and what it answered before counts. If it does not, something that the
process did earlier had spoiled its memory, so all of that is done again, each in a process of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import queue
import signal
import sys
import threading
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Sequence

from mxamp.errors import DeviceError, MxampError, MxnetMissingError, TargetError
from mxamp.measuring.process import Dialogue, process_environment
from mxamp.probe.jobs import Unit

_UNITS_A_PROCESS = 24
"""So few that doing them again is cheap, and so many that importing MXNet does not count."""

_START_LIMIT = 120.0
"""Seconds that a process may take until it is ready."""

_HEAP_CHECK = "libc_malloc_debug.so.0"


class Settings(NamedTuple):
    """How processes are started.

    Attributes
    ----------
    dtype, ctx
        The low dtype and the device.
    rounds
        How often each time is taken.
    limit
        Seconds a unit may take.
    command
        What to start.
    """

    dtype: str
    ctx: str
    rounds: int = 9
    limit: float = 30.0
    command: tuple[str, ...] = (sys.executable, "-m", "mxamp.runtime.probe_child")


class Answer(NamedTuple):
    """What came of a unit.

    Attributes
    ----------
    jobs
        The jobs that were done, each with its outcome.
    died
        How the process died of it: ``outcome`` is ``crashes`` or ``hangs``; None where it did not.
    """

    jobs: Sequence[Mapping[str, Any]]
    died: Mapping[str, Any] | None = None


class _DeathError(Exception):
    """The process is gone; what it was doing is in ``answer``."""

    def __init__(self, answer: Answer) -> None:
        super().__init__("the process died")
        self.answer = answer


class Worker:
    """One process.

    Parameters
    ----------
    settings
        How it is started.
    environment
        Its environment.

    Raises
    ------
    DeviceError, MxnetMissingError, TargetError
        When it cannot begin: the device is not there, cannot run the dtype, or MXNet is missing.
    """

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        self._limit = settings.limit
        self._process = Dialogue(settings.command, environment)
        try:
            self._process.send({"dtype": settings.dtype, "ctx": settings.ctx, "rounds": settings.rounds})
            self.about = self._greeting()
        except BaseException:
            self.close()
            raise

    def _greeting(self) -> Mapping[str, Any]:
        """Return the versions that the process found, or raise why it cannot begin."""
        message = self._receive(_START_LIMIT)
        if message is None:
            raise TargetError(f"The probe's process cannot start: {self._post_mortem()['note']}.")
        if "refused" in message:
            raise _REFUSALS.get(message["refused"], TargetError)(message["message"])
        ready: Mapping[str, Any] = message["ready"]
        return ready

    def _receive(self, seconds: float) -> dict[str, Any] | None:
        """Return the next message; None where the process is gone or says nothing for so long."""
        try:
            return self._process.receive(seconds)
        except TimeoutError:
            return None

    def do(self, unit: Unit) -> Answer:
        """Do one unit.

        Raises
        ------
        _DeathError
            When the process does not survive it, or has to be ended.
        """
        self._process.send({"case": unit.case, "kind": unit.kind})
        jobs: list[Mapping[str, Any]] = []
        begun: Mapping[str, Any] = {}
        while True:
            message = self._receive(self._limit)
            if message is None:
                death = self._post_mortem()
                raise _DeathError(Answer(jobs, {**death, "index": begun.get("index", 0), **_phase(begun)}))
            if message.get("done"):
                return Answer(jobs)
            if "job" in message:
                jobs.append(message["job"])
            else:
                begun = message

    def _post_mortem(self) -> dict[str, Any]:
        """Return how the process died; end it where it has not."""
        ended = self._process.how_it_ended(unless="Subgraph backend")
        if ended is None:
            self._process.kill()
            return {"outcome": "hangs", "note": f"no answer in {self._limit:g} s"}
        status, last = ended
        if status < 0:
            name = signal.Signals(-status).name
            return {"outcome": "crashes", "note": f"{name}{f': {last[:160]}' if last else ''}"}
        return {"outcome": "crashes", "note": f"exit status {status}: {last[:160]}"}

    def close(self) -> None:
        """End the process."""
        self._process.close(grace=2.0)

    def kill(self) -> None:
        """End the process at once; whoever waits for its answer is told that it died."""
        self._process.kill()


_REFUSALS: Mapping[str, type[MxampError]] = {
    "DeviceError": DeviceError,
    "MxnetMissingError": MxnetMissingError,
}


def _phase(begun: Mapping[str, Any]) -> dict[str, Any]:
    return {"phase": begun["begins"]} if "begins" in begun else {}


def probe_environment(threads: int, *, check_heap: bool) -> dict[str, str]:
    """Return the environment of a process.

    Parameters
    ----------
    threads
        How many OpenMP threads it has.
    check_heap
        Whether glibc checks the heap, where it can: an operator that writes beyond its output is then
        caught. It takes time, so not where times are taken.
    """
    environment = process_environment({"OMP_NUM_THREADS": str(threads), "MXNET_SUBGRAPH_VERBOSE": "0"})
    for name in ("MXNET_SUBGRAPH_BACKEND", "MXNET_USE_FUSION"):
        environment.pop(name, None)
    if check_heap and _has_heap_check():
        environment.update(LD_PRELOAD=_HEAP_CHECK, GLIBC_TUNABLES="glibc.malloc.check=3")
    return environment


def _has_heap_check() -> bool:
    try:
        ctypes.CDLL(_HEAP_CHECK)
    except OSError:
        return False
    return True


Recorder = Callable[[Unit, Answer], None]


def run_units(
    units: Sequence[Unit],
    settings: Settings,
    environment: Mapping[str, str],
    *,
    workers: int,
    record: Recorder,
    is_needless: Callable[[Unit], bool] = lambda unit: False,
) -> None:
    """Do units, on several processes at a time.

    Parameters
    ----------
    units
        What is to be done.
    settings, environment
        How processes are started.
    workers
        How many at a time.
    record
        Told of every unit that is done, from several threads but never two at once; a second time where a
        unit had to be done again.
    is_needless
        Whether a unit need not be done, after what came of the others; it counts as done, without a job.

    Raises
    ------
    MxampError
        When no process can begin.
    """
    waiting: queue.SimpleQueue[Unit] = queue.SimpleQueue()
    for unit in units:
        waiting.put(unit)
    crew = _Crew(settings, environment, waiting, record, is_needless)
    threads = [threading.Thread(target=crew.serve, daemon=True) for _ in range(min(workers, len(units)))]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(timeout=0.2)  # so that an interrupt is seen
    except BaseException:
        crew.stop()
        for thread in threads:
            thread.join(timeout=5.0)
        raise
    if crew.failure is not None:
        raise crew.failure


class _Crew:
    """What the threads of :func:`run_units` share."""

    def __init__(
        self,
        settings: Settings,
        environment: Mapping[str, str],
        waiting: queue.SimpleQueue[Unit],
        record: Recorder,
        is_needless: Callable[[Unit], bool],
    ) -> None:
        self._settings, self._environment = settings, environment
        self._is_needless = is_needless
        self._waiting, self._record = waiting, record
        self._lock = threading.Lock()
        self._alive: set[Worker] = set()
        self._is_stopped = False
        self.failure: BaseException | None = None

    def serve(self) -> None:
        """Do what waits, until nothing does."""
        try:
            while not self._is_stopped and not self._waiting.empty():
                self._batch()
        except BaseException as error:
            with self._lock:
                if not self._is_stopped:
                    self.failure = self.failure or error
            self.stop()

    def stop(self) -> None:
        """End all processes; what is being done is lost."""
        self._is_stopped = True
        with self._lock:
            alive = list(self._alive)
        for worker in alive:
            worker.kill()

    @contextlib.contextmanager
    def _worker(self) -> Iterator[Worker]:
        worker = Worker(self._settings, self._environment)
        with self._lock:
            self._alive.add(worker)
        try:
            yield worker
        finally:
            with self._lock:
                self._alive.discard(worker)
            worker.close()

    def _batch(self) -> None:
        """Do units in one process, until it has done enough or dies."""
        done: list[Unit] = []
        with self._worker() as worker:
            while len(done) < _UNITS_A_PROCESS and not self._is_stopped:
                try:
                    unit = self._waiting.get_nowait()
                except queue.Empty:
                    return
                with self._lock:
                    is_needless = self._is_needless(unit)
                if is_needless:
                    self._tell(unit, Answer([]))
                    continue
                try:
                    answer = worker.do(unit)
                except _DeathError as death:
                    answer = death.answer
                    break
                self._tell(unit, answer)
                done.append(unit)
            else:
                return
        if not done:
            self._tell(unit, answer)
            return
        again = self._alone(unit)
        self._tell(unit, again)
        if again.died is None:
            for earlier in done:
                self._tell(earlier, self._alone(earlier))

    def _alone(self, unit: Unit) -> Answer:
        try:
            with self._worker() as worker:
                return worker.do(unit)
        except _DeathError as death:
            return death.answer

    def _tell(self, unit: Unit, answer: Answer) -> None:
        if self._is_stopped:
            return
        with self._lock:
            self._record(unit, answer)
