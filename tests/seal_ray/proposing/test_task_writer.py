"""The writer's side of a run, without Ray: windows, places, payment, learning, and its state."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from seal_ray.algorithm.tasks.authorship import NoAuthorship, TaskWriterLoop, start_task_writer_loop
from seal_ray.algorithm.tasks.held_out import HeldOut
from seal_ray.config.agents import all_engines, host_of, learning_agents, model_agents, model_of, training_of

from envs.errors import UserError
from envs.profile import FailureProfile
from envs.sources import find_task, get_source
from envs.specifications import Rejected, Specification, writable
from policies.sample import Sample
from policies.task_writer import Draft, TaskWriter
from seal_ray.algorithm.config import SealConfig, make_config
from seal_ray.config import sections
from seal_ray.grpo.rows import Row
from seal_ray.report.files import RunFolder

SOURCE = writable("toolworld")


def config(**writer: Any) -> SealConfig:
    found = SealConfig().curator(kind="none").training(rounds=8)
    return found.writer(**{"kind": "random", "specifications": 4, "depth": 2, "update_every": 2, **writer})


@dataclass(frozen=True)
class _Reward:
    reward: float


@dataclass(frozen=True)
class _Plan:
    task: str
    number: int = 0


@dataclass(frozen=True)
class _Group:
    """As much of a played group as is asked for: plain rollouts of a task, and others that do not count."""

    plan: _Plan
    rewards: Sequence[float]

    def by_arm(self) -> Mapping[int, Sequence[_Reward]]:
        return {0: [_Reward(each) for each in self.rewards], 3: [_Reward(1.0)] * 4}

    @property
    def trajectories(self) -> Sequence[_Reward]:
        return self.by_arm()[0]


@dataclass
class _Learner:
    """An agent that learns, and what it was given."""

    learns: bool = True
    batches: list[list[Row]] = field(default_factory=list)

    def learn_documents(self, rows: list[Row]) -> dict[str, float]:
        if not rows:
            return {}
        self.batches.append(rows)
        return {"writer/loss": 0.5}


class Scripted(TaskWriter):
    """Writes these drafts in every window, and keeps what it was told."""

    kind = "learning"

    def __init__(self, authorship: TaskWriterLoop, drafts: Sequence[Draft]) -> None:
        self._check = authorship.check
        self._drafts = drafts
        self.told: list[Any] = []

    async def write(self, profile: FailureProfile, *, known: Any, n: int, seed: int) -> tuple[Draft, ...]:
        del profile, n, seed
        self.told.append(known)
        return tuple(
            each
            if each.specification is None
            else Draft(each.specification, self._check(each.specification), each.sample)
            for each in self._drafts
        )


def begin(authorship: TaskWriterLoop, round_number: int = 0) -> None:
    authorship.write(FailureProfile(), round_number=round_number, heal=lambda: None)


def close(authorship: TaskWriterLoop, round_number: int, rates: Mapping[str, Sequence[float]]) -> dict[str, float]:
    groups: Any = [_Group(_Plan(task), rewards) for task, rewards in rates.items()]
    return authorship.close_round(round_number, groups)


def drafts(count: int) -> list[Draft]:
    """Drafts with tasks, and a sample each."""
    found: list[Draft] = []
    number = 0
    while len(found) < count:
        specification = SOURCE.draw(random.Random(number), depth=1)
        if not isinstance(SOURCE.compose(specification, 0), Rejected):
            sample = Sample(number, (1, 2, 3), (False, True, True), (0.0, -0.5, -0.25), (-1, 0, 0))
            found.append(Draft(specification, None, sample))
        number += 1
    return found


def test_tasks_are_written_played_and_known() -> None:
    authorship = TaskWriterLoop(config())
    stream = [f"own {number}" for number in range(16)]
    assert authorship.take_places(range(16), stream) == stream, "the pool is empty"
    begin(authorship)
    written = [each.task for each in authorship.pool.entries]
    assert len(written) == 4
    assert authorship.pool.entries[0].provenance.writer == "random"
    assert [task.id for task in authorship.tasks()] == written
    taken = authorship.take_places(range(8), stream[:8])
    assert [task for task in taken if task not in stream] == written
    assert [taken.index(task) for task in written] == [1, 3, 5, 7], "half of the places"
    assert not set(authorship.take_places(range(8, 16), stream[8:])) & set(written), "not twice in a round"
    counted = close(authorship, 0, {written[0]: [1.0, 0.0, 0.0, 0.0], "own 3": [1.0] * 4})
    assert counted["writer/specifications"] == counted["pool/tasks"] == 4
    assert counted["writer/groups"] == 1
    assert counted["writer/share"] == 0.5
    assert "writer/reward" not in counted
    assert authorship.pool.entries[0].difficulty.p == 0.25, "plain rollouts alone"
    begin(authorship, 1)
    assert len(authorship.pool) == 4, "no window begins"
    assert set(authorship.take_places(range(16, 24), stream[:8])) & set(written)
    counted = close(authorship, 1, {written[1]: [1.0, 1.0, 0.0, 0.0]})
    assert counted["writer/specifications"] == 0
    assert counted["writer/reward_best"] == 1.0
    assert len(authorship.last_pool) == 4
    assert [row["reward"] is None for row in authorship.last_drafts] == [False, False, True, True]
    begin(authorship, 2)
    assert len(authorship.pool) == 8
    assert [each.provenance.round for each in authorship.pool.entries] == [0] * 4 + [2] * 4


def test_a_writer_is_paid_and_learns_and_a_rejection_costs() -> None:
    learner: Any = _Learner()
    given = [*drafts(3), Draft(None, "specification: no.", Sample(9, (1, 2), (False, True), (0.0, -1.0), (-1, 0)))]
    writers: list[Scripted] = []

    def make(authorship: TaskWriterLoop) -> TaskWriter:
        writers.append(Scripted(authorship, given))
        return writers[0]

    authorship = TaskWriterLoop(config(update_every=1), learner, make=make)
    begin(authorship)
    tasks = [each.task for each in authorship.drafts]
    assert tasks[3] is None
    played = {str(tasks[0]): [1.0, 1.0, 0.0, 0.0], str(tasks[1]): [0.0] * 4}
    counted = close(authorship, 0, played)
    rewards = [row["reward"] for row in authorship.last_drafts]
    assert rewards == [1.0, pytest.approx(0.6065, abs=1e-4), None, 0.0]
    assert counted["writer/rejections"] == 1
    assert counted["writer/loss"] == 0.5
    (rows,) = learner.batches
    advantages = [row.advantage for row in rows]
    assert len(advantages) == 3, "what was not played is not learnt from"
    assert advantages[0] > advantages[1] > advantages[2]
    assert sum(advantages) == pytest.approx(0.0)
    # What is in the pool already is not written again.
    begin(authorship, 1)
    assert [bool(row["rejection"]) for row in authorship.last_drafts] == [True] * 4
    assert "in the pool already" in str(authorship.last_drafts[0]["rejection"])
    assert [round(known.p, 6) for known in writers[0].told[1]] == [0.5, 0.0]
    counted = close(authorship, 1, {})
    assert counted["writer/rejections"] == 4
    assert "writer/loss" not in counted, "equal rewards teach nothing"


def test_two_equal_drafts_of_a_window_are_one_task() -> None:
    twice = drafts(1) * 2
    authorship = TaskWriterLoop(config(), make=lambda each: Scripted(each, twice))
    begin(authorship)
    assert len(authorship.pool) == 1
    assert [row["rejection"] for row in authorship.last_drafts] == [
        None,
        "specification: it stands in the pool already.",
    ]


def test_a_specification_that_is_too_deep_is_rejected() -> None:
    authorship = TaskWriterLoop(config(depth=1))
    deep = SOURCE.draw(random.Random(0), depth=3)
    assert authorship.check(deep) == "specification: 3 turns are more than the 1 that this run has."
    begin(authorship)
    assert {each.specification.depth for each in authorship.pool.entries} == {1}


def test_written_and_held_out_tasks_are_of_the_categories_that_are_played() -> None:
    settings = config(specifications=12, reward="probe", probes=6).environment(categories=["base", "miss_func"])
    authorship = TaskWriterLoop(settings, play=lambda plans: [])
    begin(authorship)
    assert {each.specification.category for each in authorship.pool.entries} == {"base", "miss_func"}
    assert authorship._held_out is not None
    assert {each.category for each in authorship._held_out.specifications} <= {"base", "miss_func"}
    source = authorship.source
    assert {source.draw(random.Random(seed)).category for seed in range(20)} == {"base", "miss_func"}
    assert source.draw(random.Random(0), category="base", depth=1).category == "base"
    assert source.specification_help.endswith("Of these categories alone: base, miss_func.")
    assert source.specification_schema["properties"]["category"] == {"enum": ["base", "miss_func"]}
    assert len(SOURCE.specification_schema["properties"]["category"]["enum"]) == 4
    other = SOURCE.draw(random.Random(0), category="miss_param", depth=1)
    assert authorship.check(other) == "specification: the category miss_param is none of those that this run plays."


def test_held_out_tasks_that_a_source_cannot_make_are_told() -> None:
    class Nothing:
        def draw(self, rng: random.Random) -> Specification:
            return SOURCE.draw(rng)

        def compose(self, *_: object, **__: object) -> Rejected:
            return Rejected("specification: no.")

    source: Any = Nothing()
    with pytest.raises(UserError, match="of 2000 specifications at random 0 became tasks"):
        HeldOut(config(reward="probe", probes=2), source, apart=SOURCE.apart([]), play=lambda plans: [])


def test_a_probe_that_was_lost_at_one_end_pays_nothing() -> None:
    asked: list[int] = []

    def play(plans: Sequence[Any]) -> Any:
        asked.append(len(plans))
        rate = 0.5 * (len(asked) > 1)
        rewards = [[rate] * len(plan.seeds) for plan in plans]
        if len(asked) == 1:
            rewards[0] = []
        return [_Group(_Plan(plan.task, plan.number), found) for plan, found in zip(plans, rewards, strict=True)]

    for probes, expected in ((1, None), (3, 0.5)):
        asked.clear()
        authorship = TaskWriterLoop(config(reward="probe", probes=probes, update_every=1), play=play)
        begin(authorship)
        state = json.loads(json.dumps(authorship.get_state()))
        resumed = TaskWriterLoop(config(reward="probe", probes=probes, update_every=1), play=play)
        resumed.set_state(state)
        close(resumed, 0, {resumed.pool.entries[0].task: [0.0] * 4})
        assert resumed.last_drafts[0]["reward"] == (None if expected is None else pytest.approx(expected))


def test_it_goes_on_from_its_state_in_the_middle_of_a_window() -> None:
    def make(each: TaskWriterLoop) -> TaskWriter:
        return Scripted(each, drafts(4))

    learners: list[Any] = [_Learner(), _Learner()]
    one = TaskWriterLoop(config(), learners[0], make=make)
    begin(one)
    tasks = [str(each.task) for each in one.drafts]
    close(one, 0, {tasks[0]: [1.0, 0.0, 0.0, 1.0], tasks[1]: [0.0] * 4})
    state = json.loads(json.dumps(one.get_state()))
    other = TaskWriterLoop(config(), learners[1], make=make)
    other.set_state(state)
    assert json.loads(json.dumps(other.get_state())) == state
    stream = [f"own {number}" for number in range(8)]
    found = []
    for each in (one, other):
        begin(each, 1)
        places = each.take_places(range(8), stream)
        counted = close(each, 1, {tasks[1]: [1.0] * 4, tasks[2]: [1.0, 0.0, 0.0, 0.0]})
        found.append((places, counted, each.last_drafts, each.last_pool, each.get_state()))
    assert found[0] == found[1]
    rows = [[row.advantage for row in learner.batches[0]] for learner in learners]
    assert rows[0] == rows[1]
    assert [find_task(task).id for task in tasks] == tasks


def test_the_probe_reward_plays_held_out_tasks_at_both_ends_of_a_window() -> None:
    asked: list[list[str]] = []

    def play(plans: Sequence[Any]) -> Any:
        asked.append([plan.task for plan in plans])
        rate = float(len(asked) > 1)
        return [_Group(_Plan(plan.task, plan.number), [rate] * len(plan.seeds)) for plan in plans]

    authorship = TaskWriterLoop(config(reward="probe", probes=3, update_every=1), play=play)
    begin(authorship)
    written = [each.task for each in authorship.pool.entries]
    close(authorship, 0, {written[0]: [0.0] * 4})
    assert len(asked) == 2
    assert asked[0] == asked[1]
    assert not set(asked[0]) & set(written)
    assert authorship.last_drafts[0]["reward"] == pytest.approx(1.0)
    begin(authorship, 1)
    close(authorship, 1, {})
    assert len(asked) == 3, "the end of a window is the begin of the next"


def test_nobody_writes_by_default() -> None:
    nobody = start_task_writer_loop(SealConfig(), None, tested=(), play=lambda _: ())
    assert isinstance(nobody, NoAuthorship)
    assert nobody.take_places(range(2), ["a", "b"]) == ["a", "b"]
    assert nobody.close_round(0, []) == nobody.get_state() == {}
    started = start_task_writer_loop(config(), None, tested=get_source("bfcl").split().dev[:5], play=lambda _: ())
    assert isinstance(started, TaskWriterLoop)


def test_three_agents_learn_each_with_its_own_settings() -> None:
    three = make_config(["seal-genenv"])
    assert learning_agents(three) == model_agents(three) == ("solver", "curator", "writer")
    assert all_engines(three) == 3
    assert training_of(three, "writer").loss == "rwr"
    assert training_of(three, "curator").loss == training_of(three, "solver").loss == "grpo"
    assert model_of(three, "writer").context == 3072
    assert model_of(three, "writer").model == "tiny-writer"
    shared = three.solver(lora_rank=4).writer(model=None)
    assert all_engines(shared) == 1
    assert host_of(shared, "writer") == host_of(shared, "curator") == "solver"
    assert model_of(shared, "writer").lora_rank == 4
    own = shared.writer(model="tiny-writer", lora_rank=2)
    assert all_engines(own) == 2
    assert model_of(own, "writer").lora_rank == 2


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"kind": "lerning"}, "writer.kind: 'lerning' is not known; did you mean 'learning'?"),
        ({"kind": "learning", "reward": "alfa"}, "writer.reward: 'alfa' is not known; did you mean 'alpha'?"),
        ({"kind": "learning", "update": "ppo"}, "writer.update: 'ppo' is not known"),
        ({"kind": "learning", "reward_settings": {"beta": -1.0}}, "writer.reward: alpha: beta: -1.0"),
        (
            {"kind": "learning", "temperature": 0.5},
            "writer.temperature: a writer that learns samples at temperature 1.",
        ),
        ({"kind": "learning", "specifications": 1}, "writer.specifications: a writer that learns needs 2"),
        ({"kind": "learning", "response": 4096}, "writer.response: 4096 of 3072 tokens leaves no room for a prompt."),
        ({"kind": "llm", "model": "/nowhere"}, "writer.model: "),
        ({"kind": "random", "filtering": 0.5}, "writer.filtering: 0.5"),
    ],
)
def test_settings_that_do_not_fit_are_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as found:
        make_config(["vanilla"]).writer(**settings).validate()
    assert str(found.value).startswith(sentence)


def test_a_source_without_specifications_takes_no_writer() -> None:
    with pytest.raises(UserError, match="'bfcl' composes no tasks from specifications"):
        make_config(["random-tasks"]).environment(source="bfcl", difficulty=None).validate()


@pytest.mark.parametrize(
    "preset", ["static-tasks", "random-tasks", "genenv", "genenv-frozen", "genenv-placebo", "seal-genenv"]
)
def test_presets_of_writers_differ_from_those_without_in_the_writer_alone(preset: str) -> None:
    found = make_config([preset])
    if preset != "genenv-placebo":  # it needs the folder of a run
        found.validate()
    plain = make_config(["coevolved" if preset == "seal-genenv" else "vanilla"]).to_sections()
    expected = {
        "static-tasks": "static",
        "random-tasks": "random",
        "genenv-frozen": "llm",
        "genenv-placebo": "shuffled",
    }.get(preset, "learning")
    assert found.section(sections.Writer).kind == expected
    mine = found.to_sections()
    mine.pop("writer")
    plain.pop("writer")
    assert mine == plain


def recorded(folder: Path, *, windows: int = 4, update_every: int = 2, seed: int = 0) -> Path:
    """A run in which a writer wrote two specifications a window, one of which could not be read."""
    run = RunFolder(folder / f"run-seed{seed}")
    run.write_config({"writer": {"update_every": update_every}})
    for number in range(1, 1 + windows * update_every):
        rng = random.Random(f"{seed} {(number - 1) // update_every}")
        written = [{"specification": SOURCE.draw(rng, depth=1).dump()}, {"specification": None}]
        run.drafts.append({"round": number, "drafts": written})
    return run.path


def test_the_placebo_plays_the_specifications_of_another_run_in_other_windows(tmp_path: Path) -> None:
    recorded(tmp_path, seed=5)
    settings = config(kind="shuffled", recorded=f"{tmp_path}/run-seed{{seed}}")
    settings.seed = 5
    settings.validate()
    authorship = TaskWriterLoop(settings)
    rows: list[Any] = RunFolder(tmp_path / "run-seed5").drafts.rows()
    texts = [row["drafts"][0]["specification"] for row in rows[::2]]
    found: list[Any] = []
    for window in range(4):
        begin(authorship, 2 * window)
        assert [each.draft.specification is None for each in authorship.drafts] == [False, True]
        assert all(entry.provenance.writer == "shuffled" for entry in authorship.pool.entries)
        found.append(authorship.last_drafts[0]["specification"])
        close(authorship, 2 * window, {})
        close(authorship, 2 * window + 1, {})
    assert sorted(found) == sorted(texts)
    assert all(one != other for one, other in zip(found, texts, strict=True))


@pytest.mark.parametrize(
    ("run", "given", "sentence"),
    [
        ({}, {"recorded": None}, "writer.recorded: shuffled needs the folder of a run"),
        ({}, {"recorded": "nowhere"}, "writer.recorded: 'nowhere' is no folder of a run in which tasks were written."),
        ({"update_every": 3}, {}, "writer.update_every: 2 is given, and the windows of "),
        ({"windows": 3}, {}, "writer.recorded: "),
        ({}, {"specifications": 1}, "writer.specifications: 1 is given, and a window of "),
    ],
)
def test_a_recorded_run_that_does_not_fit_is_one_sentence(
    run: dict[str, Any], given: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    settings = config(kind="shuffled", **{"recorded": str(recorded(tmp_path, **run)), **given})
    with pytest.raises(UserError) as found:
        settings.validate()
    assert str(found.value).startswith(sentence)


def test_a_recorded_file_is_hostile_input(tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    lines = ('{"round": 1, "drafts": [7]}', '{"round": "1", "drafts": []}', '{"round": 1, "drafts": {}}', "[1]", "{")
    for line in lines:
        (folder / "drafts.jsonl").write_text(line + "\n", encoding="utf-8")
        with pytest.raises(UserError):
            config(kind="shuffled", recorded=str(folder)).validate()
    with pytest.raises(UserError, match="1 window is too few"):
        config(kind="shuffled", recorded=str(recorded(tmp_path / "one"))).training(rounds=2).validate()
