"""`SealConfig` is a genuine RLlib config: fluent, copied, pickled, frozen, searched by Tune, and checked as a whole."""

import logging
import os
import subprocess
import sys
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import pytest
from ray import tune
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.tune.search.variant_generator import generate_variants
from ray.util import debug

from envs.errors import UserError
from envs.task import Category
from seal_ray.algorithm.config import SealConfig, make_config
from seal_ray.config.schema import SECTIONS, EnvironmentSection, EvaluationSection, TrainingSection
from seal_ray.config.sections import attribute, fields_of


def changed() -> SealConfig:
    """A config with something else than the default in every section."""
    return (
        SealConfig()
        .environment(categories=["base", "miss_func"], tasks=40, reward="progress")
        .engine(num_engines=2, dtype="float32")
        .solver(context=2048, prompt=1024, response=128, steps=None, dtype="float32")
        .curator(kind="fixed", plain_share=0.5, plain_share_end=1.0)
        .task_writer(kind="random", share=0.25)
        .reweighting(mode="dynamic", spurious_tool_call=1.5, budget=0.5)
        .training(rounds=7, groups=4, minibatch_groups=2, lr=3e-4, grad_clip=0.5, importance_cap=2.0)
        .evaluation(interval=3, split="test", tasks=8)
        .env_runners(num_env_runners=2)
        .learners(num_learners=2, fsdp=True, threads=1)
        .fault_tolerance(step_timeout=30.0)
    )


def test_every_method_sets_its_section_and_gives_the_config_back() -> None:
    config = changed()
    assert isinstance(config, AlgorithmConfig)
    environment, training = config.section(EnvironmentSection), config.section(TrainingSection)
    assert (environment.categories, environment.tasks) == ([Category.BASE, Category.MISS_FUNC], 40)
    assert (training.lr, training.grad_clip) == (config.lr, vars(config)["grad_clip"]) == (3e-4, 0.5)
    assert (config.num_learners, vars(config)["evaluation_interval"]) == (2, 3)
    default = SealConfig().to_sections()
    assert [name for name, values in config.to_sections().items() if values == default[name]] == []


@pytest.mark.parametrize("section", SECTIONS)
def test_methods_take_keywords_only_and_know_their_keys(section: str) -> None:
    config = SealConfig()
    before = config.to_dict()
    method = getattr(config, section)
    if section != "environment":  # RLlib names the environment by position
        with pytest.raises(TypeError):
            method(1)
    key = next(iter(fields_of(section)))
    with pytest.raises(UserError, match=f"config key of {section}: '{key}x' is not known; did you mean '{key}'"):
        method(**{key: None, f"{key}x": 1})
    with pytest.raises(UserError, match=r"num_gpu_per_env_runner.*did you mean 'num_gpus_per_env_runner'"):
        config.env_runners(num_gpu_per_env_runner=1)  # which is RLlib's own
    assert config.to_dict() == before
    assert method() is config


def test_rllibs_own_keys_work_where_a_section_is_rllibs_too() -> None:
    config = (
        SealConfig()
        .environment("bfcl")  # RLlib names the environment by position
        .env_runners(num_gpus_per_env_runner=0, num_env_runners=3)
        .learners(num_gpus_per_learner=0, max_requests_in_flight_per_learner=5, num_cpus_per_learner=0.5)
        .fault_tolerance(env_runner_restore_timeout_s=7.0)
    )
    assert config.section(EnvironmentSection).source == "bfcl"
    assert (config.num_env_runners, config.num_gpus_per_env_runner) == (3, 0)
    assert (config.num_gpus_per_learner, config.max_requests_in_flight_per_learner) == (0, 5)
    assert float(config.num_cpus_per_learner) == 0.5, "it is no setting, and RLlib's key"
    assert config.env_runner_restore_timeout_s == 7.0


@pytest.mark.parametrize(
    "again",
    [
        SealConfig.copy,
        lambda config: cloudpickle.loads(cloudpickle.dumps(config)),
        lambda config: SealConfig().update_from_dict(config.to_dict()),
        lambda config: SealConfig.from_state(config.get_state()),
        lambda config: config.copy(copy_frozen=True).copy(copy_frozen=False),
    ],
)
def test_copies_have_the_same_settings(again: Any) -> None:
    config = changed()
    config.seed = 5
    copied = again(config)
    assert isinstance(copied, SealConfig)
    assert copied.to_sections() == config.to_sections()
    assert {**copied.to_dict(), "class": SealConfig} == {**config.to_dict(), "class": SealConfig}
    assert copied.seed == 5
    copied.validate()


def test_copies_share_nothing() -> None:
    SealConfig().evaluation_suites.append("x")  # type: ignore[attr-defined]
    assert SealConfig().section(EvaluationSection).suites == ["plain"]
    config = changed()
    config.copy().environment_categories.append("x")  # type: ignore[attr-defined]
    assert config.section(EnvironmentSection).categories == ["base", "miss_func"]


def test_tune_draws_values_for_any_setting() -> None:
    config = (
        make_config()
        .training(lr=tune.grid_search([1e-4, 2e-4]), kl=tune.uniform(0.0, 0.1), rounds=tune.randint(3, 9))
        .reweighting(mode=tune.choice(["fixed", "dynamic"]))
        .evaluation(interval=tune.choice([0, 2]))
    )
    with pytest.raises(UserError, match=r"^reweighting.mode: a search space is no value; .* Ray Tune\.$"):
        config.validate()
    drawn = [variant for _, variant in generate_variants(config.to_dict())]
    assert len(drawn) == 2
    made = [SealConfig().update_from_dict(each) for each in drawn]
    for each in made:
        each.validate()
    assert [each.section(TrainingSection).lr for each in made] == [1e-4, 2e-4]
    assert all(3 <= each.section(TrainingSection).rounds < 9 for each in made)
    assert all(each.section(EvaluationSection).interval in (0, 2) for each in made)


def test_a_dict_sets_attributes_by_their_names() -> None:
    config = SealConfig().update_from_dict(
        {"training_groups": 9, "lr": 0.5, "evaluation_tasks": 3, "num_workers": 4, "__trial_info__": object()}
    )
    assert config.section(TrainingSection).groups == 9
    assert config.section(TrainingSection).lr == 0.5
    assert config.section(EvaluationSection).tasks == 3
    assert config.num_env_runners == 4
    for wrong in ({"training_group": 1}, {"training_lr": 1.0}):
        with pytest.raises(UserError, match="did you mean"):
            config.update_from_dict(wrong)


def test_every_setting_has_an_attribute_of_its_own() -> None:
    names = [attribute(section, key) for section in SECTIONS for key in fields_of(section)]
    assert len(set(names)) == len(names)
    assert set(names) <= vars(SealConfig()).keys()


def test_validate_changes_nothing_and_says_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debug, "_logged", set())  # what RLlib says once, it has not said yet
    for name in ("ray", "ray.rllib"):
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
    config = make_config()
    before = config.to_sections()
    with caplog.at_level(logging.DEBUG):
        config.validate()
        after = config.to_dict()
        config.validate()
    assert config.to_sections() == before
    assert config.to_dict() == after
    assert caplog.records == []


def test_agents_are_built_in_one_order_with_every_hash_seed() -> None:
    """Adapters begin at random: in another order the same seed would give each agent the other's."""
    program = (
        "from envs.text_space import UnicodeText\n"
        "from seal_ray.algorithm.config import SealConfig\n"
        "config = SealConfig().curator(kind='llm', trainable=True)\n"
        "config.validate()\n"
        "texts = (UnicodeText(), UnicodeText())\n"
        "spaces = dict.fromkeys(('__env__', '__env_single__', 'solver', 'curator'), texts)\n"
        "print(*{'solver', 'curator'})\n"
        "print(*config.get_multi_rl_module_spec(spaces=spaces).rl_module_specs)"
    )
    # With this seed a set of both has the wrong order, which the first line shows.
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    said = subprocess.check_output([sys.executable, "-c", program], env=environment, text=True)
    assert said.splitlines() == ["curator solver", "solver curator"]
