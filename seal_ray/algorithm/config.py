"""`SealConfig`: RLlib's fluent config, with a method for each section of `sections.py`.

    config = SealConfig().training(groups=12, lr=3e-4).curator(kind="rules").evaluation(interval=5)
    algorithm = config.build_algo()

Settings lie flat on the config (`config.reweighting_alpha`), so that Tune's search spaces work on each of them. They
are checked when the algorithm is built; `config.section(sections.Training)` gives a section checked, as a value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from ray.rllib.core.learner.learner_group import LearnerGroup
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.tune.result import TRIAL_INFO
from ray.tune.search.sample import Domain
from ray.util import log_once

from envs.co_evolution import SOLVER
from envs.errors import UserError, unknown_value
from seal_ray.algorithm.rllib import RoundConfig
from seal_ray.config.agents import learning_agents, module_settings
from seal_ray.config.fields import KEYS, attribute, with_current_keys
from seal_ray.config.presets import read_layers
from seal_ray.config.sections import (
    SECTIONS,
    S,
    check_key,
    section_name,
    section_of,
)

_READ_BY_RLLIB = {TRIAL_INFO, "_enable_new_api_stack", "multiagent", "class"}
"""Keys of a config dict that are not attributes, or not always."""
_SET_AS_THEY_ARE = {"env_config", "model", "optimizer"}
"""Attributes, beside those of evaluation, that RLlib would hand to methods which are ours here."""


def _module_of(agent: object, *_: Any, **__: Any) -> str:
    """The module that acts for an agent has its name."""
    return str(agent)


class SealConfig(RoundConfig):
    """The configuration of `Seal`. Methods take keywords only; an unknown one raises `UserError` with the nearest."""

    def __init__(self, algo_class: type | None = None) -> None:
        from seal_ray.algorithm.seal import Seal

        super().__init__(algo_class=algo_class or Seal)
        vars(self).update(_defaults())
        from seal_ray.algorithm.sampling.runner import SealEnvRunner

        self.engine_factory: Any = None
        self.seed: Any = 0
        self.env_runner_cls: Any = SealEnvRunner
        self.multi_agent(policies=(SOLVER,), policy_mapping_fn=_module_of)
        self.batch_mode = "complete_episodes"
        self.grad_clip_by = "global_norm"
        # What follows keeps RLlib from doing on its own what `Seal` does, or waiting where it should look around.
        self.add_default_connectors_to_learner_pipeline = False
        self.sample_timeout_s: Any = None
        self.delay_between_env_runner_restarts_s = 1
        self.env_runner_health_probe_timeout_s = 0.2
        self.validate_env_runners_after_construction = False
        self.log_level = "ERROR"

    def environment(self, env: Any = None, **settings: Any) -> Self:
        """What is played in training: see `sections.Environment`."""
        if env is not None:
            settings["source"] = env
        return self._set("environment", settings)

    def engine(self, **settings: Any) -> Self:
        """Where completions are sampled: see `sections.Engine`."""
        return self._set("engine", settings)

    def solver(self, **settings: Any) -> Self:
        """The model that plays and learns: see `sections.Solver`."""
        return self._set("solver", settings)

    def curator(self, **settings: Any) -> Self:
        """Who proposes the interface: see `sections.Curator`."""
        return self._set("curator", settings)

    def writer(self, **settings: Any) -> Self:
        """Who writes training tasks: see `sections.Writer`."""
        return self._set("writer", settings)

    def diagnosis(self, **settings: Any) -> Self:
        """What is kept of the diagnoses: see `sections.Diagnosis`."""
        return self._set("diagnosis", settings)

    def reweighting(self, **settings: Any) -> Self:
        """Diagnosis-guided advantage weights: see `sections.Reweighting`."""
        return self._set("reweighting", settings)

    def training(self, **settings: Any) -> Self:
        """GRPO and its optimizer: see `sections.Training`."""
        return self._set("training", settings)

    def evaluation(self, **settings: Any) -> Self:
        """What is measured: see `sections.Evaluation`."""
        return self._set("evaluation", settings)

    def env_runners(self, **settings: Any) -> Self:
        """The actors that play: see `sections.EnvRunners`; RLlib's other settings are taken too."""
        return self._set("env_runners", settings, more=super().env_runners)

    def learners(self, **settings: Any) -> Self:
        """Where the gradient is computed: see `sections.Learners`; RLlib's other settings are taken too."""
        return self._set("learners", settings, more=super().learners)

    def fault_tolerance(self, **settings: Any) -> Self:
        """How much may go wrong: see `sections.FaultTolerance`; RLlib's other settings are taken too."""
        return self._set("fault_tolerance", settings, more=super().fault_tolerance)

    def section(self, kind: type[S]) -> S:
        """A section as a checked value. Raises `UserError` for a value that does not fit."""
        name = section_name(kind)
        values = {key: getattr(self, attribute(name, key)) for key in kind.model_fields}
        for key, value in values.items():
            if isinstance(value, Domain) or (isinstance(value, Mapping) and "grid_search" in value):
                raise UserError(f"{name}.{key}: a search space is no value; give a value, or run it in Ray Tune.")
        return section_of(kind, values)

    def to_sections(self) -> dict[str, dict[str, Any]]:
        """All settings as plain values: section → key → value, as in a preset file."""
        return {name: self.section(kind).model_dump(mode="json") for name, kind in SECTIONS.items()}

    def update_from_dict(self, config_dict: Mapping[str, Any]) -> Self:
        """Sets attributes by their names, as Tune does. Raises `UserError` for one that there is not."""
        others = {}
        for key, value in _with_current_attributes(config_dict).items():
            name = self.attribute_of(key)
            # Tune adds what it needs under names of its own, for instance "__trial_info__".
            if name not in vars(self) and key not in _READ_BY_RLLIB and not key.startswith("__"):
                raise unknown_value("config", key, sorted(vars(self)))
            if name.startswith("evaluation_") or name in _SET_AS_THEY_ARE:
                setattr(self, name, value)
            else:
                others[key] = value
        super().update_from_dict(others)
        return self

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Reads a config that was stored under old names of settings too."""
        vars(self).update(_defaults() | _with_current_attributes(state))

    def validate(self) -> None:
        """Checks every section and what must fit together. Raises `UserError` with one sentence."""
        from seal_ray.algorithm.checks import check_config

        check_config(self)
        self.multi_agent(policies=learning_agents(self))
        # RLlib logs once for each algorithm that it is on the new API stack. This one has no other.
        log_once(f"{getattr(self.algo_class, '__name__', self.algo_class)}_on_new_api_stack")
        super().validate()

    def get_default_learner_class(self) -> type:
        from seal_ray.algorithm.learning.learner import SealLearner

        return SealLearner

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        from seal_ray.algorithm.learning.module import LMModule

        return RLModuleSpec(module_class=LMModule, model_config=module_settings(self, SOLVER))

    def get_multi_rl_module_spec(self, **settings: Any) -> MultiRLModuleSpec:
        """As RLlib's, with each agent's own model."""
        found: MultiRLModuleSpec = super().get_multi_rl_module_spec(**settings)
        specs: Any = found.rl_module_specs
        for agent in learning_agents(self):
            specs[agent].model_config = module_settings(self, agent)
        return found

    def build_learner_group(self, *, rl_module_spec: Any = None, **_: Any) -> LearnerGroup:
        from seal_ray.algorithm.learning.learner_group import SealLearnerGroup

        return SealLearnerGroup(config=self.copy(), module_spec=rl_module_spec)

    def _set(self, section: str, settings: Mapping[str, Any], more: Callable[..., Any] | None = None) -> Self:
        """Sets our settings, and passes the others to RLlib's method. Sets nothing where one is not known."""
        own = SECTIONS[section].model_fields
        rllib = inspect.signature(more).parameters if more is not None else ()
        settings = with_current_keys(section, settings)
        for key in settings:
            check_key(section, key, more=rllib)
        if more is not None:
            more(**{key: value for key, value in settings.items() if key not in own})
        for key, value in settings.items():
            if key in own:
                setattr(self, attribute(section, key), value)
        return self


def _defaults() -> dict[str, Any]:
    """Attribute → default of every setting."""
    return {
        attribute(name, key): field.get_default(call_default_factory=True)
        for name, section in SECTIONS.items()
        for key, field in section.model_fields.items()
    }


def _with_current_attributes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a config, with those that have the old name of a setting under the name that it has."""
    names = {
        attribute(section, old): attribute(section, new) for section, keys in KEYS.items() for old, new in keys.items()
    }
    return {names.get(key, key): value for key, value in values.items()}


def make_config(
    presets: Sequence[str] | None = (),
    *,
    file: Path | None = None,
    overrides: Sequence[str] = (),
    seed: int | None = None,
) -> SealConfig:
    """The config of these presets, then the file, then the words `section.key=value`; later ones win.

    The default model preset comes first where no model preset is named. With None for the presets none does: so the
    file of a run is read, where a setting that a run of an earlier version lacks has its default, which is what was
    done before. `seed` wins over that of the file; without
    either it is 0. Values are not checked before `validate()`. Raises `UserError` for what cannot be read or set.
    """
    layers, file_seed = read_layers(presets, file=file, overrides=overrides)
    config = SealConfig()
    for layer in layers:
        apply(config, layer)
    config.seed = file_seed if seed is None else seed
    return config


def apply(config: SealConfig, values: Mapping[str, Mapping[str, Any]]) -> SealConfig:
    """Sets every value through the fluent method of its section. Raises `UserError` for one that there is not."""
    for section, settings in values.items():
        for key in settings:
            check_key(section, key)
        getattr(config, section)(**settings)
    return config
