"""Shared by all tests: threads, logging, which files are begun first and stay together, and tables in the summary."""

import logging
import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.startup.preloaded import ADDRESS, Server

if TYPE_CHECKING:
    from tests.command_line import Refusal, RunMain

# Waiting OpenMP threads spin, and parallel test processes would starve each other. Read when torch is
# first imported, here and in the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The agent of each node reads all processes' figures this often (milliseconds), for a dashboard that tests do not have.
os.environ.setdefault("REPORTER_UPDATE_INTERVAL_MS", "60000")

# What vLLM has noted about models lies there also for processes with another home: finding it out again takes a process
# of ten seconds.
os.environ.setdefault("VLLM_CACHE_ROOT", str(Path.home() / ".cache" / "vllm"))

# Models that are made on this machine are made once for all test runs, and not in the user's own cache.
os.environ.setdefault("SEAL_RAY_CACHE", str(Path(tempfile.gettempdir()) / f"seal-ray-tests-{os.getuid()}"))

STARTUP = str(Path(__file__).parent / "startup")
"""Processes that tests start collect garbage less often while they import, as the file in this folder says."""
if STARTUP not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), STARTUP]))

TOGETHER = (("tests/seal_ray/serving/test_hostile.py", "tests/seal_ray/serving/test_serve.py"),)
"""Files that share something of which each process would start one of its own: parallel workers do not part them."""

TABLE = "table"
"""Name of the property under which a test records text for the summary: `record_property("table", text)`."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """The address of a small Ray cluster for all tests that a test process runs, which has joined it."""
    import ray  # which most tests do without
    from ray._private.node import Node

    with pytest.MonkeyPatch.context() as patch:
        # It looks for lines in logs ten times a second, for drivers that show them: here none does.
        patch.setattr(Node, "start_log_monitor", lambda self: None)
        patch.setenv("RAY_worker_niceness", "0")  # as a run's own cluster has it
        ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


@pytest.fixture(scope="module", autouse=True)
def own_sources_of_this_file() -> Iterator[None]:
    """Sources that a file's tests name are known to that file alone: they change what the leak guard calls public."""
    from envs import sources

    before = list(sources.own_sources)
    yield
    sources.own_sources[:] = before


@pytest.fixture
def check_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> "Refusal":
    """Checks that a command line is refused, as `command_line.check_refused` says."""
    from tests import command_line  # Ray, which most tests do without

    return partial(command_line.check_refused, folder=tmp_path, capsys=capsys, monkeypatch=monkeypatch)


@pytest.fixture
def run_main(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> "RunMain":
    """Runs a command line in this process, as `command_line.run_main` says."""
    from tests import command_line

    return partial(command_line.run_main, capsys=capsys, monkeypatch=monkeypatch)


@pytest.fixture
def anyio_backend() -> str:
    """What runs tests that are coroutines; they have the mark `anyio`."""
    return "asyncio"


_SERVER = pytest.StashKey[Server]()


def pytest_configure(config: pytest.Config) -> None:
    """Parallel test processes share a server for processes that start with their libraries imported."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        config.stash[_SERVER] = Server()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Where a test may start such processes, a test process by itself has a server of its own."""
    starts = any("cluster" in item.fixturenames or item.get_closest_marker("long") for item in session.items)  # type: ignore[attr-defined]
    if starts and ADDRESS not in os.environ:
        server = session.config.stash[_SERVER] = Server()
        server.wait()


def pytest_unconfigure(config: pytest.Config) -> None:
    if server := config.stash.get(_SERVER, None):
        server.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
    for item in items if "SEAL_RAY_LONG" not in os.environ else ():
        if mark := item.get_closest_marker("only_by"):
            item.add_marker(pytest.mark.skip(reason=f"make {mark.kwargs['target']} runs it"))


def pytest_runtest_teardown() -> None:
    """A test must not leave logging off for those after it, which may look for a warning."""
    off, logging.root.manager.disable = logging.root.manager.disable, 0
    assert not off, f"logging up to level {off} was disabled and stayed so"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadfile` that takes files which are kept together for one."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    first = {file: files[0] for files in TOGETHER for file in files}

    class Together(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            return first.get(file, file)

    return Together(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, text in getattr(report, "user_properties", ()):
                if name == TABLE and getattr(report, "when", "") == "call":
                    terminalreporter.section(report.nodeid)
                    terminalreporter.write_line(text)
