"""On a Dask cluster a run gives the rows of a local one, and loses nothing when the cluster does not last."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Iterator, Sequence

import pytest

distributed = pytest.importorskip("distributed", reason="needs dask.distributed")

from model_zoo_eval.cli import main
from model_zoo_eval.dask_scheduler import DaskScheduler, threads_for
from model_zoo_eval.job import Job
from model_zoo_eval.journal import Results, read_results
from model_zoo_eval.process import Limits
from model_zoo_eval.registry import Case
from model_zoo_eval.runner import run_cases
from mxamp.errors import DataError
from tests.model_zoo_eval.running import FAKE, NAMES, run, timeless

pytestmark = pytest.mark.dask

ROOT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def cluster_in_this_process(workers: int = 1) -> Iterator[str]:
    """Start a cluster whose workers are threads, and yield its address."""
    with distributed.LocalCluster(
        n_workers=workers, threads_per_worker=2, processes=False, protocol="tcp", dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def started(ran: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a cluster as the documentation says, and return its process and its address."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "model_zoo_eval",
        "cluster",
        "--workers",
        "2",
        "--port",
        "0",
    ]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("--scheduler dask --address tcp://"), line
            yield process, line.split()[-1]
        finally:
            process.kill()


def run_there(
    address: str,
    path: Path,
    names: Sequence[str],
    say: Any = lambda text: None,
    program: str = FAKE,
) -> Results:
    scheduler = DaskScheduler(address, [sys.executable, "-c", program])
    try:
        return run_cases(
            [Case(name) for name in names],
            Job(""),
            path=path,
            scheduler=scheduler,
            limits=Limits(seconds=60.0),
            resume=path.exists(),
            say=say,
        )
    finally:
        scheduler.close()


def test_a_dask_cluster_gives_the_same_rows(tmp_path: Path, ran: Path) -> None:
    local, _ = run(tmp_path / "local" / "results.jsonl", NAMES)
    with cluster_in_this_process() as address:
        remote = run_there(address, tmp_path / "dask" / "results.jsonl", NAMES)
    assert timeless(remote) == timeless(local)
    assert remote.runs[0]["environment"]["scheduler"] == "dask"


@pytest.mark.zoo
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_documented_commands_evaluate_a_model_as_locally(
    started: tuple[subprocess.Popen[str], str], tmp_path: Path
) -> None:
    for package in ("mxnet", "gluoncv", "sklearn", "cv2"):
        pytest.importorskip(package)
    what = ["run", "--models", "cifar_resnet20_v1", "--samples", "1", "--rounds", "1", "--no-pretrained"]
    what += ["--threads", "1", "--dtype", "bfloat16"]
    assert main([*what, "-o", str(tmp_path / "local")]) == 0
    assert main([*what, "-o", str(tmp_path / "dask"), "--scheduler", "dask", "--address", started[1]]) == 0
    local, remote = (timeless(read_results(tmp_path / name)) for name in ("local", "dask"))
    assert remote == local
    assert local["cifar_resnet20_v1"]["results"]["bfloat16"]["heads"]


@contextlib.contextmanager
def several_workers(count: int) -> Iterator[tuple[str, list[subprocess.Popen[str]]]]:
    """Start a scheduler and workers as on several machines, and yield the address and the workers."""
    with contextlib.ExitStack() as stack:

        def start(module: str, *words: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", f"distributed.cli.{module}", *words, "--no-dashboard"],
                cwd=ROOT,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            assert process.stderr is not None
            stack.callback(process.stderr.close)
            return process

        scheduler = start("dask_scheduler", "--host", "127.0.0.1", "--port", "0")
        assert scheduler.stderr is not None
        address = next(
            word for line in scheduler.stderr for word in line.split() if word.startswith("tcp://127")
        )
        one_thread = ("--nthreads", "1", "--no-nanny")
        workers = [start("dask_worker", address, *one_thread) for _ in range(count)]
        with distributed.Client(address) as client:
            client.wait_for_workers(count, timeout=120)
        yield address, workers


def test_a_worker_that_is_killed_loses_no_result(tmp_path: Path, ran: Path) -> None:
    names = ("alexnet", "resnet18_v1", "resnet34_v1", "resnet50_v1", "squeezenet1.0", "squeezenet1.1")
    local, _ = run(tmp_path / "local" / "results.jsonl", names)
    ran.unlink()
    # What has started is logged first, so that the worker is killed while it runs a model.
    crash = 'if job["name"].startswith("resnet50")'
    assert crash in FAKE
    slow = FAKE.replace(crash, f"time.sleep(3)\n{crash}")
    with several_workers(3) as (address, workers):

        def kill_when_all_are_busy() -> None:
            while not ran.exists() or len(ran.read_text().split()) < len(workers):
                time.sleep(0.05)
            workers[0].kill()

        killer = threading.Thread(target=kill_when_all_are_busy, daemon=True)
        killer.start()
        remote = run_there(address, tmp_path / "dask" / "results.jsonl", names, program=slow)
        killer.join()
        assert workers[0].wait() == -signal.SIGKILL
        assert [worker.poll() for worker in workers[1:]] == [None, None]
    assert timeless(remote) == timeless(local)
    started = ran.read_text().split()
    assert set(started) == set(names)
    assert len(started) == len(names) + 1  # the model that the killed worker ran, once more by another


def test_a_scheduler_that_is_killed_ends_the_run_and_resuming_finishes_it(
    started: tuple[subprocess.Popen[str], str], tmp_path: Path, ran: Path
) -> None:
    process, address = started
    path = tmp_path / "results.jsonl"

    def kill(_: str) -> None:
        process.send_signal(signal.SIGKILL)

    # vgg11 takes a minute; the scheduler is killed as soon as the first result is there.
    with pytest.raises(DataError, match="What was done is in the journal; --resume goes on"):
        run_there(address, path, ["alexnet", "vgg11"], kill)
    assert set(read_results(path).rows) == {"alexnet"}
    assert read_results(path).rows["alexnet"]["status"] == "ok"
    ran.unlink()
    results, _ = run(path, ["alexnet", "resnet18_v1"], resume=True)
    assert set(results.rows) == {"alexnet", "resnet18_v1"}
    assert ran.read_text().split() == ["resnet18_v1"]


def test_a_scheduler_that_cannot_be_reached_is_an_error_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model_zoo_eval.dask_scheduler.CONNECT_SECONDS", 1)
    arguments = ["run", "--models", "alexnet", "-o", str(tmp_path / "out"), "--scheduler", "dask"]
    assert main([*arguments, "--address", "tcp://127.0.0.1:1"]) == 2
    said = capsys.readouterr().err
    assert "There is no Dask scheduler at 'tcp://127.0.0.1:1'" in said
    assert "Traceback" not in said
    assert main([*arguments, "--address", "nonsense"]) == 2
    assert "'nonsense' is no address of a Dask scheduler" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_model_gets_the_cores_of_a_machine_by_how_many_run_there_at_once() -> None:
    at_once = {"tcp://10.0.0.1:4000": 2, "tcp://10.0.0.1:4001": 2, "tcp://10.0.0.2:4000": 1}
    found = {worker: {"cores": 16 if worker.startswith("tcp://10.0.0.1") else 6} for worker in at_once}
    assert threads_for(at_once, found) == 4
    assert threads_for({"tcp://10.0.0.1:4000": 3}, {"tcp://10.0.0.1:4000": {"cores": 2}}) == 1


def test_a_cluster_without_workers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model_zoo_eval.dask_scheduler.CONNECT_SECONDS", 1)
    with cluster_in_this_process(workers=0) as address, pytest.raises(DataError, match="has no workers"):
        DaskScheduler(address)


def test_a_worker_of_another_version_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    environments = iter(
        {"mxamp": version, "commit": "", "python": "3.11.7", "packages": {}} for version in ("0.2.0", "0.1.0")
    )
    # The worker is a thread of this process: this one is asked first, then that one.
    monkeypatch.setattr("model_zoo_eval.dask_scheduler.describe_environment", lambda **_: next(environments))
    said = r"has mxamp '0\.1\.0' and this machine '0\.2\.0'"
    with cluster_in_this_process() as address, pytest.raises(DataError, match=said):
        DaskScheduler(address)


@pytest.mark.filterwarnings("ignore:Port 8787 is already in use")
def test_a_cluster_on_a_port_that_is_taken_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with cluster_in_this_process() as address:
        assert main(["cluster", "--workers", "1", "--port", address.rpartition(":")[2]]) == 2
    assert "Give another --port, or 0 for any." in capsys.readouterr().err
