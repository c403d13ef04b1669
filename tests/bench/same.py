"""`python -m tests.bench.same COMMIT`: does the code as it stands do what it did at that commit, to the last bit?

The same commands with the same seeds are run on both, in a folder each: training of six rounds with several curators
and with LoRA, a run that is killed and resumed, a comparison of two arms, and an evaluation. Metrics without times,
records and exported weights must be equal.

Both play one dialogue and compute one request at a time (`one_at_a_time/`): what an engine computes together is a
matter of time, and decides the last bit of a log-prob. How many tokens of a prompt came from its cache is not compared.

In the cases coevolved and upgraded one of the log-probs that vLLM scores has two values, 1e-7 apart, in runs of one
commit too: run such a case again where curator/loss, ratio_first_error and gradient_norm of one round alone differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ONE_AT_A_TIME = Path(__file__).parent / "one_at_a_time"
SMALL = (
    *("training.rounds=6", "training.groups=4", "training.group_size=4", "training.minibatch_groups=2"),
    *("training.warm_up=0", "training.checkpoint_every=2", "evaluation.interval=3", "evaluation.tasks=8"),
    *("engine.concurrent=1", "learners.threads=1", "curator.plain_share_end=0.5"),
)
_TIMES = ("perf/",)
"""Metrics that are times, or follow from them."""

Run = Callable[[Path, Sequence[str]], None]


@dataclass(frozen=True)
class Case:
    """A case: its arguments to `seal-ray train`, and whether the run is killed on the way and resumed.

    An `upgraded` run is begun by the earlier commit and resumed by the other.
    """

    arguments: Sequence[str]
    killed: bool = False
    upgraded: bool = False


LORA = ("solver.lora_rank=4", "solver.lora_alpha=8")
CASES: Mapping[str, Case] = {
    "vanilla": Case(("--preset", "vanilla")),
    "fixed": Case(("--preset", "fixed")),
    "rules": Case(("--preset", "rules")),
    "coevolved": Case(("--preset", "coevolved")),
    "lora": Case(("--preset", "coevolved", *LORA)),
    "killed": Case(("--preset", "rules"), killed=True),
    "upgraded": Case(("--preset", "coevolved"), killed=True, upgraded=True),
}
OTHERS = ("compare", "evaluate")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", help="what the code is compared with")
    parser.add_argument("--case", action="append", choices=[*CASES, *OTHERS], help="this case alone")
    parser.add_argument("--now", help="compare this commit instead of the code as it stands")
    parser.add_argument("--keep", type=Path, help="leave the runs in this folder")
    given = parser.parse_args()
    differences = 0
    now_tree = checked_out(given.now) if given.now else nullcontext(ROOT)
    with checked_out(given.commit) as before, now_tree as now, work_folder(given.keep) as work:
        for name in given.case or [*CASES, *OTHERS]:
            started = time.monotonic()
            found = []
            for side, tree in (("before", before), ("now", now)):
                folder = work / name / side
                folder.mkdir(parents=True)
                found.append(outcome(name, tree, folder, earlier=before))
            unlike = sorted(key for key in {*found[0], *found[1]} if found[0].get(key) != found[1].get(key))
            differences += bool(unlike)
            said = f"{len(found[0])} results equal" if not unlike else f"DIFFERENT: {', '.join(unlike[:8])}"
            print(f"{name:10} {said} ({time.monotonic() - started:.0f} s)", flush=True)
    return int(bool(differences))


def outcome(name: str, tree: Path, folder: Path, *, earlier: Path) -> dict[str, Any]:
    """The results of a case on a tree, by name. `earlier` is the tree that begins an upgraded run."""
    if name == "evaluate":
        seal_ray(tree, folder, "evaluate", "--limit", "12", "--out", "out", "--seeds", "2", "--temperature", "1.0")
        return {
            f"dialogue {place}": row for place, row in enumerate(sorted(lines(folder / "out" / "trajectories.jsonl")))
        }
    if name == "compare":
        arms = ("--arms", "vanilla,fixed", "--seeds", "2", "--rounds", "2", "--name", "run")
        seal_ray(tree, folder, "compare", *arms, *(each for each in SMALL if "rounds" not in each))
        runs = sorted(path.parent for path in (folder / "runs" / "run").rglob("metrics.jsonl"))
        assert len(runs) == 4, runs
        return {f"{number} {key}": value for number, run in enumerate(runs) for key, value in of_run(run).items()}
    case = CASES[name]
    arguments = ("train", *case.arguments, *SMALL, "--seed", "7", "--name", "run", "--wandb", "off")
    run = folder / "runs" / "run"
    if case.killed:
        kill_after(4, earlier if case.upgraded else tree, folder, run, arguments)
        seal_ray(tree, folder, "train", "--resume", str(run), "--wandb", "off")
    else:
        seal_ray(tree, folder, *arguments)
    seal_ray(tree, folder, "export", str(run), "--out", "exported")
    weights = sorted((folder / "exported").glob("*.safetensors"))
    assert weights, "nothing was exported"
    return {
        **of_run(run),
        **{f"weights {each.name}": hashlib.sha256(each.read_bytes()).hexdigest() for each in weights},
    }


def of_run(run: Path) -> dict[str, Any]:
    """Metrics and records of a run's folder."""
    found: dict[str, Any] = {}
    for place, row in enumerate(map(json.loads, lines(run / "metrics.jsonl"))):
        found |= {f"round {place} {key}": repr(value) for key, value in row.items() if not _is_time(key)}
    for name in ("interfaces", "profiles", "proposals"):
        if (run / f"{name}.jsonl").exists():
            found |= {f"{name} {place}": row for place, row in enumerate(lines(run / f"{name}.jsonl"))}
    for path in sorted((run / "trajectories").glob("*.jsonl")):
        found |= {f"{path.name} {place}": _without_cached(row) for place, row in enumerate(lines(path))}
    return found


def _without_cached(line: str) -> str:
    row = json.loads(line)
    return json.dumps({**row, "sampled": [[begin, end] for begin, end, _ in row["sampled"]]})


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
        # Earlier commits built the agents' adapters in the order of a set; with this seed it is the present order.
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
