"""The examples run, in a process of their own, and say what they did."""

import json
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from envs.errors import UserError
from envs.interface import Interface
from envs.trusting import file_of, import_names
from seal_ray.algorithm.checks import check_run
from seal_ray.algorithm.config import make_config
from seal_ray.config.presets import preset_names
from tests.processes import seal_ray

ROOT = Path(__file__).parent.parent
ROUND = ROOT / "examples" / "round.py"
OWN = ROOT / "examples" / "own_source.py"


@pytest.mark.long
@pytest.mark.only_by(target="long")
def test_a_round_is_played_learnt_and_played_again_without_ray() -> None:
    program = (
        "import asyncio, runpy, sys\n"
        f"room = runpy.run_path({str(ROUND)!r}, run_name='room')\n"
        "room['main'].__globals__.update(GROUPS=4, GROUP_SIZE=6)\n"
        "asyncio.run(room['main']())\n"
        "print('loaded:', *(name for name in ('ray', 'vllm') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    said = done.stdout
    lines = re.findall(r"^(before|after)\s+(plain|guided)\s+success +[\d.]+%", said, re.MULTILINE)
    assert lines == [(when, shown) for when in ("before", "after") for shown in ("plain", "guided")]
    rows, dialogues, tokens = map(int, re.findall(r"learnt from (\d+) of (\d+) dialogues, (\d+) sampled", said)[0])
    assert 0 < rows <= dialogues == 24
    assert tokens > rows
    (furthest,) = re.findall(r"differed by ([\d.e+-]+) at most", said)
    assert float(furthest) < 1e-3
    assert said.splitlines()[-1] == "loaded:"


@pytest.mark.long
@pytest.mark.only_by(target="long")
def test_a_benchmark_of_one_s_own_needs_no_line_elsewhere(cluster: str, tmp_path: Path) -> None:
    """Played and trained on, from the folder of its file. The tutorial evaluates and compares such a benchmark."""
    shutil.copy(OWN, tmp_path)
    source = ("--env", f"{OWN.stem}:SOURCE")
    small = ("training.groups=6", "training.group_size=4", "training.minibatch_groups=2", "evaluation.tasks=null")
    settings = (f"environment.source={OWN.stem}:SOURCE", "engine.kind=transformers", *small)

    said = partial(seal_ray, cwd=tmp_path, RAY_ADDRESS=cluster)

    rows = [json.loads(line) for line in said("tasks", *source, "--json").splitlines()]
    assert Counter(row["part"] for row in rows) == {"train": 5, "dev": 2, "test": 3}
    for name in {row["category"]: row["id"] for row in rows}.values():
        assert "success" in said("play", name, *source, "--oracle"), name

    shown = said("train", *settings, "training.rounds=1", "--name", "own")
    assert re.search(r"evaluation, plain interface: \d+ % success \(\d+ % told, \d+ % cannot\)", shown)
    run = tmp_path / "runs" / "own"
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert [row["round"] for row in metrics] == [0, 1]
    assert all(row["solver/rollouts"] == 24 and not row["diagnosis/faults"] for row in metrics[1:])
    assert {"solver/success/told", "solver/success/asked", "solver/success/cannot"} <= set(metrics[-1])


@pytest.mark.parametrize("preset", [*preset_names("method"), "tiny-rare", "smollm2-135m-rare"])
def test_every_preset_takes_the_benchmark_by_its_import_path_alone(
    preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(OWN.parent)
    spec = make_config([preset], overrides=[f"environment.source={OWN.stem}:SOURCE"]).spec
    if preset == "genenv-placebo":
        with pytest.raises(UserError, match=r"^task_writer.recorded: shuffled needs the folder of a run"):
            check_run(spec)
    else:
        check_run(spec)


@pytest.mark.parametrize(("example", "most"), [(ROUND, 150), (OWN, 240)], ids=lambda each: getattr(each, "stem", None))
def test_a_reader_takes_it_in_at_one_go(example: Path, most: int) -> None:
    assert len(example.read_text(encoding="utf-8").splitlines()) <= most


EXPERIMENTS = sorted((ROOT / "examples" / "experiments").rglob("*.yaml"))


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_an_arm_of_an_experiment_can_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    config = make_config(["tiny-rare", str(path)])
    for name in import_names(config.to_sections()):
        assert file_of(name) == path.parent / f"{name.partition(':')[0].rpartition('.')[2]}.py"
    check_run(config.spec)


def test_words_of_a_shuffled_guideline_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    shuffled = import_module("examples.experiments.curator.controls").shuffled
    text = "If no listed tool fits the request, say so."
    (found,) = shuffled(Interface(guidelines=(text,)), random.Random(1)).guidelines
    assert sorted(found.split()) == sorted(text.split())
    assert found != text
