"""Spaces: what files can say, what they cannot, and what is drawn from them."""

import random
from pathlib import Path

import pytest
from ray import tune
from ray.tune.search.variant_generator import generate_variants

from seal_ray.algorithm.config import make_config
from seal_ray.config.presets import preset_names
from tests.refusal import refusal
from tuning.sweep.parameter import SweptParameter
from tuning.sweep.space import DEFAULT_SPACE, Space, read_space, with_values

CONFIG = make_config(["seal"])


def space_of(tmp_path: Path, text: str) -> Space:
    path = tmp_path / "space.yaml"
    path.write_text(text, encoding="utf-8")
    return read_space(path, CONFIG)


def drawn(space: Space, count: int, *, grid: bool = False) -> list[dict[str, object]]:
    """Points as Tune draws them: flat settings."""
    state, choices = random.Random(0), tune.grid_search if grid else tune.choice
    found: list[dict[str, object]] = []
    while len(found) < count:
        found += [
            config for _, config in generate_variants(space.for_tune(choices=choices), random_state=state.randrange(99))
        ]
    return found


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ("training.lr: {}", "training.lr: give either values, or low and high, or around"),
        ("training.lr: {low: 1}", "training.lr: give either values, or low and high, or around"),
        ("training.lr: {values: [1], low: 0, high: 1}", "training.lr: give either values"),
        ("training.lr: {around: 2, values: [1]}", "training.lr: give either values"),
        ("training.lr: {around: 1}", "training.lr: around: Input should be greater than 1"),
        ("training.kl: {low: 2, high: 1}", "training.kl: low must be below high"),
        ("training.kl: {low: 0, high: 1, log: true}", "training.kl: log needs a low above 0"),
        ("training.kl: {values: [1], log: true}", "training.kl: log is for low and high"),
        ("training.kl: {lo: 0}", "training.kl: lo: Extra inputs are not permitted"),
        ("training.kl: 3", "training.kl: Input should be"),
        ("training.kl: {values: []}", "training.kl: values: List should have at least 1"),
        (f"training.kl: {{values: {[0.1] * 101}}}", "training.kl: values: List should have at most 100"),
        ("kl: {low: 0, high: 1}", "'kl' is no setting"),
        ("training.lrr: {low: 0, high: 1}", "did you mean 'lr'"),
        ("trainin.lr: {low: 0, high: 1}", "did you mean 'training'"),
        ("training.lr: {around: 2, when: {curator.kid: [rules]}}", "did you mean 'kind'"),
        ("training.rounds: {low: 1, high: 9}", "training.rounds: it must be the same in all trials"),
        ("evaluation.tasks: {low: 1, high: 9}", "evaluation.tasks: it must be the same in all trials"),
        ("environment.split: {values: [train, test]}", "environment.split: it must be the same in all trials"),
        ("environment.split_scheme: {values: [category]}", "environment.split_scheme: it must be the same in all"),
        ("curator.update_every: {low: 0.5, high: 2}", "curator.update_every: it takes whole numbers"),
        ("solver.lora_rank: {low: 1, high: 600}", "solver.lora_rank: 600 does not fit"),
        ("reweighting.low: {low: 0, high: 1}", "reweighting.low: 0.0 does not fit"),
        ("curator.kind: {values: [rules, rulse]}", "'rulse' is not known"),
        ("curator.kind: {around: 2}", "it is 'rules', and around takes numbers above 0"),
        ("curator.keep: {low: 1, high: 5}", "curator.keep: this setting of an earlier version is gone"),
        ("curator.played: {low: 1, high: 3, when: {curator.kind: [llm]}}", "has an effect on this config"),
    ],
)
def test_a_mistake_is_one_sentence(entry: str, sentence: str, tmp_path: Path) -> None:
    assert sentence in refusal(space_of, tmp_path, f"parameters:\n  {entry}\n")


@pytest.mark.parametrize("text", ["", "training.lr: {around: 2}", "parameters: {}", "parameters: [a]", "a: {"])
def test_what_is_no_space_is_one_sentence(text: str, tmp_path: Path) -> None:
    assert "--space: " in refusal(space_of, tmp_path, text)
    assert "cannot be read" in refusal(read_space, tmp_path / "nowhere.yaml", CONFIG)


def test_points_lie_in_the_space_and_become_settings(tmp_path: Path) -> None:
    text = """
parameters:
  training.lr: {around: 10}
  curator.update_every: {low: 1, high: 3}
  training.warm_up: {low: 2, high: 32, log: true}
  reweighting.budget: {values: [null, 0.5]}
"""
    space = space_of(tmp_path, text)
    points = drawn(space, 200)
    rates = [float(str(each["lr"])) for each in points]
    own = CONFIG.lr
    assert own / 10 <= min(rates) < own / 5
    assert own * 5 < max(rates) <= own * 10
    assert 0.4 < sum(rate < own for rate in rates) / len(rates) < 0.6, "even in the logarithm"
    assert {each["curator_update_every"] for each in points} == {1, 2, 3}, "both ends are included"
    assert {each["reweighting_budget"] for each in points} == {None, 0.5}
    assert {float(str(each["training_warm_up"])).is_integer() for each in points} == {True}
    for each in points[:20]:
        config = make_config(["seal"]).update_from_dict(each)
        config.validate()
        assert config.spec.training.lr == each["lr"]


def test_a_grid_is_every_point(tmp_path: Path) -> None:
    text = "parameters: {curator.update_every: {values: [1, 2]}, reweighting.mode: {values: [none, fixed, dynamic]}}"
    space = space_of(tmp_path, text)
    assert space.grid_size == 6
    points = drawn(space, 6, grid=True)
    assert len({(each["curator_update_every"], each["reweighting_mode"]) for each in points}) == len(points) == 6
    assert space_of(tmp_path, "parameters: {training.lr: {around: 2}}").grid_size is None


# The placebo needs the folder of another run, whatever the space.
METHODS = [name for name in preset_names("method") if name != "genenv-placebo"]


@pytest.mark.parametrize("method", METHODS)
def test_the_default_space_fits_every_method(method: str) -> None:
    config = make_config([method])
    space = read_space(DEFAULT_SPACE, config)
    names = {each.name for each in space.parameters}
    assert "training.lr" in names
    assert ("reweighting.beta" in names) == (config.to_sections()["reweighting"]["mode"] == "dynamic")
    kind = config.to_sections()["curator"]["kind"]
    assert ("curator.plain_share" in names) == (kind in ("fixed", "rules", "llm"))
    assert names.isdisjoint(space.left_out)


def test_values_are_set_on_a_copy() -> None:
    values = {"training.lr": 0.5, "reweighting.spurious_tool_call": 1.5, "curator.update_every": 1}
    sections = with_values(CONFIG, values).to_sections()
    assert {name: SweptParameter(name).value_in(sections) for name in values} == values
    assert CONFIG.to_sections()["reweighting"]["spurious_tool_call"] is None


def test_values_are_brought_back_into_the_space() -> None:
    assert SweptParameter("training.lr", low=0.1, high=1.0).clamped(1.2) == 1.0
    assert SweptParameter("curator.update_every", low=1, high=5, whole=True).clamped(5.7) == 5
    assert SweptParameter("curator.update_every", low=1, high=5, whole=True).clamped(2.4) == 2
    assert SweptParameter("reweighting.mode", choices=("none", "fixed")).clamped("fixed") == "fixed"
