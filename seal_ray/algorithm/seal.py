"""`Seal`: solver and curator co-evolve around a fixed verifier (SEAL, arXiv 2605.24426), a round a `train()`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from time import perf_counter
from typing import Any

import ray.util
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from ray.tune.execution.placement_groups import PlacementGroupFactory

from envs.co_evolution import CURATOR, SOLVER, WRITER
from envs.dialogue import Protocol
from envs.profile import FailureProfile
from envs.sources import get_source
from envs.task import Task
from policies.trajectory import derive_seed
from seal_ray.algorithm.agent import Agent, start_agents, version_in
from seal_ray.algorithm.config import SealConfig
from seal_ray.algorithm.curation.curation import start_curator_loop
from seal_ray.algorithm.learning.advantages_to_rows import GroupScorer, Reweighter, make_rows
from seal_ray.algorithm.learning.anchoring import gap_closed, internalisation_metrics
from seal_ray.algorithm.learning.learner_group import SealLearnerGroup
from seal_ray.algorithm.objects import make_advantages, make_reward, make_suites
from seal_ray.algorithm.rllib import RoundAlgorithm
from seal_ray.algorithm.sampling.dispatch import play
from seal_ray.algorithm.sampling.groups import (
    PLAIN_ARM,
    GroupPlan,
    PlayedGroup,
    check_faults,
    of_rollouts,
    sampled_tokens,
)
from seal_ray.algorithm.sampling.planner import Planner
from seal_ray.algorithm.sampling.waves import play_on_demand, play_waves
from seal_ray.algorithm.tasks.authorship import start_task_writer_loop
from seal_ray.config import sections
from seal_ray.config.agents import all_engines
from seal_ray.evaluation.suites import Outcomes
from seal_ray.grpo.arms import PLAIN

_STATE = "seal"


class Seal(RoundAlgorithm):
    """The algorithm. `train()` plays and learns one round; its result has the metrics of `seal_ray/report/metrics.py`.

    `agents` are the language models of the run by name. `last_round` holds the groups played last, `last_evaluation`
    what came of each task of the last evaluation, `profile` what the curator and the writer see; `curation` and
    `authorship` are their sides.
    """

    config: SealConfig
    learner_group: SealLearnerGroup

    @classmethod
    def get_default_config(cls) -> SealConfig:
        return SealConfig()

    @classmethod
    def default_resource_request(cls, config: Any) -> PlacementGroupFactory:
        """RLlib's bundles and one for each engine of each agent."""
        found = super().default_resource_request(config)
        assert isinstance(found, PlacementGroupFactory)
        full = config if isinstance(config, SealConfig) else cls.get_default_config().update_from_dict(config)
        engine = full.section(sections.Engine)
        bundle = {"CPU": engine.num_cpus_per_engine, "GPU": engine.num_gpus_per_engine}
        return PlacementGroupFactory([*found.bundles, *[bundle] * all_engines(full)], strategy=found.strategy)

    def setup(self, config: Any) -> None:
        settings = self.config
        self._environment = settings.section(sections.Environment)
        self._training = settings.section(sections.Training)
        self._evaluation = settings.section(sections.Evaluation)
        self._show = settings.section(sections.Curator).show
        self._limits = settings.section(sections.FaultTolerance)
        self._reward = make_reward(self._environment)
        self._compare = GroupScorer(self._reward, make_advantages(self._training), self._training.group_floor)
        self._suites = make_suites(self._environment, self._evaluation)
        self._seed = int(settings.seed)
        # Engines take as long to start as all else together, and start beside it. In a trial's placement group they
        # have bundles of their own, and must come first: RLlib's learners take any that has room. On GPUs, where there
        # is no group, they come last: Ray packs shares of GPUs tightly, and would leave the learners none.
        on_gpus = settings.section(sections.Engine).num_gpus_per_engine > 0
        first = ray.util.get_current_placement_group() is not None or not on_gpus
        agents = start_agents(settings) if first else None
        super().setup(config)
        self.agents = start_agents(settings) if agents is None else agents
        for agent in self.agents.values():
            agent.learners = self.learner_group
        self.round = 0
        self._planner = Planner(settings)
        self._reweighter = Reweighter(settings.section(sections.Reweighting))
        self.curation = start_curator_loop(
            settings, self.agents.get(CURATOR), solver=self.solver.model, guarded=self._guarded_tasks
        )
        tested = self._suites.tasks if self._evaluation.interval else ()
        self.authorship = start_task_writer_loop(
            settings, self.agents.get(WRITER), tested=tested, play=self._play_checked
        )
        self._planner.written = self.authorship
        self.profile = FailureProfile()
        self.last_round: Sequence[PlayedGroup] = ()
        self.last_evaluation: Outcomes = {}
        self._deliver()

    @property
    def solver(self) -> Agent:
        return self.agents[SOLVER]

    def training_step(self) -> None:
        """One round: propose, play, weigh, learn, deliver, judge."""
        times: dict[str, float] = {}
        with _timed(times, "propose"):
            changed = self._propose()
        with _timed(times, "rollout"):
            waves = play_waves(
                self._planner.plan(self.curation.arms, self.round, self.curation),
                play=self._play_for_training,
                is_equal=self._compare.is_equal,
                replace=self._planner.replace,
                most=self._training.most_groups,
            )
            groups = [group for wave in waves for group in wave]
            check_faults(groups, most=self._limits.max_fault_share)
        with _timed(times, "advantage"):
            rows = make_rows(
                groups,
                compare=self._compare,
                training=self._training,
                reweighter=self._reweighter,
                round_number=self.round,
                compare_arms=self.curation.compares_gradients,
            )
            self._observe(groups)
        with _timed(times, "learn"):
            learnt = self.solver.learn(rows.minibatches)
            internalised = self.solver.internalised() if learnt else {}
        with _timed(times, "sync"):
            if learnt:
                self.solver.deliver()
        with _timed(times, "curate"):
            alignments, seconds = self._alignments(groups, learnt)
            curated = self.curation.close_round(self.round, groups, alignments, gap_closed(internalised))
            curated |= self.authorship.close_round(self.round, groups)
        # What the comparison took of the solver's update is the curator's.
        times["learn"] -= seconds
        times["curate"] += seconds
        self.last_round = groups
        self.round += 1
        measured = {
            "round": self.round,
            **of_rollouts(groups, self._reward, get_source(self._environment.source).categories),
            "solver/groups_replaced": len(groups) - len(waves[0]),
            "solver/waves": len(waves),
            "solver/tasks_seen": self._planner.tasks_seen,
            **rows.measured,
            **{f"solver/{key}": value for key, value in learnt.items()},
            **internalisation_metrics(internalised),
            **curated,
            "interface/changed": int(changed or curated.get("curator/promoted", 0.0)),
            "interface/guidelines": len(self.curation.incumbent.guidelines),
            **{f"diagnosis/rho/{label}": weight for label, weight in self._reweighter.rho.items()},
            **{f"perf/{name}_seconds": value for name, value in times.items()},
            "perf/engine_restarts": self.solver.engines.restarts,
            "perf/runner_restarts": self._runners.num_remote_worker_restarts(),
            "perf/tokens_per_second": sampled_tokens(groups) / times["rollout"],
        }
        assert self.metrics is not None
        for name, value in measured.items():
            self.metrics.log_value(name, value, reduce="mean", window=1)

    def evaluate(self, parallel_train_future: Any = None) -> dict[str, Any]:  # noqa: ARG002 - RLlib passes it
        """Plays the suites' tasks on the plain interface under the rules of their source. Returns what was measured."""
        started = perf_counter()
        groups = self._play_checked(self._evaluation_plans)
        trajectories = [each for group in groups for each in group.trajectories]
        self.last_evaluation = self._suites.outcomes(trajectories)
        return {**self._suites.count(trajectories), "seconds": perf_counter() - started}

    def _propose(self) -> bool:
        """Begins windows where it is time. Returns whether the interface in force is another than before."""
        self.authorship.write(self.profile, round_number=self.round, heal=self._heal)
        if not self.curation.begins_at(self.round):
            return False
        changed = self.curation.propose(
            self.profile,
            round_number=self.round,
            seed=derive_seed(self._seed, "curator", self.round),
            upcoming=self._planner.upcoming(),
            rollouts=self._planner.shown_rollouts(self.round),
            heal=self._heal,
        )
        if self.round:
            self._reweighter.follow()
        self.profile.start_window()
        return changed

    def _play(self, plans: Sequence[GroupPlan]) -> list[PlayedGroup]:
        """The groups as the solver plays them now."""
        return play(self._runners, plans, self.solver.target(), heal=self._heal, timeout=self._limits.engine_timeout)

    def _play_checked(self, plans: Sequence[GroupPlan]) -> list[PlayedGroup]:
        """The same. Raises `TooManyFaults` as `check_faults` does."""
        groups = self._play(plans)
        check_faults(groups, most=self._limits.max_fault_share)
        return groups

    def _play_for_training(self, plans: Sequence[GroupPlan]) -> list[PlayedGroup]:
        """The groups of a round; of pairs, as much as `curator.show` says."""
        return play_on_demand(plans, play=self._play) if self._show == "when_failing" else self._play(plans)

    def _observe(self, groups: Sequence[PlayedGroup]) -> None:
        self._planner.observe(groups)
        for group in groups:
            for trajectory in group.trajectories:
                self.profile.add(trajectory.diagnosis, trajectory.reward)
                self._reweighter.observe(trajectory, self._reward(trajectory))

    def _alignments(self, groups: Sequence[PlayedGroup], learnt: Mapping[str, float]) -> tuple[dict[int, float], float]:
        """Number of an arm → cosine of its gradient with the plain arm's in this round; 0 where it has none.

        And the seconds that it took while the solver learnt.
        """
        arms = sorted({PLAIN, *(arm.number for group in groups for arm in group.plan.arms)})
        if not self.curation.compares_gradients or len(arms) == 1:
            return {}, 0.0
        if not learnt:
            return dict.fromkeys(arms[1:], 0.0), 0.0
        (with_plain, *_), seconds = self.solver.alignments(arms)
        return dict(zip(arms[1:], with_plain[1:], strict=True)), seconds

    @cached_property
    def _evaluation_plans(self) -> list[GroupPlan]:
        return [
            GroupPlan(
                number=place,
                task=task.id,
                arm=PLAIN_ARM,
                protocol=Protocol(get_source(self._evaluation.source or self._environment.source).protocol),
                seeds=(derive_seed(self._seed, "evaluation", task.id),),
                temperature=self._evaluation.temperature,
            )
            for place, task in enumerate(self._suites.tasks)
        ]

    def _guarded_tasks(self) -> list[Task]:
        """The tasks whose answers no interface of this run may give away."""
        tested = self._suites.tasks if self._evaluation.interval else ()
        return [*tested, *self._planner.tasks.finite_set]

    @property
    def _runners(self) -> EnvRunnerGroup:
        assert self.env_runner_group is not None
        return self.env_runner_group

    def _heal(self) -> None:
        for agent in self.agents.values():
            agent.heal()

    def _deliver(self) -> None:
        for agent in self.agents.values():
            agent.deliver()
        for agent in self.agents.values():
            agent.settle()

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        state: dict[str, Any] = super().get_state(components, not_components=not_components, **kwargs)
        if self.wants(_STATE, components, not_components):
            state[_STATE] = {
                "round": self.round,
                **self._planner.get_state(),
                "versions": {name: agent.version for name, agent in self.agents.items()},
                "curation": self.curation.get_state(),
                "authorship": self.authorship.get_state(),
                "profile": self.profile.to_dict(),
                "reweighter": self._reweighter.get_state(),
            }
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(dict(state))
        if _STATE in state:
            own = state[_STATE]
            self.round = own["round"]
            self._planner.set_state(own)
            for name, agent in self.agents.items():
                agent.version = version_in(own, name)
            self.curation.set_state(own["curation"])
            self.authorship.set_state(own.get("authorship", {}))
            self.profile = FailureProfile.from_dict(own["profile"])
            self._reweighter.set_state(own["reweighter"])

    def restore_from_path(self, path: Any, **kwargs: Any) -> None:
        super().restore_from_path(path, **kwargs)
        self._deliver()

    def restore_env_runners(self, env_runner_group: Any) -> list[int]:
        """Runners have no state, so that one that was restarted needs none."""
        found: list[int] = env_runner_group.probe_unhealthy_env_runners()
        return found

    def cleanup(self) -> None:
        # Engines first: RLlib waits for runners, and these for engines.
        for agent in self.agents.values():
            agent.close()
        super().cleanup()


@contextmanager
def _timed(times: dict[str, float], name: str) -> Iterator[None]:
    started = perf_counter()
    yield
    times[name] = perf_counter() - started
