"""`Seal`: solver and curator co-evolve around a fixed verifier (SEAL, arXiv 2605.24426), a round a `train()`."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from time import perf_counter
from typing import Any

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from ray.tune.execution.placement_groups import PlacementGroupFactory

from envs.co_evolution import CURATOR, SOLVER
from envs.diagnosis import Label
from envs.dialogue import Protocol
from envs.errors import SealError
from envs.interface import Interface
from envs.profile import FailureProfile
from envs.sources import get_source
from envs.task import JSON, in_order
from policies.engine import BASE
from policies.engine.requests import checkpoint_shapes
from policies.model_folder import ModelFolder, open_model
from policies.trajectory import Trajectory, derive_seed
from seal_ray.algorithm.agent_engines import start_engines
from seal_ray.algorithm.curation import Curation, plain_curator
from seal_ray.algorithm.curator_engines import CuratorEngines
from seal_ray.algorithm.dispatch import play
from seal_ray.algorithm.engine_actor import Payload
from seal_ray.algorithm.engine_pool import EnginePool
from seal_ray.algorithm.gradient import Reweighter, RoundRows, make_rows, reward_of
from seal_ray.algorithm.leaks import RunGuard
from seal_ray.algorithm.learner import RatioError
from seal_ray.algorithm.learner_group import SealLearnerGroup
from seal_ray.algorithm.round_plan import GroupPlan, plain_share_at, plan_round
from seal_ray.algorithm.runner import PlayedGroup, Target
from seal_ray.algorithm.tasks import TaskStream
from seal_ray.algorithm.weights import full_weights, lora_adapter
from seal_ray.config import sections
from seal_ray.config.agents import all_engines, curator_is_model, learning_agents, model_of
from seal_ray.config.evaluation_tasks import evaluation_tasks
from seal_ray.config.seal_config import SealConfig
from seal_ray.grpo.arms import PLAIN

_STATE = "seal"
CURATOR_LEARNT = ("loss", "kl", "ratio_first_error", "gradient_norm", "learning_rate")
"""What is told of the curator's update."""
_log = logging.getLogger("seal_ray")


class TooManyFaults(SealError, RuntimeError):
    """More dialogues of a round were lost to faults than `fault_tolerance.max_fault_share` allows."""


class Seal(Algorithm):
    """The algorithm. `train()` plays and learns one round; its result has the metrics of `seal_ray/report/metrics.py`.

    `last_round` holds the groups played last, `profile` what the curator sees, and `curation` the curator's side.
    `last_proposals` are those of the window that the last round belongs to, for people to read.
    """

    config: SealConfig
    learner_group: SealLearnerGroup

    @classmethod
    def get_default_config(cls) -> SealConfig:
        return SealConfig()

    @classmethod
    def default_resource_request(cls, config: Any) -> PlacementGroupFactory:
        """RLlib's bundles and one for each engine, the curator's own included."""
        found = super().default_resource_request(config)
        assert isinstance(found, PlacementGroupFactory)
        full = config if isinstance(config, SealConfig) else cls.get_default_config().update_from_dict(config)
        engine = full.section(sections.Engine)
        bundle = {"CPU": engine.num_cpus_per_engine, "GPU": engine.num_gpus_per_engine}
        return PlacementGroupFactory([*found.bundles, *[bundle] * all_engines(full)], strategy=found.strategy)

    @classmethod
    def _should_create_evaluation_env_runners(cls, eval_config: Any) -> bool:  # noqa: ARG003 - RLlib passes it
        return False  # evaluation plays on the training runners

    def setup(self, config: Any) -> None:
        settings = self.config
        self._environment = settings.section(sections.Environment)
        self._training = settings.section(sections.Training)
        self.solver_settings = settings.section(sections.Solver)
        self.engine_settings = settings.section(sections.Engine)
        self._evaluation = settings.section(sections.Evaluation)
        self._limits = settings.section(sections.FaultTolerance)
        self._curation = settings.section(sections.Curator)
        self._seed = int(settings.seed)
        self.model = open_model(self.solver_settings.model, dialect=self.solver_settings.dialect)
        self._policy = SOLVER if self.solver_settings.lora_rank else BASE
        self.engines = start_engines(settings, SOLVER)
        self.curator_engines = self._start_curator_engines()
        super().setup(config)
        self.round = 0
        self._next_group = 0
        self._version = 0
        self._tasks = TaskStream(self._environment, self._seed)
        self._reweighter = Reweighter(settings.section(sections.Reweighting))
        self.curation = self._make_curation()
        self.profile = FailureProfile()
        self.last_round: Sequence[PlayedGroup] = ()
        self.last_proposals: list[dict[str, JSON]] = []
        self._sync_solver()
        self._sync_curator()

    def training_step(self) -> None:
        """One round: propose, play, learn, sync, judge."""
        times: dict[str, float] = {}
        with _timed(times, "propose"):
            changed = self._propose()
        with _timed(times, "rollout"):
            groups = self._play(self._plan())
            self._check_faults(groups)
        with _timed(times, "advantage"):
            rows = make_rows(
                groups,
                environment=self._environment,
                training=self._training,
                reweighter=self._reweighter,
                round_number=self.round,
                compare_arms=self._compares_arms,
            )
            self._observe(groups)
        with _timed(times, "learn"):
            learnt = self.learner_group.learn(SOLVER, rows.minibatches) if rows.minibatches else {}
            self._check_ratio(SOLVER, learnt)
        with _timed(times, "sync"):
            if rows.minibatches:
                self._version += 1
                self._sync_solver()
        with _timed(times, "curate"):
            alignments, compared = self._alignments(groups, rows)
            self.curation.observe(groups, alignments)
            curated = self._judge()
        # What the comparison took of the solver's update is the curator's.
        times["learn"] -= compared
        times["curate"] += compared
        self.last_round = groups
        self.round += 1
        self._next_group += len(groups)
        counted = {
            **_of_rollouts(groups, get_source(self._environment.source).categories),
            "solver/reward": _mean(reward_of(t, self._environment) for g in groups for t in g.trajectories),
            **_of_rows(rows),
            **{f"solver/{key}": value for key, value in learnt.items()},
            **curated,
            "interface/changed": int(changed or curated.get("curator/promoted", 0.0)),
            "interface/guidelines": len(self.curation.incumbent.guidelines),
            "diagnosis/faults": sum(len(group.faults) for group in groups),
            **{f"diagnosis/rho/{label}": weight for label, weight in self._reweighter.rho.items()},
            **{f"perf/{name}_seconds": seconds for name, seconds in times.items()},
            "perf/engine_restarts": self.engines.restarts,
            "perf/runner_restarts": self._runners.num_remote_worker_restarts(),
            "perf/tokens_per_second": _sampled(groups) / times["rollout"],
        }
        self._log({"round": self.round, **counted})

    def evaluate(self, parallel_train_future: Any = None) -> dict[str, Any]:  # noqa: ARG002 - RLlib passes it
        """Plays the evaluation tasks on the plain interface under the official protocol, and counts."""
        started = perf_counter()
        groups = self._play(self._evaluation_plans)
        self._check_faults(groups)
        trajectories = [each for group in groups for each in group.trajectories]
        return {
            "dialogues": len(trajectories),
            "success": _mean(each.reward for each in trajectories),
            **{
                f"success/{category}": _mean(each.reward for each in trajectories if each.category == category)
                for category in in_order(each.category for each in trajectories)
            },
            "seconds": perf_counter() - started,
        }

    @property
    def _runners(self) -> EnvRunnerGroup:
        assert self.env_runner_group is not None
        return self.env_runner_group

    @cached_property
    def _evaluation_plans(self) -> list[GroupPlan]:
        return [
            GroupPlan(
                number=place,
                task=task.id,
                arm=0,
                interface=Interface.plain(),
                protocol=Protocol(get_source(self._evaluation.source or self._environment.source).protocol),
                seeds=(derive_seed(self._seed, "evaluation", task.id),),
                temperature=self._evaluation.temperature,
            )
            for place, task in enumerate(evaluation_tasks(self._environment, self._evaluation))
        ]

    def solver_weights(self) -> Mapping[str, Any]:
        """What the solver has learnt, by name, as whole tensors on the CPU."""
        return self.learner_group.module_weights(SOLVER)

    def _start_curator_engines(self) -> CuratorEngines | None:
        return CuratorEngines(self.config, self.engines) if curator_is_model(self.config) else None

    def _make_curation(self) -> Curation:
        if self.curator_engines is None:
            return Curation(self._curation, plain_curator(self._curation))
        tested = evaluation_tasks(self._environment, self._evaluation) if self._evaluation.interval else []
        self._guard = RunGuard(
            [*tested, *self._tasks.finite_set], self.model, most_tokens=self._curation.guideline_tokens
        )
        return Curation(self._curation, self.curator_engines.make_curator(self._guard.check))

    def _propose(self) -> bool:
        """Begins a window where it is time. Returns whether the interface in force is another than before."""
        if not self.curation.begins_at(self.round):
            return False
        if self.curator_engines is not None:
            ahead = self._training.groups * self._curation.update_every
            self._guard.start_window(self._tasks.tasks(range(self._next_group, self._next_group + ahead)))
        seed = derive_seed(self._seed, "curator", self.round)
        changed = self.curation.propose(self.profile, round_number=self.round, seed=seed, heal=self._heal)
        if self.round:
            self._reweighter.follow()
        self.profile.start_window()
        return changed

    @property
    def _compares_arms(self) -> bool:
        """Whether the curator is paid for what an arm's gradient does for the plain arm."""
        return self.curator_engines is not None and self._curation.reward == "transfer"

    def _alignments(self, groups: Sequence[PlayedGroup], learnt: RoundRows) -> tuple[dict[int, float], float]:
        """Arm → cosine of its gradient with the plain one's in this round; 0 where it has none.

        And the seconds that it took while the solver learnt.
        """
        arms = sorted({PLAIN, *(group.plan.arm for group in groups)})
        if not self._compares_arms or len(arms) == 1:
            return {}, 0.0
        if not learnt.minibatches:
            return dict.fromkeys(arms[1:], 0.0), 0.0
        (with_plain, *_), seconds = self.learner_group.alignments(SOLVER, arms)
        return dict(zip(arms[1:], with_plain[1:], strict=True)), seconds

    def _judge(self) -> dict[str, float]:
        """Ends the window where it is time: the incumbent, and the curator's step. Returns what was counted."""
        begun, curation = self.curation.begins_at(self.round), self.curation
        proposals = curation.window.proposals
        counted: dict[str, float] = {
            "curator/proposals": len(proposals) * begun,
            "curator/rejections": sum(each.rejection is not None for each in proposals) * begun,
        }
        if not curation.ends_at(self.round):
            self.last_proposals = curation.as_rows(None)
            return counted
        verdict = curation.judge()
        self.last_proposals = curation.as_rows(verdict)
        if self.curator_engines is None:
            return counted
        rewards = [reward for reward in verdict.rewards if reward is not None]
        counted["curator/promoted"] = int(verdict.promoted)
        if rewards:
            counted |= {"curator/reward": _mean(rewards), "curator/reward_best": max(rewards)}
        if verdict.rows and CURATOR in learning_agents(self.config):
            learnt = self.learner_group.learn(CURATOR, [verdict.rows])
            self._check_ratio(CURATOR, learnt)
            counted |= {f"curator/{key}": learnt[key] for key in CURATOR_LEARNT}
            self.curator_engines.version += 1
            self._sync_curator()
        return counted

    def _plan(self) -> list[GroupPlan]:
        numbers = range(self._next_group, self._next_group + self._training.groups)
        curation = self._curation
        return plan_round(
            [self._tasks.task_id(number) for number in numbers],
            self.curation.interfaces,
            first_number=self._next_group,
            plain_share=plain_share_at(
                self.round,
                rounds=self._training.rounds,
                start=curation.plain_share,
                end=curation.plain_share_end,
                fade_from=curation.fade_from,
            ),
            group_size=self._training.group_size,
            protocol=Protocol(self._environment.protocol),
            temperature=self.solver_settings.temperature,
            seed=self._seed,
        )

    def _play(self, plans: Sequence[GroupPlan]) -> list[PlayedGroup]:
        return play(
            self._runners,
            plans,
            Target(self.engines.actors, self._policy, self._version),
            heal=self._heal,
            timeout=self._limits.engine_timeout,
        )

    def _observe(self, groups: Sequence[PlayedGroup]) -> None:
        for group in groups:
            for trajectory in group.trajectories:
                self.profile.add(trajectory.diagnosis, trajectory.reward)
                self._reweighter.observe(trajectory, reward_of(trajectory, self._environment))

    def _heal(self) -> None:
        self.engines.heal()
        if self.curator_engines is not None and self.curator_engines.owns:
            self.curator_engines.pool.heal()

    def _sync_solver(self) -> None:
        """Gives every engine the solver's weights, with its proof that it computes with them."""
        self._deliver(SOLVER, self.engines, self.model, self._version)

    def _sync_curator(self) -> None:
        """The same for a curator that learns."""
        engines = self.curator_engines
        if engines is not None and CURATOR in learning_agents(self.config):
            self._deliver(CURATOR, engines.pool, engines.folder, engines.version)

    def _deliver(self, agent: str, engines: EnginePool, folder: ModelFolder, version: int) -> None:
        state, settings = self.learner_group.module_weights(agent), model_of(self.config, agent)
        if settings.lora_rank:
            adapter = lora_adapter(state, rank=settings.lora_rank, alpha=settings.lora_alpha)
            payload = Payload(agent, version, adapter=adapter)
        else:
            weights = full_weights(state, checkpoint_shapes(folder.path), self.engine_settings.dtype)
            payload = Payload(BASE, version, weights=weights)
        engines.deliver(payload)

    def _check_faults(self, groups: Sequence[PlayedGroup]) -> None:
        faults = [fault for group in groups for fault in group.faults]
        played = sum(len(group.outcomes) for group in groups)
        if len(faults) > self._limits.max_fault_share * played:
            kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(f.kind for f in faults).most_common())
            raise TooManyFaults(
                f"rollouts: {len(faults)} of {played} dialogues were lost to faults ({kinds}); "
                f"the first: {faults[0].message}"
            )
        for fault in faults:
            _log.warning("a dialogue of %s was lost: %s: %s", fault.task, fault.kind, fault.message)

    def _check_ratio(self, agent: str, learnt: Mapping[str, float]) -> None:
        exact = self.solver_settings.dtype == "float32" == self.engine_settings.dtype
        most = self._training.ratio_tolerance or (1e-3 if exact else 0.05)
        error = learnt.get("ratio_first_error", 0.0)
        if error > most:
            raise RatioError(
                f"learner: before its first step the {agent}'s log-probs are {error:.3g} nats from the engine's, more "
                f"than {most:g} (training.ratio_tolerance); they do not hold the same weights."
            )

    def _log(self, metrics: Mapping[str, float]) -> None:
        assert self.metrics is not None
        for name, value in metrics.items():
            self.metrics.log_value(name, value, reduce="mean", window=1)

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        state: dict[str, Any] = super().get_state(components, not_components=not_components, **kwargs)
        if self._check_component(_STATE, components, not_components):
            state[_STATE] = {
                "round": self.round,
                "next_group": self._next_group,
                "version": self._version,
                "curator_version": 0 if self.curator_engines is None else self.curator_engines.version,
                "curation": self.curation.get_state(),
                "profile": self.profile.to_dict(),
                "reweighter": self._reweighter.get_state(),
            }
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(dict(state))
        if _STATE in state:
            own = state[_STATE]
            self.round, self._next_group, self._version = own["round"], own["next_group"], own["version"]
            self.curation.set_state(own["curation"])
            if self.curator_engines is not None:
                self.curator_engines.version = own["curator_version"]
            self.profile = FailureProfile.from_dict(own["profile"])
            self._reweighter.set_state(own["reweighter"])

    def restore_from_path(self, path: Any, *args: Any, **kwargs: Any) -> None:
        super().restore_from_path(path, *args, **kwargs)  # type: ignore[no-untyped-call]
        self._sync_solver()
        self._sync_curator()

    def restore_env_runners(self, env_runner_group: Any) -> list[int]:
        """Runners hold nothing, so that one that is back is as good as new."""
        found: list[int] = env_runner_group.probe_unhealthy_env_runners()
        return found

    def cleanup(self) -> None:
        super().cleanup()
        self.engines.close()
        if self.curator_engines is not None:
            self.curator_engines.close()


@contextmanager
def _timed(times: dict[str, float], name: str) -> Iterator[None]:
    """Adds the time that the block takes to what it has taken before."""
    started = perf_counter()
    yield
    times[name] = times.get(name, 0.0) + perf_counter() - started


def _mean(values: Any) -> float:
    found = list(values)
    return sum(found) / len(found) if found else float("nan")


def _sampled(groups: Sequence[PlayedGroup]) -> int:
    return sum(each.sampled_tokens for group in groups for each in group.trajectories)


def _of_rollouts(groups: Sequence[PlayedGroup], categories: Sequence[str]) -> dict[str, float]:
    """Success by category and by what was shown, and the labels' shares of all turns."""
    pairs = [(group.plan.arm, each) for group in groups for each in group.trajectories]
    trajectories: list[Trajectory] = [each for _, each in pairs]
    labels = Counter(label for each in trajectories for label in each.diagnosis.labels)
    turns = max(1, labels.total())
    return {
        "solver/success": _mean(each.reward for each in trajectories),
        "solver/success_plain": _mean(each.reward for arm, each in pairs if not arm),
        "solver/success_shown": _mean(each.reward for arm, each in pairs if arm),
        "solver/rollouts": len(trajectories),
        "solver/groups": len(groups),
        "solver/tokens_sampled": _sampled(groups),
        "interface/plain_share": _mean(float(not group.plan.arm) for group in groups),
        **{
            f"solver/success/{category}": _mean(each.reward for each in trajectories if each.category == category)
            for category in categories
        },
        **{f"diagnosis/share/{label}": labels[label] / turns for label in Label},
    }


def _of_rows(rows: RoundRows) -> dict[str, float]:
    return {
        "solver/groups_kept": rows.groups_kept,
        "solver/groups_dropped_equal": rows.dropped_equal,
        "solver/groups_dropped_short": rows.dropped_short,
        "solver/weight_mean": rows.weight_mean,
        "solver/weight_max": rows.weight_max,
    }
