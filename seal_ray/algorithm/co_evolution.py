"""`CoEvolution`: the rounds of solver, curator and task writer. RLlib's side is in `seal.py`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any

from pydantic import TypeAdapter
from ray.rllib.env.env_runner_group import EnvRunnerGroup

from envs.dialogue import Protocol
from envs.profile import FailureProfile
from envs.roles import CURATOR, SOLVER, TASK_WRITER
from envs.sources import get_source
from policies.trajectory import derive_seed
from seal_ray.agent import Agent
from seal_ray.algorithm.report import EvaluationReport, RoundReport
from seal_ray.config.resolve import RunSpec
from seal_ray.evaluation.suites import Suites
from seal_ray.grpo.advantages import ADVANTAGES
from seal_ray.grpo.rewards import find_reward
from seal_ray.grpo.reweighting import Reweighter
from seal_ray.proposing.curator import start_curator_loop
from seal_ray.proposing.loop import WindowReport
from seal_ray.proposing.task_writer import start_task_writer_loop
from seal_ray.rollout.dispatch import check_faults, play
from seal_ray.rollout.metrics import rollout_metrics, sampled_tokens
from seal_ray.rollout.planner import Planner, play_waves
from seal_ray.rollout.types import PLAIN_ARM, Group, GroupPlan, played_trajectories
from seal_ray.training.hint_stripped import internalisation_metrics
from seal_ray.training.rows import GroupScorer, RoundRows, make_rows


@dataclass(frozen=True)
class PlayedRound:
    """The waves of groups of a round, its seconds by phase, and whether it began with another incumbent."""

    waves: list[list[Group]]
    times: dict[str, float]
    changed: bool


_PLAYED = TypeAdapter(PlayedRound | None)


class CoEvolution:
    """The state of a run and its rounds. `curator` and `task_writer` read the failure `profile`.

    With `training.staleness` 1 the next round is played while this one is learnt. It is held, and part of the state.
    """

    def __init__(self, spec: RunSpec, agents: Mapping[str, Agent], runners: EnvRunnerGroup, suites: Suites) -> None:
        self.spec = spec
        self.agents = agents
        self.round = 0
        self._ahead: PlayedRound | None = None
        self.profile = FailureProfile()
        self._runners = runners
        self._suites = suites
        self._reward = find_reward(spec.environment.reward)
        self._score = GroupScorer(ADVANTAGES.make(spec.training.advantage), spec.training.min_group_completion)
        self._planner = Planner(spec)
        self._reweighter = Reweighter(spec.reweighting)
        tested = suites.tasks if spec.evaluation.interval else ()
        self.curator = start_curator_loop(
            spec,
            agents.get(CURATOR),
            solver=self.solver.model,
            guarded=lambda: [*tested, *self._planner.tasks.finite_set],
            play=self._play_checked,
        )
        self.task_writer = start_task_writer_loop(spec, agents.get(TASK_WRITER), tested=tested, play=self._play_checked)
        self._planner.written = self.task_writer

    @property
    def solver(self) -> Agent:
        return self.agents[SOLVER]

    def play_round(self) -> RoundReport:
        """One round: propose, play, score, close the windows, learn, deliver, report."""
        played, self._ahead = self._ahead or self._play_next(), None
        waves, times = played.waves, dict(played.times)
        groups = [group for wave in waves for group in wave]
        with _timed(times, "advantage"):
            rows = make_rows(groups, score=self._score, training=self.spec.training, reweighter=self._reweighter)
            self._observe(groups)
        self._sleep()
        with _timed(times, "curate"):
            curator = self.curator.close_round(self.round, groups)
            # The next round may be played while the solver learns; otherwise a window ends with the learnt weights.
            written = self._close_task_writer(self.round, groups) if self.spec.training.staleness else None
        self.round += 1
        metrics = {
            "round": self.round,
            **rollout_metrics(groups, get_source(self.spec.environment.source).categories),
            "solver/groups_replaced": len(groups) - len(waves[0]),
            "solver/waves": len(waves),
            "solver/tasks_seen": self._planner.tasks_seen,
            **rows.metrics,
            **curator.metrics,
            "interface/changed": int(played.changed or curator.metrics.get("curator/promoted", 0.0)),
            "interface/guidelines": len(self.curator.incumbent.interface.guidelines),
            **{f"diagnosis/rho/{label}": weight for label, weight in self._reweighter.rho.items()},
            "perf/tokens_per_second": sampled_tokens(groups) / times["rollout"],
        }
        window, profile = self.curator.window, self.profile.to_dict()
        metrics |= self._learn(rows, times, [arm.id for arm in self.curator.arms])
        if written is None:
            written = self._close_task_writer(self.round - 1, groups)
        metrics |= {
            **written.metrics,
            **{f"perf/{name}_seconds": value for name, value in times.items()},
            "perf/engine_restarts": self.solver.engines.restarts,
            "perf/runner_restarts": self._runners.num_remote_worker_restarts(),
        }
        proposed = (window.arms, window.rounds, curator, written)
        return RoundReport(self.round, tuple(groups), *proposed, profile, metrics, rows.weighted)

    def _play_next(self) -> PlayedRound:
        """Proposes, and plays the round."""
        times: dict[str, float] = {}
        with _timed(times, "propose"):
            changed = self._propose()
        with _timed(times, "rollout"):
            waves = play_waves(
                self._planner.plan(self.curator.arms, self.round, self.curator),
                play=lambda plans: [group.scored(self._reward) for group in self._play(plans)],
                is_equal=self._score.is_equal,
                replace=self._planner.replace,
                max_groups=self.spec.training.max_groups,
            )
            check_faults([group for wave in waves for group in wave], max_share=self._max_fault_share)
        return PlayedRound(waves, times, changed)

    def _learn(self, rows: RoundRows, times: dict[str, float], arms: Sequence[str]) -> dict[str, float]:
        """Learns, alongside the next round if `training.staleness` is 1, and delivers. Returns metrics."""
        training = self.spec.training
        self._sleep()
        with ThreadPoolExecutor(1) as pool:
            next_round = pool.submit(self._play_next) if training.staleness and self.round < training.rounds else None
            try:
                with _timed(times, "learn"):
                    learnt = self.solver.learn(rows.minibatches)
                    internalisation = self.solver.internalisation() if learnt else {}
            except BaseException:
                if next_round is not None:
                    self.close()  # without engines its play ends too
                raise
            if next_round is not None:
                self._ahead = next_round.result()
        with _timed(times, "sync"):
            if learnt:
                self.solver.deliver_update()
        learnt = {f"solver/{key}": value for key, value in learnt.items()}
        return learnt | internalisation_metrics(internalisation, arms)

    def _close_task_writer(self, round_number: int, groups: Sequence[Group]) -> WindowReport:
        if self.task_writer is None:
            return WindowReport()
        self._sleep()
        return self.task_writer.close_round(round_number, groups)

    def evaluate(self) -> EvaluationReport:
        """Plays the tasks of the suites on the plain interface, under the rules of their source."""
        started = perf_counter()
        groups = self._play_checked(self._evaluation_plans)
        trajectories = played_trajectories(groups)
        metrics = self._suites.count(trajectories)
        return EvaluationReport(self._suites.outcomes(trajectories), metrics, perf_counter() - started, groups)

    def _propose(self) -> bool:
        """Begins the windows that are due. Returns whether the incumbent has changed."""
        if self.task_writer is not None and self.task_writer.begins_at(self.round):
            self.task_writer.propose(self.profile, round_number=self.round, heal=self.heal)
        if not self.curator.begins_at(self.round):
            return False
        changed = self.curator.propose(
            self.profile,
            round_number=self.round,
            seed=derive_seed(self.spec.seed, "curator", self.round),
            upcoming=self._planner.upcoming(),
            rollouts=self._planner.shown_rollouts(self.round),
            heal=self.heal,
        )
        if self.round:
            self._reweighter.follow()
        self.profile.start_window()
        return changed

    def _play(self, plans: Sequence[GroupPlan]) -> list[Group]:
        """Plays groups with the solver's present weights."""
        timeout = self.spec.fault_tolerance.engine_timeout
        return play(self._runners, plans, self.solver.target(), heal=self.heal, timeout=timeout)

    def _play_checked(self, plans: Sequence[GroupPlan]) -> list[Group]:
        """The same. Raises `TooManyFaults` as `check_faults` does."""
        groups = self._play(plans)
        check_faults(groups, max_share=self._max_fault_share)
        return groups

    @property
    def _max_fault_share(self) -> float:
        return self.spec.fault_tolerance.max_fault_share

    def _sleep(self) -> None:
        """With `engine.sleep` leaves the GPUs' memory to learners until engines get a request or new weights."""
        for agent in self.agents.values():
            if self.spec.engine.sleep and agent.spec.owns_engines:
                agent.engines.sleep()

    def _observe(self, groups: Sequence[Group]) -> None:
        self._planner.observe(groups)
        for group in groups:
            for member in group.played:
                self.profile.add(member.trajectory.diagnosis, member.trajectory.reward)
                self._reweighter.observe(member.trajectory.diagnosis, member.reward)

    @cached_property
    def _evaluation_plans(self) -> list[GroupPlan]:
        source = get_source(self.spec.evaluation.source or self.spec.environment.source)
        return [
            GroupPlan(
                number=place,
                task=task.id,
                category=str(task.category),
                arm=PLAIN_ARM,
                protocol=Protocol(source.protocol),
                seeds=(derive_seed(self.spec.seed, "evaluation", task.id),),
                temperature=0.0,
            )
            for place, task in enumerate(self._suites.tasks)
        ]

    def heal(self) -> None:
        """Restarts engines that died, without blocking."""
        for agent in self.agents.values():
            agent.heal()

    def deliver(self) -> None:
        """Sends all engines their weights, and blocks until they have proven them."""
        for agent in self.agents.values():
            agent.deliver()
        for agent in self.agents.values():
            agent.settle()

    def close(self) -> None:
        """Ends all engines."""
        for agent in self.agents.values():
            agent.close()

    def get_state(self) -> dict[str, Any]:
        """JSON values for a checkpoint."""
        return {
            "round": self.round,
            "ahead": json.dumps(_PLAYED.dump_python(self._ahead), default=list),  # a text: models can nest deeply
            **self._planner.get_state(),
            "versions": {name: agent.version for name, agent in self.agents.items()},
            "curator": self.curator.get_state(),
            "task_writer": None if self.task_writer is None else self.task_writer.get_state(),
            "profile": self.profile.to_dict(),
            "reweighter": self._reweighter.get_state(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """The inverse of `get_state`."""
        self.round = state["round"]
        self._ahead = _PLAYED.validate_python(json.loads(state["ahead"]))
        self._planner.set_state(state)
        for name, agent in self.agents.items():
            agent.version = state["versions"][name]
        self.curator.set_state(state["curator"])
        if self.task_writer is not None:
            self.task_writer.set_state(state["task_writer"])
        self.profile = FailureProfile.from_dict(state["profile"])
        self._reweighter.set_state(state["reweighter"])


@contextmanager
def _timed(times: dict[str, float], name: str) -> Iterator[None]:
    started = perf_counter()
    yield
    times[name] = perf_counter() - started
