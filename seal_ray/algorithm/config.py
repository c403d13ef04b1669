"""`SealConfig`: RLlib's fluent config, with a method for each section of `seal_ray/config/schema.py`.

    config = SealConfig().training(groups=12, lr=3e-4).curator(kind="rules").evaluation(interval=5)
    algorithm = config.build_algo()

Settings lie flat on the config (`config.reweighting_alpha`), so that Tune's search spaces work on each of them. They
are checked when the algorithm is built; `config.section(schema.TrainingSection)` gives a section checked, as a value.
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

from envs.errors import UserError, unknown_value
from envs.roles import SOLVER
from seal_ray.algorithm.report import OnRound
from seal_ray.config.fields import attribute
from seal_ray.config.presets import read_sections
from seal_ray.config.resolve import RunSpec, resolve
from seal_ray.config.schema import KINDS, SECTIONS, S
from seal_ray.config.sections import check_key, check_kind_has, fields_of, section_class, section_name, section_of
from seal_ray.rllib import RoundConfig

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
        from seal_ray.rollout.runner import SealEnvRunner

        self._spec: RunSpec | None = None
        self.round_callbacks: tuple[OnRound, ...] = ()
        self.engine_factory: Any = None
        self.restart_failed_env_runners = True
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
        """What is played in training: see `schema.EnvironmentSection`."""
        if env is not None:
            settings["source"] = env
        return self._set("environment", settings)

    def engine(self, **settings: Any) -> Self:
        """Where completions are sampled: see `schema.EngineSection`."""
        return self._set("engine", settings)

    def solver(self, **settings: Any) -> Self:
        """The model that plays and learns: see `schema.SolverSection`."""
        return self._set("solver", settings)

    def curator(self, **settings: Any) -> Self:
        """Who proposes the interface: see `schema.CuratorSection`."""
        return self._set("curator", settings)

    def task_writer(self, **settings: Any) -> Self:
        """Writes training tasks: see `schema.TaskWriterSection` and its subclasses."""
        return self._set("task_writer", settings)

    def reweighting(self, **settings: Any) -> Self:
        """Diagnosis-guided advantage weights: see `schema.ReweightingSection`."""
        return self._set("reweighting", settings)

    def training(self, **settings: Any) -> Self:
        """GRPO and its optimizer: see `schema.TrainingSection`."""
        return self._set("training", settings)

    def evaluation(self, **settings: Any) -> Self:
        """What is measured: see `schema.EvaluationSection`."""
        return self._set("evaluation", settings)

    def env_runners(self, **settings: Any) -> Self:
        """The actors that play: see `schema.EnvRunnersSection`; RLlib's other settings are taken too."""
        return self._set("env_runners", settings, more=super().env_runners)

    def learners(self, **settings: Any) -> Self:
        """Where the gradient is computed: see `schema.LearnersSection`; RLlib's other settings are taken too."""
        return self._set("learners", settings, more=super().learners)

    def fault_tolerance(self, **settings: Any) -> Self:
        """How much may go wrong: see `schema.FaultToleranceSection`; RLlib's other settings are taken too."""
        return self._set("fault_tolerance", settings, more=super().fault_tolerance)

    def on_round(self, callback: OnRound) -> Self:
        """Calls `callback` with the `RoundReport` of each round. What it raises is logged; it can change nothing."""
        self.round_callbacks = (*self.round_callbacks, callback)
        return self

    def section(self, section: type[S]) -> S:
        """A section as a checked value, of a union the one of its kind. Raises `UserError` for a wrong value."""
        name = section_name(section)
        kind = getattr(self, attribute(name, "kind"), None)
        fields = section_class(name, kind).model_fields
        values = {key: getattr(self, attribute(name, key)) for key in fields}
        for key, value in values.items():
            if isinstance(value, Domain) or (isinstance(value, Mapping) and "grid_search" in value):
                raise UserError(f"{name}.{key}: a search space is no value; give a value, or run it in Ray Tune.")
        if name in KINDS:
            for key, field in fields_of(name).items():
                if key not in fields and getattr(self, attribute(name, key)) != field.default:
                    check_kind_has(name, kind, key)
        return section_of(section, values)

    def to_sections(self) -> dict[str, dict[str, Any]]:
        """All settings as plain values: section → key → value, as in a preset file."""
        return {name: self.section(section).model_dump(mode="json") for name, section in SECTIONS.items()}

    @property
    def spec(self) -> RunSpec:
        """What the settings mean, resolved once a config is frozen. Raises `UserError`."""
        if self._is_frozen and self._spec is not None:
            return self._spec
        return resolve(self)

    def freeze(self) -> None:
        """As RLlib's."""
        self._spec = resolve(self)
        super().freeze()

    def update_from_dict(self, config_dict: Mapping[str, Any]) -> Self:
        """Sets attributes by their names, as Tune does. Raises `UserError` for one that there is not."""
        others = {}
        for key, value in config_dict.items():
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

    def validate(self) -> None:
        """Checks every section and what must fit together. Raises `UserError` with one sentence."""
        from seal_ray.algorithm.checks import check_run

        spec = self.spec
        check_run(spec)
        self.multi_agent(policies=spec.learning_agents)
        # RLlib logs once for each algorithm that it is on the new API stack. This one has no other.
        log_once(f"{getattr(self.algo_class, '__name__', self.algo_class)}_on_new_api_stack")
        super().validate()

    def get_default_learner_class(self) -> type:
        from seal_ray.training.learner import SealLearner

        return SealLearner

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        from seal_ray.training.module import LMModule

        return RLModuleSpec(
            module_class=LMModule, model_config={"agent": self.spec.agents[SOLVER], "learners": self.spec.learners}
        )

    def get_multi_rl_module_spec(self, **settings: Any) -> MultiRLModuleSpec:
        """As RLlib's, with each agent's own model."""
        found: MultiRLModuleSpec = super().get_multi_rl_module_spec(**settings)
        specs: Any = found.rl_module_specs
        for agent in self.spec.learning_agents:
            specs[agent].model_config = _module_config(self.spec, agent)
        return found

    def build_learner_group(self, *, rl_module_spec: Any = None, **_: Any) -> LearnerGroup:
        from seal_ray.training.learner_group import SealLearnerGroup

        return SealLearnerGroup(config=self.copy(), module_spec=rl_module_spec)

    def _set(self, section: str, settings: Mapping[str, Any], more: Callable[..., Any] | None = None) -> Self:
        """Sets our settings, and passes the others to RLlib's method. Sets nothing where one is not known."""
        own = fields_of(section)
        rllib = inspect.signature(more).parameters if more is not None else ()
        for key in settings:
            check_key(section, key, more=rllib)
        if more is not None:
            more(**{key: value for key, value in settings.items() if key not in own})
        for key, value in settings.items():
            if key in own:
                setattr(self, attribute(section, key), value)
        return self


def _module_config(spec: RunSpec, agent: str) -> dict[str, Any]:
    """What an agent's `LMModule` is made with."""
    return {"agent": spec.agents[agent], "learners": spec.learners}


def _defaults() -> dict[str, Any]:
    """Attribute → default of every setting."""
    return {
        attribute(name, key): field.get_default(call_default_factory=True)
        for name in SECTIONS
        for key, field in fields_of(name).items()
    }


def make_config(
    presets: Sequence[str] | None = (),
    *,
    file: Path | None = None,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    shared: bool = False,
) -> SealConfig:
    """The config of these presets, then the file, then the words `section.key=value`, as `read_sections` reads them.

    `seed` wins over the file's; without either it is 0. Values are not checked before `validate()`. Raises `UserError`
    for what cannot be read or set.
    """
    sections, file_seed = read_sections(presets, file=file, overrides=overrides, shared=shared)
    config = apply(SealConfig(), sections)
    config.seed = file_seed if seed is None else seed
    return config


def apply(config: SealConfig, values: Mapping[str, Mapping[str, Any]]) -> SealConfig:
    """Sets every value through the fluent method of its section. Raises `UserError` for one that there is not."""
    for section, settings in values.items():
        for key in settings:
            check_key(section, key)
        getattr(config, section)(**settings)
    return config
