"""What must fit together in a config, each mistake in one sentence before anything is started."""

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from envs.bfcl.splits import get_split
from envs.interface import Interface
from envs.interface.json_form import dump_interface
from seal_ray.algorithm.config import make_config
from seal_ray.config.schema import EnvironmentSection, EvaluationSection
from seal_ray.evaluation.suites import evaluation_tasks
from tests.refusal import refusal

BFCL = "environment.source=bfcl"
RENAMED = "environment.source=bfcl-renamed"
MIXED = "environment.source=toolworld:0.5+bfcl:0.5"
LEARNING = ["curator.kind=llm", "curator.trainable=true"]


def refused(*words: str, presets: Sequence[str] = ()) -> str:
    """The error of a config with these settings."""
    return refusal(lambda: make_config(presets, overrides=words).validate())


MISTAKES = {
    "solver.prompt=4000": "solver.prompt: 4000 is more than solver.context, 3072.",
    "solver.context=40000": "solver.context: 40000 is more than the model's 32768 tokens.",
    "solver.dialect=qwn": "solver.dialect: 'qwn' is not known; did you mean 'qwen'?",
    "training.groups=4 training.minibatch_groups=5": "training.minibatch_groups: 5 is more than training.groups, 4.",
    "training.group_size=7": "training.group_size: 7 is odd; curator.pairs plays half of a group plain.",
    "training.groups=2 training.minibatch_groups=1 curator.plain_share=0.8": (
        "training.groups: 2, with a curator.plain_share of 0.8 and one plain group a round at least, leaves "
        "none for the curator's interface; give more, or curator.kind=none."
    ),
    "learners.num_gpus_per_learner=1": "learners.num_learners: 0 reserves no GPU for learning; set it to 1 or more.",
    "learners.num_learners=2 learners.num_gpus_per_learner=0.5": (
        "learners.num_gpus_per_learner: 0.5 has two learners on one GPU, which NCCL refuses; give each more than half."
    ),
    "learners.fsdp=true learners.num_learners=1": (
        "learners.fsdp: it shards over 2 learners or more, and learners.num_learners is 1."
    ),
    "engine.tensor_parallel=3": (
        "engine.tensor_parallel: 3 ranks cannot share tiny's 4 attention heads, 2 key/value heads, 768 MLP units "
        "and 1536 rows of embeddings equally; it must be one of 1, 2, 4."
    ),
    "engine.tensor_parallel=2 engine.kind=transformers": (
        "engine.tensor_parallel: 2 needs engine.kind=vllm; transformers allows 1."
    ),
    "engine.tensor_parallel=2 engine.num_gpus_per_engine=0.5": (
        "engine.num_gpus_per_engine: 0.5 does not fit engine.tensor_parallel=2; it must be 2, or 0 on CPUs."
    ),
    "engine.num_gpus_per_engine=2": (
        "engine.num_gpus_per_engine: 2 does not fit engine.tensor_parallel=1; it must be at most 1."
    ),
    "curator.kind=none curator.interface=x.json": (
        "curator.interface: curator.kind=none does not have it; fixed, rules do."
    ),
    "environment.source=toolwrld": "environment.source: 'toolwrld' is not known; did you mean 'toolworld'?",
    "environment.source=toolworld:0.75+bfcl:0.5": (
        "environment.source: the shares do not add up to 1; leave one out, and that source takes the rest."
    ),
    "environment.source=toolworld+bfcl:0.25": (
        "evaluation.split: toolworld+bfcl:0.25 has no dev tasks; evaluation.source can name a source that has."
    ),
    "environment.source=toolworld+bfcl evaluation.source=bfcl environment.split_scheme=category": (
        "environment.split_scheme: 'category' is given; the sources of a mixture use their defaults."
    ),
    f"{MIXED} environment.tasks=1000 evaluation.source=toolworld": (
        "environment.tasks: of 1000 tasks in the mixture's shares 816 are different; take fewer, or give a finite "
        "source a smaller share."
    ),
    "evaluation.source=bfc": "evaluation.source: 'bfc' is not known; did you mean 'bfcl'?",
    "environment.categories=[bse]": "environment.categories: 'bse' is not known; did you mean 'base'?",
    "environment.split=tain": "environment.split: 'tain' is not known; did you mean 'train'?",
    "evaluation.split=tst": "evaluation.split: 'tst' is not known; did you mean 'test'?",
    "environment.difficulty=hard": (
        "environment.difficulty: 'hard' cannot be read; the form is t2-3_c1-2_d1-3_s2-4, or long."
    ),
    f"{BFCL} environment.split_scheme=scenari": (
        "environment.split_scheme: 'scenari' is not known; allowed are 'scenario', 'category' or a JSON file."
    ),
    f"{BFCL} environment.split_scheme=category environment.split=dev evaluation.split=test": (
        "environment.split: 'dev' of the split 'category' has no task of base, miss_func, miss_param, long_context."
    ),
    f"{BFCL} environment.split_scheme=category": (
        "evaluation.split: 'dev' of the split 'category' has no tasks; take another, or set evaluation.interval to 0."
    ),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_settings_that_do_not_fit_together(words: str) -> None:
    assert refused(*words.split()) == MISTAKES[words]


@pytest.mark.parametrize(
    ("words", "shared", "one"),
    [
        (["evaluation.split=train", "evaluation.tasks=8"], "8 of 8", "toolworld_train_base_000000_"),
        ([BFCL, "environment.split_scheme=category", "evaluation.source=bfcl-renamed"], "45 of 84", "multi_turn_base_"),
        ([RENAMED, "evaluation.split=train", "evaluation.source=bfcl"], "316 of 316", "multi_turn_base_"),
        ([MIXED, "evaluation.split=train", "evaluation.tasks=8"], "8 of 8", "toolworld_train_"),
    ],
)
def test_evaluation_on_tasks_that_are_trained_on_is_refused(words: list[str], shared: str, one: str) -> None:
    said = refused("evaluation.tasks=null", *words)
    assert said.startswith(f"evaluation.split: {shared} tasks are trained on, '{one}"), said
    assert said.endswith(" for one; evaluation tasks must be others.")


@pytest.mark.parametrize(
    "words",
    [
        [BFCL],
        [BFCL, "environment.split_scheme=category", "evaluation.split=test"],
        [BFCL, "evaluation.split=train", "evaluation.interval=0"],
        ["evaluation.source=bfcl", "evaluation.split=train"],
        ["environment.source=toolworld+bfcl", "evaluation.source=toolworld", "environment.difficulty=long"],
        ["learners.fsdp=true", "learners.num_learners=2", "solver.lora_rank=4"],
        ["engine.tensor_parallel=4", "engine.num_gpus_per_engine=4"],
        ["environment.difficulty=t2-3_c1-2_d1-3_s2-4", "reweighting.rho=default", "reweighting.spurious_tool_call=1.0"],
        LEARNING,
    ],
)
def test_settings_that_do(words: list[str]) -> None:
    make_config(overrides=words).validate()


def test_evaluation_plays_what_is_trained_on() -> None:
    code = "t1-1_c1-1_d1-1_s2-2"
    config = make_config(overrides=[f"environment.difficulty={code}", "evaluation.tasks=4"])
    tasks = evaluation_tasks(config.section(EnvironmentSection), config.section(EvaluationSection))
    assert [task.id.split("_")[1] for task in tasks] == ["dev"] * 4
    assert all(task.id.endswith(code) for task in tasks)


def test_evaluation_tasks_are_of_the_split_scheme_that_is_trained_on() -> None:
    def tasks(*words: str) -> set[str]:
        config = make_config(overrides=[BFCL, "evaluation.split=test", "evaluation.tasks=null", *words])
        found = evaluation_tasks(config.section(EnvironmentSection), config.section(EvaluationSection))
        return {task.id for task in found}

    published = get_split("category")
    assert tasks("environment.split_scheme=category") == {task.id for task in published.test}
    assert tasks() & {task.id for task in published.train}, "the other scheme's tasks would have been trained on"
    assert tasks() == {task.id for task in get_split("scenario").test}
    few = tasks("evaluation.tasks=8")
    assert len(few) == 8
    assert {name.rpartition("_")[0] for name in few} == {
        *("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context")
    }
    other = make_config(overrides=["evaluation.source=bfcl", "evaluation.tasks=null"])
    found = evaluation_tasks(other.section(EnvironmentSection), other.section(EvaluationSection))
    assert {task.id for task in found} == {task.id for task in get_split("scenario").dev}


def test_a_split_file_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "split.json"
    file.write_text(json.dumps({"train": ["multi_turn_base_0"], "test": ["multi_turn_base_0"]}))
    said = refused(BFCL, f"environment.split_scheme={file}")
    assert said.startswith(f"environment.split_scheme: {file}: train and test share 1 task(s)")
    file.write_text(json.dumps({"train": ["multi_turn_base_0"], "test": ["multi_turn_base_1"]}))
    make_config(overrides=[BFCL, f"environment.split_scheme={file}", "evaluation.split=test"]).validate()


def test_the_curators_interface_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "interface.json"
    assert refused(f"curator.interface={file}").startswith(f"curator.interface: {file} cannot be read")
    file.write_text("{")
    assert refused(f"curator.interface={file}").startswith(f"curator.interface: {file}: not valid JSON")
    file.write_text(dump_interface(Interface(guidelines=("Look twice.", "Ask."))))
    make_config(overrides=[f"curator.interface={file}"]).validate()
    make_config(overrides=[f"curator.interface={file}", "curator.kind=fixed"]).validate()
    faded = tmp_path / "faded.json"
    faded.write_text(dump_interface(Interface(guidelines=("Ask.",), fade=0.5)))
    assert refused(f"curator.interface={faded}").startswith("curator.interface: its fade is 0.5, and training has none")


PROPOSERS = {
    "curator.model=nowhere": "curator.model: 'nowhere' is no folder; give a Hugging Face model folder",
    "curator.context=50000": "curator.context: 50000 is more than the model's 32768 tokens.",
    "curator.context=20000 curator.response=3072 solver.lora_rank=4": (
        "curator.response: 3072 of 3072 tokens leaves no room for a prompt."
    ),
    "curator.proposals=1": "curator.proposals: a curator that learns needs 2 proposals or more to compare.",
    "task_writer.kind=llm task_writer.trainable=true task_writer.specifications=1": (
        "task_writer.specifications: a task writer that learns needs 2 or more to compare."
    ),
    "task_writer.kind=random task_writer.update_every=3": (
        "task_writer.update_every: 3 is no multiple of curator.update_every, 2;"
    ),
    "task_writer.kind=lmm": "task_writer.kind: 'lmm' is not known; did you mean 'llm'?",
    "task_writer.kind=llm task_writer.reward=alfa": "task_writer.reward: 'alfa' is not known; did you mean 'alpha'?",
    "task_writer.kind=llm task_writer.response=4096": (
        "task_writer.response: 4096 of 3072 tokens leaves no room for a prompt."
    ),
    "task_writer.kind=llm task_writer.model=/nowhere": "task_writer.model: ",
    "task_writer.kind=random task_writer.share=1.5": "task_writer.share: 1.5 does not fit",
}


@pytest.mark.parametrize("words", PROPOSERS)
def test_a_curator_and_a_task_writer_that_are_models_are_checked(words: str) -> None:
    assert refused(*LEARNING, *words.split()).startswith(PROPOSERS[words])


def test_an_engine_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert refused("engine.kind=vllm") == (
        "engine.kind: vllm is not installed; install the cpu or gpu extra, or take transformers."
    )


def test_a_source_without_specifications_takes_no_task_writer() -> None:
    assert "'bfcl' composes no tasks from specifications" in refused(BFCL, presets=["random-tasks"])
