"""The README's demo, which is a comparison, and the pages' sweep, run as written but small.

Engines are on Transformers, which start sooner.
"""

import csv
import re
import shutil
from pathlib import Path

import pytest

from policies import tiny
from seal_ray.report.files import RunFolder
from tests.processes import seal_ray
from tests.readme import example

pytestmark = pytest.mark.long

SMALL = (
    *("--rounds", "1", "training.groups=4", "training.group_size=2", "training.minibatch_groups=4"),
    *("evaluation.tasks=4", "evaluation.interval=1", "curator.update_every=1", "learners.threads=1"),
    "env_runners.num_env_runners=0",
)


def test_the_demo_compares_two_arms_and_ends_with_the_path_of_its_page(cluster: str, tmp_path: Path) -> None:
    shutil.copytree(tiny.FOLDER, tmp_path / "weights")  # the cluster has another working directory
    options = (*SMALL, "--name", "it", "engine.kind=transformers", "curator.engine=transformers")
    said = seal_ray(
        "demo", "solver.model=weights", *options, cwd=tmp_path, RAY_ADDRESS=cluster, COLUMNS="80"
    ).splitlines()
    assert "2 of 2 trials done" in "\n".join(said)
    assert said[-1].startswith("open runs/it/report.html in a browser: ")
    assert (tmp_path / "runs" / "it" / "report.html").is_file()
    for trial in (tmp_path / "runs" / "it" / "trials").iterdir():
        before, after = RunFolder(trial).metrics.rows()
        assert "evaluation/success" in before
        assert after["solver/rollouts"] == 8


@pytest.mark.only_by(target="long")
def test_a_sweep_leaves_a_preset_to_train(cluster: str, tmp_path: Path) -> None:
    command = example("seal-ray", "sweep", "--trials", "16")
    options = (*SMALL, "--trials", "1", "--name", "one", "engine.kind=transformers")
    seal_ray(*command, *options, cwd=tmp_path, RAY_ADDRESS=cluster)
    with (tmp_path / "runs" / "one" / "results.csv").open(encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == 1
    train = example("seal-ray", "train", "--preset", "runs/NAME/best.yaml", but={"NAME": "one"})
    assert "rounds: 1" in seal_ray(*train, "--dry-run", cwd=tmp_path, RAY_ADDRESS=cluster)


@pytest.mark.only_by(target="long")
def test_a_table_of_the_paper_is_reproduced_and_the_same_command_resumes(cluster: str, tmp_path: Path) -> None:
    options = (*SMALL, "--seeds", "1", "--name", "main", "engine.kind=transformers")
    command = ("reproduce", "main", "--model", "tiny", *options)
    said = seal_ray(*command, cwd=tmp_path, RAY_ADDRESS=cluster, COLUMNS="200")
    assert "2 of 2 trials done" in said
    again = seal_ray(*command, cwd=tmp_path, RAY_ADDRESS=cluster, COLUMNS="200")
    tables = [re.findall(r"(before training|vanilla|seal) +│ +– +│ +([\d.]+)", text) for text in (said, again)]
    assert [arm for arm, _ in tables[0]] == ["before training", "vanilla", "seal"]
    assert tables[0] == tables[1], "nothing is trained twice"
    assert "344 of 400" in again
    refused = seal_ray(*command, "training.lr=1e-5", cwd=tmp_path, RAY_ADDRESS=cluster, code=2)
    assert "runs/main/tiny has other settings" in refused
