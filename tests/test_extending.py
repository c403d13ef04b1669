"""The page on custom objects: every block of it is run, through the settings next to it."""

import ast
import asyncio
import json
import math
import os
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml  # type: ignore[import-untyped]

from envs import registry
from envs.dialogue import Protocol
from envs.errors import UserError
from envs.interface import Interface, RecoveryLevel
from envs.profile import FailureProfile
from envs.registry import Registry
from envs.toolworld import generate
from policies.curator.base import CURATORS
from policies.models import open_model
from policies.prompting import ChatFormat
from policies.rollouts import RolloutJob, Rollouts
from policies.solver import Budgets, Solver
from policies.trajectory import Trajectory
from seal_ray.algorithm.config import SealConfig, apply, make_config
from seal_ray.evaluation.suites import SUITES, make_suites
from seal_ray.grpo.advantages import ADVANTAGES, group_advantages
from seal_ray.grpo.losses import LOSSES, OFF_POLICY_WEIGHTS, Loss
from seal_ray.grpo.rewards import REWARDS
from seal_ray.metrics import describe
from seal_ray.proposing.curator import CuratorLoop
from seal_ray.proposing.task_writer import start_task_writer_loop
from seal_ray.report.files import RunFolder
from seal_ray.rollout.types import Arm
from seal_ray.training.hint_stripped import RowLoss
from tests.conftest import STARTUP
from tests.policies.scripted_engine import ScriptedEngine
from tests.policies.scripts import collected, oracle
from tests.readme import blocks
from tests.refusal import refusal
from tests.seal_ray.proposing.proposers import PLAIN_INTERFACE, A, B, curator_loop, groups_at, propose, written

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCKS = blocks(PAGE)
SOURCES = {text.split()[1]: text for kind, text in BLOCKS if kind == "python"}
"""File name → text."""
MODULES = [name.removesuffix(".py") for name in SOURCES]
SMALL = (
    *("training.rounds=2", "training.groups=4", "training.group_size=4", "training.minibatch_groups=2"),
    *("training.warm_up=0", "curator.update_every=1", "evaluation.interval=2", "evaluation.tasks=4"),
    *("learners.num_learners=1", "learners.threads=1"),
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
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the page's files and their settings as mine.yaml; its modules can be imported."""
    for name, text in SOURCES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(merged()), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def config(files: Path) -> SealConfig:
    return make_config(file=files / "mine.yaml")


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


def test_every_file_has_one_object_in_at_most_40_lines() -> None:
    assert len(SOURCES) == 9
    for text in SOURCES.values():
        assert len(text.splitlines()) <= 41, "the file's name, and 40 lines"
        tree = ast.parse(text)
        assert ast.get_docstring(tree)
        assert sum(isinstance(node, ast.ClassDef | ast.FunctionDef) for node in tree.body) == 1


def test_the_settings_of_the_page_are_checked_and_pass(config: SealConfig) -> None:
    config.validate()
    assert config.to_sections()["training"]["loss"] == "reinforce:ReinforceLoss"


def test_the_reward(config: SealConfig, dialogues: list[Trajectory]) -> None:
    reward = REWARDS.make(config.spec.environment.reward)
    assert [reward(each) for each in dialogues[:4]] == [1.0] * 4
    failed = sum(call.is_error for turn in dialogues[4].trace.turns for step in turn for call in step.calls)
    assert failed
    assert reward(dialogues[4]) == pytest.approx(-0.02 * failed)


def test_the_advantage(config: SealConfig) -> None:
    advantage = ADVANTAGES.make(config.spec.training.advantage)
    advantages_G = group_advantages([1.0, 0.0, 0.0, 0.0], advantage=advantage)
    assert advantages_G is not None
    assert advantages_G.tolist() == pytest.approx([1 / (0.375 + 1e-3), 0.0, 0.0, 0.0])


def test_the_off_policy_weight(config: SealConfig) -> None:
    weight = OFF_POLICY_WEIGHTS.make(config.spec.training.off_policy_weight)
    rho_M = torch.tensor([0.05, 0.2, 1.8], dtype=torch.float64)
    assert weight(rho_M.log()).tolist() == pytest.approx([0.2, 0.5, 0.9])


def test_the_loss(config: SealConfig) -> None:
    training = config.training(kl=0.25).spec.training
    loss = LOSSES.make(training.loss, dict(training))
    logprobs_M = torch.tensor([-1.0, -2.0], dtype=torch.float64, requires_grad=True)
    advantages_M = torch.tensor([1.0, -3.0], dtype=torch.float64)
    losses = loss(logprobs_M, logprobs_M.detach(), advantages_M, reference_logprobs_M=logprobs_M.detach() - 0.5)
    (gradient_M,) = torch.autograd.grad(losses.loss_sum, logprobs_M)
    slope = 0.25 * (1 - math.exp(-0.5))
    assert gradient_M.tolist() == pytest.approx([-1.0 + slope, 3.0 + slope])
    assert losses.sums.tokens == losses.sums.ratio == 2


def test_the_curators_reward_decides_which_arm_stays(files: Path) -> None:
    loop = curator_loop(*written(A, B), reward="rare:REWARD")
    propose(loop)
    report = loop.close_round(0, groups_at({PLAIN_INTERFACE: 1.0, A: 0.95, B: 0.25}))
    assert loop.incumbent == Arm(B)
    first, second = (float(str(row["reward"])) for row in report.proposals)
    assert second > 0.5 > first


def test_the_curator_proposes_and_continues_from_its_state(config: SealConfig) -> None:
    section = config.spec.curator
    loop = CuratorLoop(section, CURATORS.make(section.kind, dict(section)))

    def level(round_number: int) -> RecoveryLevel:
        loop.propose(FailureProfile(), round_number=round_number, seed=0, heal=lambda: None)
        shown: RecoveryLevel = loop.incumbent.interface.recovery
        return shown

    assert level(0) is RecoveryLevel.NONE
    state = json.loads(json.dumps(loop.get_state()))
    state["proposer"]["level"] = 2
    loop.set_state(state)
    assert level(1) is RecoveryLevel.CLASS
    assert [arm.interface for arm in loop.arms[1:]] == [Interface(recovery=RecoveryLevel.CLASS)]


def test_the_task_writer_writes(config: SealConfig) -> None:
    loop = start_task_writer_loop(config.spec, None, tested=(), play=lambda _: [])
    assert loop is not None
    loop.propose(FailureProfile(), round_number=0, heal=lambda: None)
    assert len(loop.proposals) == 4
    assert 0 < len(loop.pool) <= 4
    assert {entry.specification.depth for entry in loop.pool.entries} == {1}


def test_the_suite_is_played_and_counted_alongside_the_plain_one(
    config: SealConfig, dialogues: list[Trajectory]
) -> None:
    suites = make_suites(config.spec.environment, config.spec.evaluation.model_copy(update={"tasks": 3}))
    assert [task.id.endswith("t3-4_c1-2_d1-3_s2-4") for task in suites.tasks] == [False] * 3 + [True] * 4
    assert describe("evaluation/longer/success").meaning == "Success on tasks with three or four turns."
    assert SUITES.make("longer:LongerSuite").count(dialogues) == {"success": 0.8}
    counted = suites.count([])
    assert counted["longer/success"] == 0.0
    assert counted["dialogues"] == 0


def test_a_metric_that_a_suite_does_not_define_is_refused(config: SealConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    suites = make_suites(config.spec.environment, config.spec.evaluation)
    monkeypatch.setattr(SUITES.find("longer:LongerSuite"), "count", lambda self, trajectories: {"sucess": 0.0})
    with pytest.raises(ValueError, match="'evaluation/longer/sucess' is not known; did you mean"):
        suites.count([])


def test_an_installed_package_gives_its_objects_names(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = (text for kind, text in BLOCKS if kind == "toml")
    ((group, names),) = tomllib.loads(block)["project"]["entry-points"].items()
    assert group == LOSSES.group
    points = {group: {name: path.removeprefix("my_package.") for name, path in names.items()}}
    monkeypatch.setattr(registry, "installed", lambda group: points.get(group, {}))
    losses: Registry[type[Loss]] = Registry(LOSSES.key, LOSSES.group, LOSSES.built_in)
    assert type(losses.make("reinforce", {"kl": 0.0})).__name__ == "ReinforceLoss"


@pytest.mark.parametrize(
    ("section", "values", "sentence"),
    [
        ("environment", {"reward": "sucess"}, "environment.reward: 'sucess' is not known; did you mean 'success'?"),
        ("environment", {"reward": "careful:Reward"}, "environment.reward: 'careful:Reward' cannot be imported"),
        ("environment", {"reward": "careful:COST"}, "environment.reward: careful:COST cannot be called."),
        ("training", {"advantage": "dr_grpo"}, "training.advantage: 'dr_grpo' is not known; did you mean 'dr-grpo'"),
        ("training", {"advantage": "careful:COST"}, "training.advantage: careful:COST cannot be called."),
        ("training", {"off_policy_weight": "sqt"}, "training.off_policy_weight: 'sqt' is not known; did you mean"),
        ("training", {"loss": "grop"}, "training.loss: 'grop' is not known; did you mean 'grpo'?"),
        ("curator", {"kind": "llm", "reward": "gains"}, "curator.reward: 'gains' is not known; did you mean 'gain'?"),
        ("curator", {"kind": "llm", "reward": "rare:rare"}, "curator.reward: rare:rare is no CuratorReward."),
        ("evaluation", {"suites": ["longer:LongerSuite"]}, "evaluation.suites: 'plain' must be one of them;"),
        ("evaluation", {"suites": []}, "evaluation.suites: [] does not fit; it must be a list of one or more texts."),
    ],
)
def test_a_mistake_is_one_sentence(config: SealConfig, section: str, values: dict[str, Any], sentence: str) -> None:
    assert refusal(apply(config, {section: values}).validate).startswith(sentence)


def test_a_losss_constants_are_checked(files: Path) -> None:
    settings = "class Settings(BaseModel, extra='forbid'):\n        temperature: float\n"
    (files / "odd.py").write_text(f"from pydantic import BaseModel\n\n\nclass Odd:\n    {settings}", encoding="utf-8")
    training = make_config(overrides=["training.loss=odd:Odd"]).spec.training
    with pytest.raises(UserError, match=r"^training\.loss: odd:Odd: temperature: "):
        RowLoss(training)


def test_a_suite_of_training_tasks_is_refused(files: Path) -> None:
    text = SOURCES["longer.py"].replace("evaluation.split, limit", '"train", limit')
    (files / "leaky.py").write_text(text, encoding="utf-8")
    config = make_config(overrides=["evaluation.suites=[plain, 'leaky:LongerSuite']"])
    with pytest.raises(UserError, match=r"evaluation\.suites: toolworld_train_\S+ is trained on"):
        config.validate()


def test_the_callback_is_one(files: Path) -> None:
    config: SealConfig = runpy.run_path(str(files / "watch.py"))["config"]
    assert len(config.round_callbacks) == 1


@pytest.mark.long
def test_a_run_with_all_of_them_in_the_folder_where_they_lie(files: Path, cluster: str) -> None:
    """The learner and the env runner are processes of Ray, which import the modules by themselves."""
    # Without -P Python itself would add the folder, which the installed command must do.
    command = [sys.executable, "-P", "-c", "from seal_ray.cli import main; main()", "train"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{STARTUP}", "RAY_ADDRESS": cluster}

    def run(*words: str) -> None:
        done = subprocess.run(
            [*command, *words], check=False, cwd=files, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    run("--config", "mine.yaml", "--trust", *SMALL, "--name", "mine", "--wandb", "off")
    rows = RunFolder(files / "runs" / "mine").metrics.rows()
    first, *_, last = rows
    assert 0 <= first["evaluation/longer/success"] <= 1
    assert last["evaluation/dialogues"] == 4
    learnt = [row for row in rows if row.get("solver/steps")]
    assert learnt
    assert all(row["solver/clip_fraction"] == 0.0 for row in learnt), "this loss clips nothing"
    paid = [(row["solver/reward"], row["solver/success"]) for row in rows if "solver/reward" in row]
    assert all(reward <= success for reward, success in paid)
    assert any(reward < success for reward, success in paid), "the custom reward is not success"
    run("--resume", "runs/mine")
