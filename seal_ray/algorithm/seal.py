"""`Seal`: solver and curator co-evolve around a fixed verifier (SEAL, arXiv 2605.24426), a round a `train()`."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ray.util
from ray.tune.execution.placement_groups import PlacementGroupFactory

from seal_ray.agent import Agent, start_agents
from seal_ray.algorithm.co_evolution import CoEvolution
from seal_ray.algorithm.config import SealConfig
from seal_ray.algorithm.report import EvaluationReport, RoundReport
from seal_ray.config.resolve import RunSpec
from seal_ray.evaluation.suites import make_suites
from seal_ray.rllib import RoundAlgorithm
from seal_ray.training.learner_group import SealLearnerGroup

_STATE = "seal"
_log = logging.getLogger("seal_ray")


class Seal(RoundAlgorithm):
    """The algorithm. `train()` plays one round of `run`, learns from it, and calls the callbacks with its `report`."""

    config: SealConfig
    learner_group: SealLearnerGroup

    @classmethod
    def get_default_config(cls) -> SealConfig:
        return SealConfig()

    @classmethod
    def default_resource_request(cls, config: Any) -> PlacementGroupFactory:
        """RLlib's bundles and one for each engine of each agent, without empty ones, which Ray refuses."""
        request = super().default_resource_request(config)
        assert isinstance(request, PlacementGroupFactory)
        full = config if isinstance(config, SealConfig) else cls.get_default_config().update_from_dict(config)
        spec = full.spec
        engine = {"CPU": spec.engine.num_cpus_per_engine, "GPU": spec.engine.num_gpus_per_engine}
        bundles = [*request.bundles, *[engine] * spec.num_engines]
        return PlacementGroupFactory([each for each in bundles if any(each.values())], strategy=request.strategy)

    def setup(self, config: Any) -> None:
        self.spec: RunSpec = self.config.spec
        suites = make_suites(self.spec.environment, self.spec.evaluation)
        # Engines start in the background, and take as long as all else. In a trial's placement group they must come
        # first, since RLlib's learners take any bundle that has room. On GPUs without a group they come last: Ray packs
        # shares of GPUs tightly, and would leave the learners none.
        first = ray.util.get_current_placement_group() is not None or not self.spec.engine.num_gpus_per_engine
        agents = start_agents(self.spec) if first else None
        super().setup(config)
        agents = start_agents(self.spec) if agents is None else agents
        for agent in agents.values():
            agent.learners = self.learner_group
        assert self.env_runner_group is not None
        self.run = CoEvolution(self.spec, agents, self.env_runner_group, suites)
        self.report: RoundReport | None = None
        """Of the newest round of this process."""
        self.run.deliver()

    @property
    def agents(self) -> Mapping[str, Agent]:
        return self.run.agents

    @property
    def solver(self) -> Agent:
        return self.run.solver

    @property
    def round(self) -> int:
        """Number of finished rounds."""
        return self.run.round

    def step(self) -> Any:
        """As RLlib's; the round's report then goes to the callbacks."""
        result = super().step()
        assert self.report is not None
        for callback in self.config.round_callbacks:
            try:
                callback(self.report)
            except Exception:  # noqa: BLE001 - a callback can raise anything, and must not end the run
                _log.exception("a callback of round %d raised", self.report.round)
        return result

    def training_step(self) -> None:
        """One round."""
        self.report = self.run.play_round()
        assert self.metrics is not None
        for name, value in self.report.metrics.items():
            self.metrics.log_value(name, value, reduce="mean", window=1)

    def evaluate(self, parallel_train_future: Any = None) -> dict[str, Any]:  # noqa: ARG002 - RLlib passes it
        """Evaluates after a round at RLlib's interval."""
        evaluation = self.play_evaluation()
        return {**evaluation.metrics, "seconds": evaluation.seconds}

    def play_evaluation(self) -> EvaluationReport:
        """Plays the evaluation suites, and adds the evaluation to the report of the present round."""
        evaluation = self.run.evaluate()
        if self.report is not None:
            self.report = replace(self.report, evaluation=evaluation)
        return evaluation

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        state: dict[str, Any] = super().get_state(components, not_components=not_components, **kwargs)
        if self.wants(_STATE, components, not_components):
            state[_STATE] = self.run.get_state()
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(dict(state))
        if _STATE in state:
            self.run.set_state(state[_STATE])

    def restore_from_path(self, path: Any, **kwargs: Any) -> None:
        super().restore_from_path(path, **kwargs)
        self.run.deliver()

    def restore_env_runners(self, env_runner_group: Any) -> list[int]:
        """As RLlib's, without state: runners have none."""
        restored: list[int] = env_runner_group.probe_unhealthy_env_runners()
        return restored

    def cleanup(self) -> None:
        # Engines first: RLlib waits for runners, and runners wait for engines.
        self.run.close()
        super().cleanup()
