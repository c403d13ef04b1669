"""`python -m tests.bench.same COMMIT`: does the code do what it did at that commit, to the last bit?

The same commands with the same seeds and explicit settings are run on both, in a folder each: training with several
curators, a task writer and LoRA, a run that is killed and resumed, a comparison, a sweep, an evaluation, and requests
to a server. Metrics without times, records and exported weights must be equal.

Both play one dialogue and compute one request at a time (`one_at_a_time/`): what an engine computes together depends on
timing, and decides the last bit of a log-prob. The number of prompt tokens from the engine's cache is not compared.
Where results differ, the commit runs once more: a metric that differs between its two runs is noise, and counted apart.

COMMIT is 1990a79 or later. Its settings, metrics and records had other names (`OLD_NAMES`).
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from zipfile import ZipFile

ROOT = Path(__file__).parents[2]
ONE_AT_A_TIME = Path(__file__).parent / "one_at_a_time"
SMALL = (
    *("training.rounds=6", "training.groups=4", "training.group_size=4", "training.minibatch_groups=2"),
    *("training.warm_up=0", "training.checkpoint_every=2", "evaluation.interval=3", "evaluation.tasks=8"),
    *("engine.concurrent=1", "learners.threads=1"),
)
_TIMES = ("perf/",)
"""Metrics that are times, or depend on them."""
OLD_NAMES = {
    "solver/anchored_rows": "solver/hint_stripped_rows",
    "solver/anchored_tokens": "solver/hint_stripped_tokens",
    "solver/anchored_ratio_first": "solver/hint_stripped_ratio_first",
    "solver/anchored_clip_fraction": "solver/hint_stripped_clip_fraction",
    "solver/anchor_weight": "solver/off_policy_weight",
    "writer/specifications": "task_writer/proposals",
}
"""Metric → its name now. Metrics of `writer/` begin with `task_writer/` now; `solver/anchor_share` is gone."""


@dataclass(frozen=True)
class Case:
    """A run of `seal-ray train`: its arguments now, and at the commit; and whether it is killed and resumed."""

    now: Sequence[str]
    before: Sequence[str]
    killed: bool = False

    @classmethod
    def of(cls, *arguments: str, killed: bool = False) -> Self:
        return cls(arguments, arguments, killed)


FADE = ("curator.plain_share=0.0", "curator.plain_share_end=0.5")
LARGE = (
    *("training.rounds=4", "training.groups=12", "training.group_size=8", "training.minibatch_groups=4"),
    "curator.proposals=4",
)
"""Windows with enough rollouts for new arms."""
LORA_NOW = ("solver.lora_rank=4",)
LORA_BEFORE = ("solver.lora_rank=4", "solver.lora_alpha=8")
CASES: Mapping[str, Case] = {
    "vanilla": Case.of("--preset", "vanilla"),
    "seal": Case.of("--preset", "seal"),
    "fixed": Case.of("--preset", "fixed", *FADE),
    "rules": Case.of("--preset", "rules", *FADE),
    "frozen": Case(("--preset", "llm-frozen", *LARGE), ("--preset", "llm-frozen", *LARGE, "curator.advantage=centred")),
    "coevolved": Case.of("--preset", "coevolved", *LARGE),
    "varied": Case.of("--preset", "coevolved-varied", *LARGE),
    "tasks": Case.of("--preset", "genenv"),
    "lora": Case(("--preset", "coevolved", *LARGE, *LORA_NOW), ("--preset", "coevolved", *LARGE, *LORA_BEFORE)),
    "killed": Case.of("--preset", "coevolved", *LARGE, killed=True),
}
OTHERS = ("compare", "sweep", "evaluate", "serve")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", help="the commit to compare with")
    parser.add_argument("--case", action="append", choices=[*CASES, *OTHERS], help="this case alone")
    parser.add_argument("--now", help="compare this commit instead of the code as it stands")
    parser.add_argument("--keep", type=Path, help="leave the runs in this folder")
    given = parser.parse_args()
    differences = 0
    now_tree = checked_out(given.now) if given.now else nullcontext(ROOT)
    print("| case | results | seconds |\n| --- | --- | --- |")
    with checked_out(given.commit) as before, now_tree as now, work_folder(given.keep) as work:
        for name in given.case or [*CASES, *OTHERS]:
            started = time.monotonic()
            results = []
            for side, tree in (("before", before), ("now", now)):
                folder = work / name / side
                folder.mkdir(parents=True)
                results.append(outcome(name, tree, folder, side=side))
            unlike, noise = different(*results), list[str]()
            if unlike:
                folder = work / name / "again"
                folder.mkdir()
                noisy = {_metric(key) for key in different(results[0], outcome(name, before, folder, side="before"))}
                noise = [key for key in unlike if _metric(key) in noisy]
                unlike = [key for key in unlike if key not in noise]
            differences += bool(unlike)
            said = f"{len(results[0]) - len(unlike) - len(noise)} equal"
            said += f", noise: {', '.join(noise)}" if noise else ""
            said += f", {len(unlike)} DIFFER: {', '.join(unlike[:8])}" if unlike else ""
            print(f"| {name} | {said} | {time.monotonic() - started:.0f} |", flush=True)
    return int(bool(differences))


def different(results: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    """The names of unequal results."""
    return sorted(key for key in {*results, *others} if results.get(key) != others.get(key))


def _metric(key: str) -> str:
    """A metric's name without its round."""
    return re.sub(r"^round \d+ ", "", key)


def outcome(name: str, tree: Path, folder: Path, *, side: str) -> dict[str, Any]:
    """The results of a case on a tree, by name."""
    if name == "evaluate":
        seal_ray(tree, folder, "evaluate", "--limit", "12", "--out", "out", "--seeds", "2", "--temperature", "1.0")
        return {
            f"dialogue {place}": row for place, row in enumerate(sorted(lines(folder / "out" / "trajectories.jsonl")))
        }
    if name == "serve":
        return served(tree, folder)
    if name in ("compare", "sweep"):
        options = ("--rounds", "2", *(word for word in SMALL if "rounds" not in word))
        if name == "compare":
            seal_ray(tree, folder, "compare", "--arms", "vanilla,fixed", "--seeds", "2", "--name", "run", *options)
        else:
            space = "parameters:\n  reweighting.alpha: {low: 0.0, high: 3.0}\n"
            (folder / "space.yaml").write_text(space, encoding="utf-8")
            words = ("--space", "space.yaml", "--trials", "2", "--name", "run", "--preset", "seal")
            seal_ray(tree, folder, "sweep", *words, *options)
        runs = sorted((folder / "runs" / "run").rglob("metrics.jsonl"), key=_first_rounds)
        assert len(runs) == (4 if name == "compare" else 2), runs
        return {
            f"{place} {key}": value for place, path in enumerate(runs) for key, value in of_run(path.parent).items()
        }
    case = CASES[name]
    arguments = case.before if side == "before" else case.now
    command = ("train", *SMALL, *arguments, "--seed", "7", "--name", "run", "--wandb", "off")
    run = folder / "runs" / "run"
    if case.killed:
        kill_after(2, tree, folder, run, command)
        seal_ray(tree, folder, "train", "--resume", str(run), "--wandb", "off")
    else:
        seal_ray(tree, folder, *command)
    seal_ray(tree, folder, "export", str(run), "--out", "exported")
    weights = sorted((folder / "exported").glob("*.safetensors"))
    assert weights, "nothing was exported"
    return {
        **of_run(run),
        **{f"weights {path.name}": hashlib.sha256(path.read_bytes()).hexdigest() for path in weights},
    }


def _first_rounds(path: Path) -> list[str]:
    """Orders trials, whose names can differ, by what they measured."""
    rows = [json.loads(line) for line in lines(path)]
    return [f"{key} {value!r}" for row in rows for key, value in sorted(row.items()) if not _is_time(key)]


def served(tree: Path, folder: Path) -> dict[str, Any]:
    """Answers of a server of the small model, whole and streamed, without ids, times and fingerprints."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command, environment = _command(tree, "serve", "tiny", "--port", str(port), "--no-key")
    with (folder / "said.txt").open("w") as said:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=said)
    try:
        wait_for_server(process, port)
        messages = [{"role": "user", "content": "List the files of the folder."}]
        function = {"name": "ls", "description": "Lists files.", "parameters": {"type": "object", "properties": {}}}
        body = {"model": "tiny", "messages": messages, "tools": [{"type": "function", "function": function}]}
        whole = ask(port, {**body, "temperature": 0, "max_tokens": 48})
        streamed = ask(port, {**body, "temperature": 0, "max_tokens": 48, "stream": True})
        return {"whole": _without_ids(json.loads(whole)), "streamed": [_without_ids(each) for each in chunks(streamed)]}
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def ask(port: int, body: Mapping[str, Any]) -> str:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        text: str = response.read().decode()
    return text


def chunks(text: str) -> list[Any]:
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in data if line != "[DONE]"]


def _without_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_ids(each) for key, each in value.items() if key not in ("id", "created", "system_fingerprint")
        }
    return [_without_ids(each) for each in value] if isinstance(value, list) else value


def wait_for_server(process: subprocess.Popen[bytes], port: int) -> None:
    """Blocks until the server answers. Raises `RuntimeError` if it ends or takes too long."""
    for _ in range(600):
        if process.poll() is not None:
            break
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5):
            return
        time.sleep(0.5)
    raise RuntimeError("the server did not start")


def of_run(run: Path) -> dict[str, Any]:
    """Metrics and records of a run's folder, under their present names."""
    results: dict[str, Any] = {}
    for place, row in enumerate(map(json.loads, lines(run / "metrics.jsonl"))):
        results |= {f"round {place} {_present(key)}": repr(value) for key, value in row.items() if not _is_time(key)}
    results = {key: value for key, value in results.items() if not key.endswith("solver/anchor_share")}
    for name in ("interfaces", "profiles"):
        if (run / f"{name}.jsonl").exists():
            results |= {f"{name} {place}": row for place, row in enumerate(lines(run / f"{name}.jsonl"))}
    for name in ("proposals", "drafts"):
        if (run / f"{name}.jsonl").exists():
            for place, row in enumerate(map(json.loads, lines(run / f"{name}.jsonl"))):
                results |= {f"{name} {place} {at}": _proposal(each) for at, each in enumerate(row[name])}
    for path in sorted((run / "trajectories").glob("*.jsonl")):
        rows = map(json.loads, lines(path))
        results |= {f"{path.stem} {place}": row["token_ids"] for place, row in enumerate(rows)}
    for path in sorted((run / "logs").glob("round_*.eval")):
        with ZipFile(path) as log:
            names = [name for name in log.namelist() if name.startswith("tokens/")][:8]  # as many as the commit keeps
            tokens = [json.loads(log.read(name))["token_ids"] for name in names]
        results |= {f"{path.stem} {place}": ids for place, ids in enumerate(tokens)}
    return results


def _present(metric: str) -> str:
    name = OLD_NAMES.get(metric, metric)
    return f"task_{name}" if name.startswith("writer/") else name


def _proposal(row: Mapping[str, Any]) -> Any:
    """Of a rejected proposal the commit has the incumbent instead of what was written."""
    return {key: row[key] for key in ("rejection", "reward")} if row["rejection"] else row


def _is_time(key: str) -> bool:
    return key.startswith(_TIMES) or "seconds" in key or "time" in key


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def _command(tree: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ONE_AT_A_TIME}{os.pathsep}{tree}",
        "RAY_ADDRESS": "local",
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
    }
    return [sys.executable, "-c", "from seal_ray.cli import main; main()", *arguments], environment


def seal_ray(tree: Path, folder: Path, *arguments: str) -> None:
    """Runs a command of a tree in a folder. Raises `RuntimeError` with what it said where it fails."""
    command, environment = _command(tree, *arguments)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} in {folder}: {done.stdout[-1000:]}{done.stderr[-2000:]}")


def kill_after(rounds: int, tree: Path, folder: Path, run: Path, arguments: Sequence[str]) -> None:
    """Starts a training run and kills its process once so many rounds are written."""
    command, environment = _command(tree, *arguments)
    with (
        (folder / "said.txt").open("w") as said,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=said) as process,
    ):
        while process.poll() is None:
            path = run / "metrics.jsonl"
            if path.exists() and len(lines(path)) >= rounds:
                process.kill()
                return
            time.sleep(0.05)
    raise RuntimeError("the run ended before it could be killed")


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """A worktree of the repository at that commit."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--detach", "--quiet", tree, commit], cwd=ROOT, check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)


@contextmanager
def work_folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        shutil.rmtree(keep, ignore_errors=True)
        keep.mkdir(parents=True)
        yield keep.resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


if __name__ == "__main__":
    sys.exit(main())
