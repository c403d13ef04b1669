"""The guides' blocks, run in order in one fresh folder a page; each run takes one small round (`make guides`).

On the path `seal-ray` is a stand-in: it runs the command with less to do, shows the plan alone of a run of a large
model, and leaves out what needs a model of the hub, a key, data, or a user who ends it, as are all other programs.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TABLE
from tests.processes import PROGRAM
from tests.readme import ROOT, blocks

pytestmark = [pytest.mark.long, pytest.mark.only_by(target="guides")]

ONE_ROUND = (
    *("--rounds", "1", "training.groups=4", "training.group_size=2", "training.minibatch_groups=4"),
    *("training.checkpoint_every=1", "evaluation.tasks=2", "env_runners.num_env_runners=0"),
    "engine.kind=transformers",
)
LESS: dict[str, tuple[str, ...]] = {
    "train": ONE_ROUND,
    "demo": ONE_ROUND,
    "compare": (*ONE_ROUND, "--seeds", "1"),
    "preregister": (*ONE_ROUND, "--seeds", "1"),
    "reproduce": (*ONE_ROUND, "--seeds", "1"),
    "sweep": (*ONE_ROUND, "--rounds", "2", "evaluation.interval=1", "--trials", "2"),
    "evaluate": ("--limit", "2", "--response", "32"),
    "exam": ("--limit", "2", "--response", "32"),
    "warm-start": ("--tokens", "4000", "--tasks", "0", "--held-out", "1"),
}
"""By command: words that make it small."""
OF_A_RUN = ("--resume", "--report", "--merge")
"""Options of a command that reads its settings from a folder and takes no others."""
LARGE = ("qwen2.5", "Qwen/", "one-gpu", "num_gpus", "smollm2")
"""A word with one of these names a model whose runs take a GPU, or minutes on a CPU."""
LEFT_OUT = {"--user-model": "a key", "api-bank": "data", "--embeddings": "the hub", "random-7b": "a GPU"}
"""By part of a word: what the command needs that tests do not have."""
OF_RUNS = ("train", "compare", "sweep", "demo")
OTHERS = ("python", "make")
"""Other programs on the pages."""

GUIDES = ("training", "comparing", "sweeps", "evaluating", "ood", "gpu", "sources", "tasks", "models")
"""`serving`, `jobs` and `extending` have tests of their own."""
BEFORE = {
    "comparing": "seal-ray compare --arms vanilla,rules --name first",
    "evaluating": "seal-ray train",
    "ood": "seal-ray train",
    "sources": f"cp -r {ROOT / 'examples'} .",
    "sweeps": "echo 'parameters: {training.lr: {values: [1e-3]}}' > points.yaml",
}
"""By page: a command before the first block."""
STAND_INS = {
    "ood": {
        "runs/written-tasks/trials/coevolved-seed7": "runs/NAME",
        "runs/coevolved-0/trials/coevolved-seed0": "smollm2-135m-rare",
        "runs/warm ": "smollm2-135m-warm ",
    },
    "tasks": {"runs/A runs/B runs/C": "runs/NAME"},
    "training": {"--task TASK": "--task toolworld_dev_miss_func_000001_t1-2_c1-2_d1-3_s2-4", "--round 5": "--round 1"},
}
"""By page: names that a reader replaces, and their replacements."""


def stand_in(program: str, words: list[str]) -> None:
    """The program that the test puts on the path: says on the standard error what it does with the command."""
    found = shorter(words) if program == "seal-ray" else "no command of ours"
    said = " ".join([program, *words])
    if isinstance(found, str):
        print(f"left out ({found}): {said}", file=sys.stderr)
        return
    print(f"{'planned' if '--dry-run' in found else 'run'}: {said}", file=sys.stderr, flush=True)
    os.execv(PROGRAM[0], [*PROGRAM, *found])


def shorter(words: list[str]) -> list[str] | str:
    """Words of a smaller command; or, as a string, why it is left out."""
    command, *rest = words
    if command == "view":
        return "its user ends it"
    for part, need in LEFT_OUT.items():
        if any(part in word for word in rest):
            return need
    if any(part in word for part in LARGE for word in rest) or (command == "reproduce" and "--model" not in rest):
        if command in (*OF_RUNS, "reproduce"):
            return [*words, "--dry-run"]
        if "smollm2" not in " ".join(rest):
            return "a GPU"
    if any(option in rest for option in OF_A_RUN):
        return words
    if "--preregistered" in rest:
        return [*words, "--seeds", "1"]
    new = command in OF_RUNS and not {"--name", "--dry-run"} & set(rest)
    name = ("--name", "NAME") if new and not Path("runs/NAME").exists() else ()
    less = [*LESS.get(command, ()), *name]
    if "grid" in rest:  # its points are its trials
        less = less[: less.index("--trials")]
    if any("genenv" in word for word in rest):  # two windows, of a round each
        less += ["--rounds", "2", "task_writer.update_every=1"]
    return [*words, *less]


def commands(folder: Path) -> Path:
    """A new folder with the programs, for the path."""
    bin_folder = folder / ".venv" / "bin"
    bin_folder.mkdir(parents=True)
    for program in ("seal-ray", *OTHERS):
        script = bin_folder / program
        script.write_text(
            f"#!{sys.executable}\nimport sys\nfrom tests.test_guides import stand_in\n"
            f"stand_in({program!r}, sys.argv[1:])\n"
        )
        script.chmod(0o755)
    return bin_folder


@pytest.mark.parametrize("page", GUIDES)
def test_the_blocks_of_a_guide_run(page: str, cluster: str, tmp_path: Path, record_property: Any) -> None:
    script = ["set -e", BEFORE.get(page, "")]
    for language, content in blocks((ROOT / "docs" / f"{page}.md").read_text("utf-8")):
        if language == "yaml":
            (tmp_path / "space.yaml").write_text(content, "utf-8")
        elif language in ("", "bash"):
            script.append(content)
    text = "\n".join(script)
    for name, other in STAND_INS.get(page, {}).items():
        assert name in text
        text = text.replace(name, other)
    path = f"{commands(tmp_path)}:/usr/bin:/bin"
    paths = os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])
    environment = {**os.environ, "PATH": path, "RAY_ADDRESS": cluster, "PYTHONPATH": paths}
    done = subprocess.run(
        ["bash", "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    did = re.findall(r"^(run|planned|left out)\b", done.stderr, re.MULTILINE)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "run" in did or "planned" in did
    record_property(TABLE, f"{page}: " + ", ".join(f"{did.count(each)} {each}" for each in dict.fromkeys(did)))
    for line in done.stderr.splitlines():
        if line.startswith("left out"):
            record_property(TABLE, line)
