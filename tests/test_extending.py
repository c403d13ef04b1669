"""The page on objects of one's own: every block of it is run, through the settings that stand beside it."""

from __future__ import annotations

import ast
import asyncio
import json
import math
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml  # type: ignore[import-untyped]
from seal_ray.algorithm.curation.curation import CuratorLoop
from seal_ray.algorithm.curation.window import CuratorWindow
from seal_ray.grpo.arms import ArmGroup
from seal_ray.rollout.groups import number_arms

from envs import registry
from envs.dialogue import Protocol
from envs.errors import UserError
from envs.interface import Interface, RecoveryLevel
from envs.profile import FailureProfile
from envs.registry import Registry
from envs.toolworld import generate
from policies.curator import Proposal
from policies.engine.scripted import ScriptedEngine
from policies.models import open_model
from policies.prompting import ChatFormat
from policies.rollouts import RolloutJob, Rollouts
from policies.solver import Budgets, Solver
from policies.trajectory import Trajectory
from seal_ray.algorithm import objects
from seal_ray.algorithm.config import SealConfig, apply, make_config
from seal_ray.config import sections
from seal_ray.evaluation.suites import SUITES
from seal_ray.grpo.losses import LOSSES, Loss
from seal_ray.metrics import describe
from seal_ray.report.files import RunFolder
from tests.conftest import STARTUP
from tests.policies.scripts import collected, oracle
from tests.seal_ray.algorithm.test_curation import judging

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
SOURCES = {text.split()[1]: text for kind, text in BLOCKS if kind == "python"}
"""File name → text."""
MODULES = [name.removesuffix(".py") for name in SOURCES]
SMALL = (
    *("training.rounds=2", "training.groups=4", "training.group_size=4", "training.minibatch_groups=2"),
    *("training.warm_up=0", "curator.update_every=1", "evaluation.interval=2", "evaluation.tasks=4"),
    *("learners.num_learners=1", "learners.num_cpus_per_learner=0.5", "learners.threads=1"),
    *("engine.kind=transformers", "engine.concurrent=16"),
)
"""A run of a minute, with a learner and an env runner in processes of their own."""


def merged() -> dict[str, dict[str, Any]]:
    """The settings of all sections of the page together."""
    found: dict[str, dict[str, Any]] = {}
    for kind, text in BLOCKS:
        if kind == "yaml":
            for section, values in yaml.safe_load(text).items():
                assert not values.keys() & found.get(section, {}).keys()
                found.setdefault(section, {}).update(values)
    return found


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the page's files and their settings as mine.yaml; its modules can be imported."""
    for name, text in SOURCES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(merged()), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def config(written: Path) -> SealConfig:
    return make_config(file=written / "mine.yaml")


@pytest.fixture(scope="module")
def dialogues() -> list[Trajectory]:
    """Four dialogues that play the ground truth, and one that calls what there is not."""
    model = open_model("tiny")
    form = ChatFormat.load(model.path, model.dialect)
    tasks = [generate(seed, split="dev") for seed in range(4)]
    wrong = form.completion('<tool_call>\n{"name": "nothing", "arguments": {}}\n</tool_call>')

    async def play(answer: Callable[[Any], Any], jobs: list[RolloutJob]) -> list[Trajectory]:
        engine = ScriptedEngine(answer, context=8192, vocabulary=int(model.config["vocab_size"]))
        budgets = Budgets(prompt=4096, response=512, context=8192, steps=3 if len(jobs) == 1 else 40)
        return await collected(Rollouts(Solver(engine, form, budgets)), jobs)

    jobs = [RolloutJob(task, 0, Interface.plain(), Protocol.OFFICIAL) for task in tasks]
    right = asyncio.run(play(oracle(form, tasks), jobs))
    return [*right, *asyncio.run(play(lambda request: wrong, jobs[:1]))]


def test_every_section_of_the_table_has_a_class_of_at_most_40_lines() -> None:
    assert len(SOURCES) == 8
    for text in SOURCES.values():
        assert len(text.splitlines()) <= 41, "the file's name, and 40 lines"
        tree = ast.parse(text)
        assert ast.get_docstring(tree)
        assert sum(isinstance(node, ast.ClassDef) for node in tree.body) == 1


def test_the_settings_of_the_page_are_checked_and_pass(config: SealConfig) -> None:
    config.validate()
    assert config.to_sections()["training"]["loss"] == "reinforce:ReinforceLoss"


def test_the_reward(config: SealConfig, dialogues: list[Trajectory]) -> None:
    reward = objects.make_reward(config.section(sections.Environment))
    assert [reward(each) for each in dialogues[:4]] == [1.0] * 4
    failed = sum(call.is_error for turn in dialogues[4].trace.turns for step in turn for call in step.calls)
    assert failed
    assert reward(dialogues[4]) == pytest.approx(-0.02 * failed)


def test_the_baseline_and_the_advantage(config: SealConfig) -> None:
    found = objects.make_advantages(config.section(sections.Training))([1.0, 0.0, 0.0, 0.0])
    assert found is not None
    assert found.tolist() == pytest.approx([1 / (0.375 + 1e-3), 0.0, 0.0, 0.0])


def test_the_weight_of_anchored_rows(config: SealConfig) -> None:
    weight = objects.make_anchor_weight(config.section(sections.Training))
    rho_M = torch.tensor([0.05, 0.2, 1.8], dtype=torch.float64)
    assert weight(rho_M.log()).tolist() == pytest.approx([0.2, 0.5, 0.9])


def test_the_loss(config: SealConfig) -> None:
    loss = objects.make_loss(config.training(kl=0.25).section(sections.Training))
    logprobs_M = torch.tensor([-1.0, -2.0], dtype=torch.float64, requires_grad=True)
    advantages_M = torch.tensor([1.0, -3.0], dtype=torch.float64)
    found = loss(logprobs_M, logprobs_M.detach(), advantages_M, reference_logprobs_M=logprobs_M.detach() - 0.5)
    (gradient_M,) = torch.autograd.grad(found.loss_sum, logprobs_M)
    slope = 0.25 * (1 - math.exp(-0.5))
    assert gradient_M.tolist() == pytest.approx([-0.5 + slope, 1.5 + slope])
    assert found.sums.tokens == found.sums.ratio == 2


def test_a_loss_or_an_update_that_does_not_fit_is_refused_before_anything_starts(written: Path) -> None:
    (written / "odd.py").write_text(ODD, encoding="utf-8")
    ours = ["training.loss=odd:Capped", "training.importance_cap=2.0"]
    with pytest.raises(UserError, match=r"^training\.loss: odd:Capped must take an importance_cap of null too; "):
        make_config(overrides=ours).validate()
    theirs = ["writer.kind=learning", "writer.update=odd:Update", "environment.division=null"]
    with pytest.raises(UserError, match=r"^writer\.update: odd:Update must have the name of its loss"):
        make_config(overrides=theirs).validate()


ODD = """
from pydantic import BaseModel


class Capped:
    needs_proximal = False

    class Settings(BaseModel, extra="forbid"):
        importance_cap: float

    def __init__(self, settings):
        pass

    def __call__(self, *values, **more):
        raise NotImplementedError


class Update:
    class Settings(BaseModel, extra="forbid"):
        pass

    def __init__(self, settings):
        pass

    @property
    def loss(self):
        return "grpo"

    def __call__(self, rewards_G, rejected_G):
        return None
"""


def test_the_curators_reward_decides_which_arm_stays(written: Path) -> None:
    first, second = Interface(guidelines=("First.",)), Interface(guidelines=("Second.",))
    judged = judging(reward="weakest:WeakestReward")
    judged.window = CuratorWindow(
        number_arms([first, second]), (Proposal(first), Proposal(second), Proposal(first, rejection="No."))
    )
    judged.window.groups += [
        *(ArmGroup(arm, "base", success) for arm, success in ((0, 0.5), (1, 1.0), (2, 0.75))),
        *(ArmGroup(arm, "miss_func", success) for arm, success in ((0, 0.5), (1, 0.0), (2, 0.75))),
    ]
    verdict = judged.judge()
    assert verdict.rewards == (0.0, 0.75, 0.0)
    assert judged.incumbent == second


def test_the_curator_proposes_and_goes_on_from_its_state(config: SealConfig) -> None:
    settings = config.section(sections.Curator)
    curation = CuratorLoop(settings, objects.make_plain_curator(settings))

    def propose(round_number: int) -> RecoveryLevel:
        curation.propose(FailureProfile(), round_number=round_number, seed=0, heal=lambda: None)
        return curation.incumbent.recovery

    assert propose(0) is RecoveryLevel.NONE
    state = json.loads(json.dumps(curation.get_state()))
    state["curator"]["level"] = 2
    curation.set_state(state)
    assert propose(1) is RecoveryLevel.CLASS
    assert [each.arm for each in curation.window.groups] == []
    assert [arm.interface for arm in curation.arms[1:]] == [Interface(recovery=RecoveryLevel.CLASS)]


def test_the_suite_is_played_and_counted_beside_the_plain_one(config: SealConfig, dialogues: list[Trajectory]) -> None:
    environment, evaluation = config.section(sections.Environment), config.section(sections.Evaluation)
    suites = objects.make_suites(environment, evaluation.model_copy(update={"tasks": 3}))
    assert [task.id.endswith("t3-4_c1-2_d1-3_s2-4") for task in suites.tasks] == [False] * 3 + [True] * 4
    assert describe("evaluation/longer/success").meaning == "Success on tasks with three or four turns."
    assert SUITES.make("longer:LongerSuite").count(dialogues) == {"success": 0.8}
    counted = suites.count([])
    assert counted["longer/success"] == 0.0
    assert counted["dialogues"] == 0


def test_a_metric_that_a_suite_does_not_define_is_refused(config: SealConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    suites = objects.make_suites(config.section(sections.Environment), config.section(sections.Evaluation))
    monkeypatch.setattr(SUITES.find("longer:LongerSuite"), "count", lambda self, trajectories: {"sucess": 0.0})
    with pytest.raises(ValueError, match="'evaluation/longer/sucess' is not known; did you mean"):
        suites.count([])


def test_an_installed_package_gives_its_objects_names(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = (text for kind, text in BLOCKS if kind == "toml")
    ((group, names),) = tomllib.loads(block)["project"]["entry-points"].items()
    assert group == LOSSES.group
    points = {group: {name: path.removeprefix("my_package.") for name, path in names.items()}}
    monkeypatch.setattr(registry, "installed", lambda group: points.get(group, {}))
    losses: Registry[type[Loss]] = Registry(LOSSES.key, LOSSES.group, LOSSES.built_in)
    monkeypatch.setattr(objects, "LOSSES", losses)
    assert type(objects.make_loss(sections.Training(loss="reinforce"))).__name__ == "ReinforceLoss"


@pytest.mark.parametrize(
    ("section", "values", "sentence"),
    [
        ("environment", {"reward": "sucess"}, "environment.reward: 'sucess' is not known; did you mean 'success'?"),
        ("environment", {"reward": "careful:Reward"}, "environment.reward: 'careful:Reward' cannot be imported"),
        ("environment", {"reward_settings": {"cost": -1.0}}, "environment.reward: careful:CarefulReward: cost: -1.0"),
        ("environment", {"reward": "success"}, "environment.reward: success takes no settings, and 'cost' was given."),
        ("training", {"baseline": "meen"}, "training.baseline: 'meen' is not known; did you mean 'mean'?"),
        ("training", {"advantage": "dr_grpo"}, "training.advantage: 'dr_grpo' is not known; did you mean 'dr-grpo'"),
        ("training", {"loss_settings": {"scal": 1.0}}, "training.loss: setting of reinforce:ReinforceLoss: 'scal'"),
        (
            *("training", {"loss_settings": {"kl": 1.0}}),
            "training.loss: reinforce:ReinforceLoss: 'kl' belongs to the section; set training.kl.",
        ),
        (
            *("training", {"loss": "careful:CarefulReward", "loss_settings": {}}),
            "training.loss: careful:CarefulReward has no 'needs_proximal', which such an object needs.",
        ),
        (
            *("environment", {"reward": "ladder:LadderCurator", "reward_settings": {}}),
            "environment.reward: ladder:LadderCurator cannot be called, which such an object needs.",
        ),
        ("environment", {"reward": "careful:Field"}, "environment.reward: careful:Field is no class."),
        (
            *("environment", {"reward": "pathlib:PurePath", "reward_settings": {}}),
            "environment.reward: pathlib:PurePath cannot be called, which such an object needs.",
        ),
        (
            *("training", {"loss": "datetime:date", "loss_settings": {}}),
            "training.loss: datetime:date cannot be made (function missing required argument 'year' (pos 1))",
        ),
        ("curator", {"reward": "gains"}, "curator.reward: 'gains' is not known; did you mean 'gain'?"),
        ("curator", {"interface": "x.json"}, "curator.interface: the curator ladder:LadderCurator shows its own"),
        ("curator", {"kind": "llm"}, "curator.kind_settings: llm takes no settings beside those of the section."),
        (
            *("evaluation", {"suites": ["longer:LongerSuite"]}),
            "evaluation.suites: 'plain' must be one of them; comparisons and model cards read its success.",
        ),
        (
            *("evaluation", {"suites": ["plain"]}),
            "evaluation.suites_settings: 'longer:LongerSuite' is not one of evaluation.suites.",
        ),
        ("evaluation", {"suites": []}, "evaluation.suites: [] does not fit; it must be a list of one or more texts."),
        (
            *("training", {"loss_settings": 3}),
            "training.loss_settings: 3 does not fit; it must be a mapping from text to any value.",
        ),
    ],
)
def test_a_mistake_is_one_sentence(config: SealConfig, section: str, values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        apply(config, {section: values}).validate()
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_a_suite_of_training_tasks_is_refused(written: Path) -> None:
    text = SOURCES["longer.py"].replace("evaluation.split, limit", '"train", limit')
    (written / "leaky.py").write_text(text, encoding="utf-8")
    config = make_config(overrides=["evaluation.suites=[plain, 'leaky:LongerSuite']"])
    with pytest.raises(UserError, match=r"evaluation\.suites: toolworld_train_\S+ is trained on"):
        config.validate()


@pytest.mark.long
def test_a_run_with_all_of_them_in_the_folder_where_they_lie(written: Path, cluster: str) -> None:
    """The learner and the env runner are processes of Ray, which import the modules by themselves."""
    # Without -P Python itself would add the folder, which the installed command must do.
    command = [sys.executable, "-P", "-c", "from seal_ray.cli import main; main()", "train"]
    here = {
        "cwd": written,
        "env": {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{STARTUP}", "RAY_ADDRESS": cluster},
        "capture_output": True,
        "text": True,
    }
    words = ["--config", "mine.yaml", "--trust", *SMALL, "--name", "mine", "--wandb", "off"]
    done = subprocess.run([*command, *words], check=False, **here)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    rows = RunFolder(written / "runs" / "mine").metrics.rows()
    first, *_, last = rows
    assert 0 <= first["evaluation/longer/success"] <= 1
    assert last["evaluation/dialogues"] == 4
    learnt = [row for row in rows if row.get("solver/steps")]
    assert learnt
    assert all(row["solver/clip_fraction"] == 0.0 for row in learnt), "this loss clips nothing"
    assert {row["solver/reward"] <= row["solver/success"] for row in rows if "solver/reward" in row} == {True}
    resumed = subprocess.run([*command, "--resume", "runs/mine"], check=False, **here)  # type: ignore[call-overload]
    assert resumed.returncode == 0, resumed.stderr[-2000:]
