"""`seal-ray compare` as its user meets it: one sentence for a mistake, and redrawing."""

import re
from pathlib import Path

import pytest
import ray

from seal_ray.algorithm.config import make_config
from seal_ray.algorithm.seal import Seal
from seal_ray.config.presets import preset_names
from seal_ray.report.files import RunFolder
from tests.command_line import Refusal, RunMain
from tests.refusal import refusal
from tests.tuning.comparison.folders import constant, make_comparison, play
from tuning.comparison.plan import ComparisonPlan, check_plan, make_plan
from tuning.running import last_error, main_process_cpus
from tuning.trial import with_main

ARMS = ("--arms", "vanilla,rules")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "--arms: none given"),
        (["--arms", ","], "--arms: none given"),
        (["--arms", "vanilla,rulse"], "--arms: 'rulse' is not known; did you mean 'rules'"),
        (["--arms", "tiny"], "--arms: 'tiny' is not known"),
        (["--arms", "vanilla,rules,vanilla"], "--arms: 'vanilla' is there twice"),
        ([*ARMS, "--seeds", "0"], "--seeds: 0 is not possible"),
        ([*ARMS, "--rounds", "0"], "training.rounds: 0"),
        ([*ARMS, "--preset", "seal"], "--preset: 'seal' is not known"),
        ([*ARMS, "--baseline", "fixed"], "--baseline: 'fixed' is not known; allowed are vanilla, rules"),
        ([*ARMS, "training.round=3"], "did you mean 'rounds'"),
        ([*ARMS, "training.groups=0"], "training.groups: 0"),
        ([*ARMS, "evaluation.interval=0"], "evaluation.interval: 0 leaves nothing to compare"),
        ([*ARMS, "--runs", "/", "--name", "tmp"], "exists; resume it with seal-ray compare --resume"),
        (["--resume", "/nowhere"], "/nowhere is no comparison"),
        (["--report", "/nowhere"], "/nowhere is no comparison"),
        (["--resume", "a", "--seeds", "3"], "--resume: it uses the stored settings"),
        (["--report", "a", "training.lr=1"], "--report: it uses the stored settings"),
        (["--resume", "a", "--threshold", "40"], "--resume: it uses the stored settings"),
        (["--resume", "a", "--first-seed", "4"], "--resume: it uses the stored settings"),
        (["--merge"], "--merge: give the folders of comparisons"),
        (["--merge", "a", "--storage", "s3://b"], "--merge: it joins finished trials"),
        (["--merge", "/nowhere"], "/nowhere is no comparison"),
        (["--report", "a", "--resume", "a"], "--resume: it uses the stored settings"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_started(
    arguments: list[str], sentence: str, check_refused: Refusal
) -> None:
    check_refused("compare", *arguments, sentence=sentence)


def test_presets_of_ones_own_are_arms_by_the_names_of_their_files(tmp_path: Path) -> None:
    own = tmp_path / "often.yaml"
    own.write_text("kind: method\nlike: rules\nabout: Often.\nsections:\n  curator: {update_every: 1}\n", "utf-8")
    plan = make_plan(["vanilla", str(own)], seeds=2, baseline="vanilla")
    assert list(plan.arms) == ["vanilla", "often"]
    assert plan.arms["often"].to_sections()["curator"]["update_every"] == 1
    assert plan.abouts["often"] == "Often."
    check_plan(plan, weights=False)
    small = tmp_path / "my small.yaml"
    small.write_text("kind: model\nlike: tiny\nabout: Small.\nsections:\n  solver: {temperature: 0.5}\n", "utf-8")
    (arm,) = make_plan(["vanilla"], seeds=1, model=str(small)).arms.values()
    assert arm.to_sections()["solver"]["temperature"] == 0.5
    for name, kind, option in (
        ("rules.yaml", "method", "arms"),
        ("-x.yaml", "method", "arms"),
        ("large.yaml", "model", "arms"),
        ("small.yaml", "method", "preset"),
    ):
        other = tmp_path / name
        other.write_text(f"kind: {kind}\nabout: x\nsections: {{}}\n", "utf-8")
        arms = ["vanilla", *([str(other)] if option == "arms" else [])]
        model = str(other) if option == "preset" else None
        assert re.match(f"--{option}: .*{name}", refusal(make_plan, arms, seeds=1, model=model))


def test_a_comparison_that_was_moved_or_broken_is_one_sentence(tmp_path: Path, run_main: RunMain) -> None:
    out = str(tmp_path)
    make_comparison(tmp_path, folder="/elsewhere")
    assert "was started as /elsewhere; move it back" in run_main("compare", "--resume", out, code=2)
    make_comparison(tmp_path)
    assert "stopped before its first trial" in run_main("compare", "--resume", out, code=2)
    (tmp_path / "comparison.yaml").write_text("arms: 3\n", encoding="utf-8")
    assert "cannot be read as a comparison" in run_main("compare", "--report", out, code=2)
    make_comparison(tmp_path)
    trial = next((tmp_path / "trials").iterdir())
    (trial / "config.yaml").write_text("{", encoding="utf-8")
    assert "config.yaml is not valid YAML (line 1:" in run_main("compare", "--report", out, code=2)


def test_a_report_is_drawn_again_without_running_anything(tmp_path: Path, run_main: RunMain) -> None:
    make_comparison(tmp_path, seeds=1, folder="/moved/from")
    play(tmp_path, "vanilla", 0, constant(0.25))
    started = ray.is_initialized()
    said = run_main("compare", "--report", str(tmp_path))
    assert "25.0" in said
    assert "[n/a]" in said
    assert "rules-seed0 is in no number: not started after 0 rounds" in said
    assert (tmp_path / "report.md").is_file()
    assert ray.is_initialized() == started


def test_a_plan_has_its_overrides_seeds_and_baseline() -> None:
    plan = make_plan(["vanilla", "fixed", "rules"], seeds=2, rounds=3, overrides=["training.lr=0.001"])
    check_plan(plan, weights=False)
    assert (plan.baseline, plan.rounds) == ("vanilla", 3)
    assert {config.to_sections()["training"]["lr"] for config in plan.arms.values()} == {0.001}
    assert make_plan(["rules", "fixed"], seeds=1).baseline == "rules"
    assert list(make_plan(["rules"], seeds=3, first_seed=4).seeds) == [4, 5, 6]


def test_every_method_preset_can_be_an_arm() -> None:
    methods = [name for name in preset_names("method") if name != "genenv-placebo"]
    check_plan(make_plan(methods, seeds=1), weights=False)
    said = refusal(check_plan, make_plan(["vanilla", "genenv-placebo"], seeds=1), weights=False)
    assert "task_writer.recorded: shuffled needs the folder of a run" in said


def test_every_seed_of_a_placebo_has_a_run_to_replay(tmp_path: Path) -> None:
    words = ["training.rounds=4", "task_writer.update_every=2", f"task_writer.recorded={tmp_path}/genenv-seed{{seed}}"]
    plan = make_plan(["genenv-placebo"], seeds=2, first_seed=4, overrides=words)
    for seed in plan.seeds:
        sentence = f"genenv-seed{seed}' is no folder of a run in which tasks were written"
        assert sentence in refusal(check_plan, plan, weights=False)
        run = RunFolder(tmp_path / f"genenv-seed{seed}")
        run.write_config({"task_writer": {"kind": "llm", "update_every": 2}})
        for last in (2, 4):
            run.drafts.append({"round": last, "drafts": [{"specification": None}]})
    check_plan(plan, weights=False)


UNEQUAL = (
    *("training.rounds=9", "training.groups=7", "evaluation.tasks=3", "training.dynamic_sampling=true"),
    "environment.difficulty=t2-3_c1-2_d1-3_s2-3",
)


@pytest.mark.parametrize("word", UNEQUAL)
def test_arms_of_unequal_budgets_are_refused(word: str) -> None:
    arms = {"one": make_config(["vanilla"]), "other": make_config(["rules"], overrides=[word])}
    said = refusal(check_plan, ComparisonPlan(arms, range(1), "one"), weights=False)
    assert re.match(rf"{word.split('=')[0]}: .* equal rounds and rollouts, from the same tasks", said)


@pytest.mark.parametrize(("cpus", "main"), [(64.0, 1.0), (2.0, 1.0), (1.5, 0.7), (1.25, 0.45)])
def test_the_main_process_takes_what_is_left_of_a_small_machine(
    cpus: float, main: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": cpus})
    assert main_process_cpus(make_plan(["vanilla", "rules"], seeds=1).arms) == main


def test_two_cores_hold_three_agents_and_one_trial_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the small model each agent that is a language model has an engine of its own."""
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})
    arms = make_plan(["vanilla", "seal-genenv"], seeds=1).arms
    main = main_process_cpus(arms)
    least = min(with_main(Seal.default_resource_request(arm), main).required_resources["CPU"] for arm in arms.values())
    assert 2 * least > 2.0


@pytest.mark.parametrize(
    ("words", "cpus", "sentence"),
    [
        ([], 0.5, "a trial of vanilla needs 0.9 CPUs and the cluster has 0.5; lower the num_cpus settings"),
        (["engine.num_gpus_per_engine=0.5"], 8.0, "0.5 GPUs and the cluster has 0; lower the num_gpus"),
    ],
)
def test_what_a_cluster_can_never_hold_is_refused(
    words: list[str], cpus: float, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": cpus})
    arms = make_plan(["vanilla", "rules"], seeds=1, overrides=words).arms
    assert sentence in refusal(main_process_cpus, arms)


RAISED = """Failure # 1 (occurred at 2026-01-01_00-00-00)
ValueError: earlier: it was another
Failure # 2 (occurred at 2026-01-01_00-00-01)
ray::SealTrial.train() (pid=1, ip=10.0.0.1, actor_id=aa)
KeyError: 'its cause'
  File "seal.py", line 9, in _check_ratio
    raise RatioError(text)
seal_ray.training.learner.RatioError: learner: before its first step
"""
DIED = """Failure # 1 (occurred at 2026-01-01_00-00-00)
The actor died unexpectedly before finishing this task.
\tclass_name: SealTrial
\tactor_id: aa
"""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (RAISED, "RatioError: learner: before its first step"),
        (RAISED + DIED, "The actor died unexpectedly before finishing this task."),
        ("", "it left no message"),
    ],
)
def test_the_last_error_is_told_in_a_line(text: str, error: str) -> None:
    assert last_error(text) == error
