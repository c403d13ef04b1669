"""`Rehearsal`: a run that is meant for GPUs, played on this machine's CPUs with narrow layers, step by step."""

import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import ray
from rich.table import Table

from envs.errors import SealError
from policies.models import open_model
from policies.models.choice import MODELS
from policies.models.folder import check_folder
from policies.models.stand_in import BACKBONES, Backbone, token_parity, write_shape, write_stand_in
from seal_ray.algorithm.memory_estimate import gpu_needs, parts
from seal_ray.algorithm.time_estimate import GPU, round_phases
from seal_ray.config.resolve import RunSpec
from seal_ray.report.files import RunFolder
from seal_ray.run.cluster import connected, resources
from seal_ray.run.ray_private import actor_processes, closed_to_others

NOT_EXERCISED = (
    "CUDA and NCCL: kernels, graphs, memory of GPUs",
    "weights of true size: download, loading, delivery, checkpoints",
    "calls and results inside dialogues: random weights call no tool",
    "speed",
)
ACTORS = {"env_runners.num_env_runners": 2, "learners.num_learners": 4, "engine.num_engines": 2}
"""Largest numbers of actors that compute; the others only hold their place in the step `placement`."""
_SMALLER = {
    "training.groups": 8,
    "training.group_size": 4,
    "training.minibatch_groups": 4,
    "solver.response": 64,
    "fault_tolerance.engine_timeout": 180,
}
"""Largest values of settings that only make rounds, or the wait for engines of a lost node, longer."""
_ROUNDS = 5
_LIMIT = 900.0
"""Largest number of seconds of a step."""
_TOOL = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"celsius": {"type": "boolean"}}, "required": ["celsius"]},
}


def setting(spec: RunSpec, key: str) -> int:
    """A setting that is a whole number, by its key SECTION.NAME."""
    section, _, name = key.partition(".")
    return int(getattr(getattr(spec, section), name))


class Rehearsal:
    """A rehearsal of the run `spec`, described by `words`, in a new `folder`, on `nodes` Ray nodes of this machine."""

    def __init__(self, spec: RunSpec, words: Sequence[str], folder: Path, *, nodes: int, gpu_gib: int) -> None:
        self._spec, self._words, self._folder = spec, words, folder
        self._nodes, self._gpu_gib = nodes, gpu_gib
        self._run, self._exported = folder / "run", folder / "exported"
        self._ray: list[subprocess.Popen[bytes]] = []
        self.table = Table("step", "exercised")

    def play(self, say: Callable[[str], None]) -> None:
        """Plays all steps into the `table`. Raises `SealError` at the first that fails."""
        steps: dict[str, Callable[[], str]] = {
            "model": self._write_model,
            f"memory of a GPU of {self._gpu_gib} GiB (estimate)": self._estimate_memory,
            "placement": self._place,
            "training, with a kill of each kind of process": self._train,
            "resume on half of the actors": self._resume,
            "evaluation": self._evaluate,
            "export": self._export,
            "a request with a tool to the served model": self._serve,
        }
        with self._cluster(), connected():
            _wait(lambda: len(ray.nodes()) == self._nodes, self._ray[-1])
            for name, step in steps.items():
                started = time.monotonic()
                self.table.add_row(name, step())
                say(f"{name}: done in {time.monotonic() - started:.0f} s")
        self.table.add_section()
        for name in NOT_EXERCISED:
            self.table.add_row(name, "no")

    @contextmanager
    def _cluster(self) -> Iterator[None]:
        """Ray nodes that claim to have GPUs, and end with the block."""
        requests = resources(self._spec)
        gpus = sum(request["GPU"] for request in requests.values())
        # Just enough for the actors that compute, so that they are on all nodes.
        cpus = sum(requests[_kind(key)]["CPU"] * self._real(key) / max(1, setting(self._spec, key)) for key in ACTORS)
        shares = [f"--num-gpus={math.ceil(gpus / self._nodes - 1e-4)}", f"--num-cpus={math.ceil(cpus / self._nodes)}"]
        temporary = Path(tempfile.mkdtemp(prefix="ray"))  # a short name, as the paths of sockets must be
        before = os.environ.get("RAY_ADDRESS")
        with closed_to_others(temporary):
            try:
                self._start_node(
                    "--head", "--port=0", "--include-dashboard=false", f"--temp-dir={temporary / 'r'}", *shares
                )
                address = temporary / "r" / "ray_current_cluster"
                _wait(address.exists, self._ray[0])
                os.environ["RAY_ADDRESS"] = address.read_text("ascii").strip()
                for _ in range(1, self._nodes):
                    self._start_node(f"--address={os.environ['RAY_ADDRESS']}", *shares)
                yield
            finally:
                for process in self._ray:
                    _kill_tree(process)  # Ray would drain each for half a minute
                os.environ.pop("RAY_ADDRESS", None)
                if before is not None:
                    os.environ["RAY_ADDRESS"] = before
                shutil.rmtree(temporary, ignore_errors=True)

    def _start_node(self, *arguments: str) -> None:
        command = [
            *(str(Path(sys.executable).parent / "ray"), "start", "--block", "--node-ip-address=127.0.0.1"),
            *("--disable-usage-stats", "--dashboard-agent-listen-port=0"),
            *("--object-store-memory=200000000", *arguments),
        ]
        # Actors are spread over the nodes, as they would be if they took GPUs.
        environment = {**os.environ, "RAY_scheduler_spread_threshold": "0"}
        if self._nodes > 1:
            environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "1"
        with (self._folder / f"node-{len(self._ray)}.log").open("wb") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)  # noqa: S603 - Ray's command
        self._ray.append(process)

    def _real(self, key: str) -> int:
        """The number of actors of a kind that compute."""
        return min(ACTORS[key], setting(self._spec, key))

    def _write_model(self) -> str:
        name = self._spec.agents["solver"].model
        if name in MODELS.names():
            self._base, self._shape = name, open_model(name)
            return f"{name} itself"
        backbone = BACKBONES.get(name) or Backbone.from_model(open_model(name, weights=False))
        self._shape = check_folder(write_shape(self._folder / "shape", backbone), weights=False)
        self._base = str(write_stand_in(self._folder / name.rpartition("/")[2], backbone).resolve())
        return f"{backbone.vocabulary:,} tokens, template and calls of {backbone.dialect}; two narrow random layers"

    def _estimate_memory(self) -> str:
        needs = gpu_needs(parts(self._spec, self._shape), self._spec, self._gpu_gib << 30)
        listed = ", ".join(f"{size / 2**30:.1f} for {name}" for name, size in needs.items())
        if not needs:
            return "no GPU"
        phases = {phase.name: phase.seconds for phase in round_phases(self._spec, self._shape)}
        times = ", ".join(f"{seconds:.0f} for {name}" for name, seconds in phases.items())
        return f"{sum(needs.values()) / 2**30:.1f} GiB: {listed}; seconds of a round on {GPU}s: {times}"

    def _place(self) -> str:
        """Starts an actor without work for each learner, then for each engine, in the order of a run."""
        learners, engine = self._spec.learners, self._spec.engine
        shares = [learners.num_gpus_per_learner] * learners.num_learners
        shares += [engine.num_gpus_per_engine] * engine.num_engines
        actors = [_Placed.options(num_cpus=0, num_gpus=share).remote() for share in shares]  # type: ignore[attr-defined]
        gpus = ray.get([actor.gpus.remote() for actor in actors], timeout=_LIMIT)
        for actor in actors:
            ray.kill(actor)
        learning = Counter(place for places in gpus[: learners.num_learners] for place in places)
        sampling = Counter(place for places in gpus[learners.num_learners :] for place in places)
        if not learning | sampling:
            return "no GPU"
        return (
            f"learners: {learners.num_learners}, engines: {engine.num_engines}, GPUs: {len(learning | sampling)}; "
            f"at most {max((*learning.values(), *sampling.values()))} of one kind on a GPU"
        )

    def _train(self) -> str:
        """Trains; kills an engine, a runner and a learner; then a node, or interrupts the run."""
        settings = {key: min(most, setting(self._spec, key)) for key, most in _SMALLER.items()}
        settings |= {key: self._real(key) for key in ACTORS}
        words = [*self._words, *(f"{key}={value}" for key, value in settings.items())]
        words += [
            f"solver.model={self._base}",
            f"environment.reward={token_parity.__module__}:token_parity",
            "evaluation.interval=0",
        ]
        words += ["training.checkpoint_every=1", "engine.num_gpus_per_engine=0", "learners.num_gpus_per_learner=0"]
        options = [f"--rounds={_ROUNDS}", f"--runs={self._folder}", f"--name={self._run.name}", "--max-restarts=1"]
        is_split = self._nodes > 1
        with self._command(
            "train", *options, "--wandb=off", "--trust", *words, codes=(1, 2) if is_split else (0,)
        ) as process:
            self._wait_for_round(1, process)
            _kill("EngineActor")
            _kill("SealEnvRunner")
            self._wait_for_round(2, process)
            restarts = {name: int(self._rounds()[-1][f"perf/{name}_restarts"]) for name in ("engine", "runner")}
            if self._spec.learners.num_learners:
                _kill("_WrappedExecutable")  # RLlib wraps learners; the run resumes, at a round before if it is sharded
            self._wait_for_round(3, process)
            if is_split:
                _kill_tree(self._ray.pop())
            else:
                process.send_signal(signal.SIGINT)
        if self._spec.learners.num_learners:
            restarts["run"] = self._log("train").count("; restarting,")
        if not all(restarts.values()):
            raise SealError(f"rehearsal: not every killed process was restarted: {restarts}.")
        counts = ", ".join(f"{_kind(key)}: {self._real(key)}" for key in ACTORS)
        end = "a node was killed" if is_split else "interrupted"
        listed = ", ".join(f"{name} {count}" for name, count in restarts.items())
        return f"{counts}; restarts: {listed}; then {end}"

    def _resume(self) -> str:
        before = len(self._rounds())
        words = [f"{key}={max(1, self._real(key) // 2)}" for key in ACTORS]
        if self._real("learners.num_learners") == 2:
            words.append("learners.fsdp=false")
        with self._command("train", f"--resume={self._run}", *words, "--wandb=off", "--trust", log="resume"):
            pass
        rounds = [int(each["round"]) for each in self._rounds()]
        if rounds != list(range(1, _ROUNDS + 1)):
            raise SealError(f"rehearsal: the run has the rounds {rounds}.")
        return f"{', '.join(words)}: rounds {before + 1} to {_ROUNDS}"

    def _evaluate(self) -> str:
        options = [
            f"--env={self._spec.environment.source}",
            "--limit=4",
            "--response=64",
            f"--out={self._folder / 'evaluation'}",
        ]
        with self._command("evaluate", str(self._run), *options):
            pass
        return "4 dialogues without hints"

    def _export(self) -> str:
        merge = ["--merge"] if self._spec.agents["solver"].lora_rank else []
        with self._command("export", str(self._run), f"--out={self._exported}", *merge):
            pass
        return f"{sum(file.stat().st_size for file in self._exported.iterdir()) >> 20} MiB"

    def _serve(self) -> str:
        port = _free_port()
        url = f"http://127.0.0.1:{port}/v1"
        options = [f"--port={port}", "--gpus=0", "--no-key", "--model-name=rehearsed"]
        with self._command("serve", str(self._exported), *options, codes=(0, 130)) as process:
            _wait(lambda: "serving " in self._log("serve"), process)
            body = {
                "model": "rehearsed",
                "messages": [{"role": "user", "content": "Is it warm?"}],
                "tools": [{"type": "function", "function": _TOOL}],
                "tool_choice": "required",
                "max_tokens": 200,
            }
            answer = httpx.post(f"{url}/chat/completions", json=body, timeout=_LIMIT)
            process.send_signal(signal.SIGINT)
        if answer.status_code != 200:
            raise SealError(f"rehearsal: the server answered {answer.status_code}: {answer.text[:300]}")
        (call, *_) = answer.json()["choices"][0]["message"]["tool_calls"]
        return f"{call['function']['name']}({call['function']['arguments']})"

    @contextmanager
    def _command(
        self, *arguments: str, codes: Sequence[int] = (0,), log: str = ""
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Runs a command of seal-ray during the block, and waits. Raises `SealError` for another exit code."""
        path = self._folder / f"{log or arguments[0]}.log"
        with path.open("wb") as file:
            command = [str(Path(sys.executable).parent / "seal-ray"), *arguments]
            process = subprocess.Popen(command, stdout=file, stderr=file)  # noqa: S603 - our own command
        failure: Exception | None = None
        try:
            yield process
            process.wait(_LIMIT)
        except (SealError, subprocess.TimeoutExpired) as error:
            failure = error
        finally:
            is_running = process.poll() is None
            if is_running:
                process.terminate()
                process.wait()
        if failure is not None or process.returncode not in codes:
            end = f"failed: {failure}" if is_running else f"ended with exit code {process.returncode}"
            *_, last = ["", *path.read_text("utf-8", errors="replace").splitlines()]
            raise SealError(f"rehearsal: {arguments[0]} {end} ({last[:300]}); its log is {path}.")

    def _log(self, name: str) -> str:
        path = self._folder / f"{name}.log"
        return path.read_text("utf-8", errors="replace") if path.exists() else ""

    def _rounds(self) -> list[dict[str, Any]]:
        """The metrics of the run's rounds."""
        return RunFolder(self._run).metrics.rows() if self._run.exists() else []

    def _wait_for_round(self, number: int, process: subprocess.Popen[bytes]) -> None:
        _wait(lambda: len(self._rounds()) >= number, process)


@ray.remote
class _Placed:
    """An actor that holds its GPU and does nothing."""

    def gpus(self) -> list[tuple[str, int]]:
        node = ray.get_runtime_context().get_node_id()
        return [(node, int(gpu)) for gpu in ray.get_gpu_ids()]


def _kind(key: str) -> str:
    """The actors that the setting of their number counts, as `resources` names them."""
    return key.partition(".num_")[2].replace("_", " ")


def _kill(class_name: str) -> None:
    """Kills the process of one actor of this class. Raises `SealError` if none is running."""
    pids = actor_processes(class_name)
    if not pids:
        raise SealError(f"no {class_name} is running.")
    os.kill(min(pids), signal.SIGKILL)


def _kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and all below it, as if their machine was lost."""
    pids = [process.pid]
    for pid in pids:
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):  # it has ended
                pids += map(int, children.read_text("ascii").split())
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _wait(is_ready: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Blocks until it is ready. Raises `SealError` if the process has ended, or after `_LIMIT` seconds."""
    deadline = time.monotonic() + _LIMIT
    while not is_ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SealError(f"a process ended, or was not ready within {_LIMIT:g} s.")
        time.sleep(0.2)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port
