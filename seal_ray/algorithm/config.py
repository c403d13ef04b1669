"""`SealConfig`: RLlib's fluent config, with a method for each section of `seal_ray/config/schema.py`.

    config = SealConfig().training(groups=12, lr=3e-4).curator(kind="rules").evaluation(interval=5)
    algorithm = config.build_algo()

Settings are flat attributes of the config (`config.reweighting_alpha`), so that Tune's search spaces work. They are
checked when the algorithm is built; `config.section(schema.TrainingSection)` returns a checked section.
"""

import inspect
import os
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
from seal_ray.config.presets import read_sections
from seal_ray.config.resolve import RunSpec, resolve
from seal_ray.config.schema import KINDS, SECTIONS, S
from seal_ray.config.sections import (
    attribute,
    check_key,
    check_kind_has,
    fields_of,
    make_section,
    section_class,
    section_name,
)
from seal_ray.rllib import RoundConfig

_READ_BY_RLLIB = {TRIAL_INFO, "_enable_new_api_stack", "multiagent", "class"}
"""Keys of a config dict that are not attributes, or not always."""
_SET_AS_THEY_ARE = {"env_config", "model", "optimizer"}
"""Attributes, next to evaluation's, that RLlib would pass to methods that are ours here."""


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
        self._directory = os.getcwd()
        self.round_callbacks: tuple[OnRound, ...] = ()
        self.engine_factory: Any = None
        self.restart_failed_env_runners = True
        self.seed: Any = 0
        self.env_runner_cls: Any = SealEnvRunner
        self.multi_agent(policies=(SOLVER,), policy_mapping_fn=_module_of)
        self.batch_mode = "complete_episodes"
        self.grad_clip_by = "global_norm"
        # RLlib must not do what `Seal` does itself, and must not block.
        self.add_default_connectors_to_learner_pipeline = False
        self.sample_timeout_s: Any = None
        self.delay_between_env_runner_restarts_s = 1
        self.env_runner_health_probe_timeout_s = 0.2
        self.validate_env_runners_after_construction = False
        self.log_level = "ERROR"

    def environment(self, env: Any = None, **settings: Any) -> Self:
        """The training tasks: see `schema.EnvironmentSection`. `env` is RLlib's name of `source`."""
        return self._set("environment", settings if env is None else {**settings, "source": env})

    def engine(self, **settings: Any) -> Self:
        """The engines that sample completions: see `schema.EngineSection`."""
        return self._set("engine", settings)

    def solver(self, **settings: Any) -> Self:
        """The model that plays and learns: see `schema.SolverSection`."""
        return self._set("solver", settings)

    def curator(self, **settings: Any) -> Self:
        """Proposes the interface: see `schema.CuratorSection` and its subclasses."""
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
        """The evaluation: see `schema.EvaluationSection`."""
        return self._set("evaluation", settings)

    def env_runners(self, **settings: Any) -> Self:
        """The actors that play: see `schema.EnvRunnersSection`; takes RLlib's other settings too."""
        return self._set("env_runners", settings, more=super().env_runners)

    def learners(self, **settings: Any) -> Self:
        """The actors that learn: see `schema.LearnersSection`; takes RLlib's other settings too."""
        return self._set("learners", settings, more=super().learners)

    def fault_tolerance(self, **settings: Any) -> Self:
        """Limits of failures: see `schema.FaultToleranceSection`; takes RLlib's other settings too."""
        return self._set("fault_tolerance", settings, more=super().fault_tolerance)

    def on_round(self, callback: OnRound) -> Self:
        """Calls `callback` with the `RoundReport` of each round. Its exceptions are logged."""
        self.round_callbacks = (*self.round_callbacks, callback)
        return self

    def section(self, section: type[S]) -> S:
        """A section as a checked value, of a union by its kind. Raises `UserError` for a wrong value."""
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
        made = make_section(name, values)
        assert isinstance(made, section)
        return made

    def to_sections(self) -> dict[str, dict[str, Any]]:
        """All settings as plain values: section → key → value, as in a preset file."""
        return {name: self.section(section).model_dump(mode="json") for name, section in SECTIONS.items()}

    @property
    def spec(self) -> RunSpec:
        """The resolved settings, cached for a frozen config. Raises `UserError`."""
        if self._is_frozen and self._spec is not None:
            return self._spec
        sections = {name: self.section(section) for name, section in SECTIONS.items()}
        return resolve(self.seed, sections, self.engine_factory, self._directory)

    def freeze(self) -> None:
        """As RLlib's."""
        self._spec = self.spec
        super().freeze()

    def to_dict(self) -> dict[str, Any]:
        """As RLlib's, without what belongs to this process."""
        values: dict[str, Any] = super().to_dict()
        return {name: value for name, value in values.items() if name not in ("_spec", "_directory")}

    def update_from_dict(self, config_dict: Mapping[str, Any]) -> Self:
        """Sets attributes by their names, as Tune does. Raises `UserError` for an unknown name."""
        others = {}
        for key, value in config_dict.items():
            name = self.attribute_of(key)
            # Tune adds keys such as "__trial_info__".
            if name not in vars(self) and key not in _READ_BY_RLLIB and not key.startswith("__"):
                raise unknown_value("config", key, sorted(vars(self)))
            if name.startswith("evaluation_") or name in _SET_AS_THEY_ARE:
                setattr(self, name, value)
            else:
                others[key] = value
        super().update_from_dict(others)
        return self

    def validate(self) -> None:
        """Checks every section, and their consistency. Raises `UserError` with one sentence."""
        from seal_ray.algorithm.checks import check_run

        spec = self.spec
        check_run(spec)
        self.multi_agent(policies=spec.learning_agents)
        # RLlib's notice about the new API stack would be logged otherwise.
        log_once(f"{getattr(self.algo_class, '__name__', self.algo_class)}_on_new_api_stack")
        super().validate()

    def get_default_learner_class(self) -> type:
        from seal_ray.training.learner import SealLearner

        return SealLearner

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        from seal_ray.training.module import LMModule

        return RLModuleSpec(module_class=LMModule, model_config=_module_config(self.spec, SOLVER))

    def get_multi_rl_module_spec(self, **settings: Any) -> MultiRLModuleSpec:
        """As RLlib's, with each agent's own model."""
        modules: MultiRLModuleSpec = super().get_multi_rl_module_spec(**settings)
        specs: Any = modules.rl_module_specs
        for agent in self.spec.learning_agents:
            specs[agent].model_config = _module_config(self.spec, agent)
        return modules

    def build_learner_group(self, *, rl_module_spec: Any = None, **_: Any) -> LearnerGroup:
        from seal_ray.training.learner_group import SealLearnerGroup

        return SealLearnerGroup(config=self.copy(), module_spec=rl_module_spec)

    def _set(self, section: str, settings: Mapping[str, Any], more: Callable[..., Any] | None = None) -> Self:
        """Sets our settings, and passes others to RLlib's method `more`. Sets nothing if one is unknown."""
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
    """Arguments of an agent's `LMModule`."""
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
    """The config of presets, file and words, by `read_sections`; `seed` overrides the file's.

    Values are not checked before `validate()`. Raises `UserError` for anything that cannot be read or set.
    """
    sections, file_seed = read_sections(presets, file=file, overrides=overrides, shared=shared)
    config = apply(SealConfig(), sections)
    config.seed = file_seed if seed is None else seed
    return config


def apply(config: SealConfig, values: Mapping[str, Mapping[str, Any]]) -> SealConfig:
    """Sets every value through the fluent method of its section. Raises `UserError` for an unknown key."""
    for section, settings in values.items():
        for key in settings:
            check_key(section, key)
        getattr(config, section)(**settings)
    return config
