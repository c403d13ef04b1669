"""`SealEnvRunner`: plays groups of dialogues against engines. It has no model and no state between two calls.

If a step of a dialogue hangs, the runner returns that dialogue and is replaced, since nothing in the process can stop
the step; the other dialogues are played again with their seeds.
"""

import asyncio
import faulthandler
import gc
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from threading import Thread
from typing import Any, TypeVar

from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.debug import update_global_seed_if_necessary

from envs.errors import EnvironmentFault, SealError, UserError
from envs.roles import CURATOR, SOLVER, TASK_WRITER
from envs.sources import find_task
from envs.text_space import UnicodeText
from policies.models import open_model
from policies.plain_view import plain_view
from policies.prompting import ChatFormat
from policies.rollouts import Fault, RolloutJob, Rollouts
from policies.solver import Budgets, Solver
from policies.trajectory import Trajectory
from policies.watchdog import Watchdog
from seal_ray.config.resolve import RunSpec
from seal_ray.rollout.engine_pool import RemoteEngine
from seal_ray.rollout.priority import lower_process_priority
from seal_ray.rollout.types import Group, GroupPlan, Member

STEP_TIMEOUT = "StepTimeout"
"""Kind of the fault of a stuck dialogue."""
_SILENCE = 2.0
"""Step limits after which a process that cannot run the watchdog ends."""
RETRIES = 1
"""Retries of a dialogue after a fault of the environment."""
_ROUNDING = 1e-3
"""Largest log-prob, above 0 by rounding."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class StuckDialogue:
    """A dialogue whose step takes too long, as a fault. Its process must not be used any more."""

    fault: Fault


def run_with_watchdog(work: Callable[[], R], watch: Watchdog, *, limit: float, replaceable: bool) -> R | StuckDialogue:
    """Runs `work` in a thread. Returns its result, or `StuckDialogue` if a step of `watch` exceeds the `limit`.

    If a step holds Python's lock, so that this function cannot run, a `replaceable` process ends after twice the limit.
    """
    done: Future[R] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - `done.result()` raises it again
            done.set_exception(error)

    def postpone_exit() -> None:
        if replaceable:
            faulthandler.dump_traceback_later(_SILENCE * limit, exit=True, file=2)

    postpone_exit()
    Thread(target=run, daemon=True).start()
    try:
        while not wait([done], timeout=min(1.0, limit / 4)).done:
            postpone_exit()
            late = watch.overdue(limit)
            if late is not None:
                reason = f"a step did not come back within {limit:g} s (fault_tolerance.step_timeout)"
                return StuckDialogue(Fault(late.task, late.seed, STEP_TIMEOUT, reason))
    finally:
        if replaceable:
            faulthandler.cancel_dump_traceback_later()
    return done.result()


class StaleWeights(SealError, RuntimeError):
    """An engine sampled with weights of another version."""


@dataclass(frozen=True, slots=True)
class Target:
    """Actors of engines, the policy on them, and the version that it must have."""

    engines: Sequence[Any]
    policy: str
    version: int


class _Player:
    """Plays groups against engines. The runner has no coroutines itself: Ray would make it an asynchronous actor."""

    def __init__(self, spec: RunSpec) -> None:
        solver = spec.solver
        self.limits = spec.fault_tolerance
        named = (spec.environment.source, spec.evaluation.source)
        self._sources = [name for name in named if name is not None]
        self._concurrent = math.ceil(spec.engine.concurrent / max(1, spec.env_runners.num_env_runners))
        model = open_model(spec.agents[SOLVER].model, dialect=solver.dialect)
        self._gives_views = spec.training.view == "plain"
        self._form = ChatFormat.load(model.path, model.dialect)
        self._vocabulary = int(model.config["vocab_size"])
        self._budgets = Budgets(
            prompt=solver.prompt, response=solver.response, context=solver.context, steps=solver.steps
        )

    async def play(
        self, plans: Sequence[GroupPlan], target: Target, watch: Watchdog, lost: Sequence[Fault] = ()
    ) -> list[Group]:
        """Plays the groups concurrently, without the dialogues in `lost`: their outcomes are these faults."""
        known = {(fault.task, fault.seed): fault for fault in lost}
        on_engine = [self._rollouts(actor, target, plans, watch) for actor in target.engines]
        playing = []
        for plan in plans:
            rollouts = on_engine[plan.number % len(on_engine)]
            playing.append(asyncio.ensure_future(self._play_group(rollouts, plan, target.version, known, watch)))
            await asyncio.sleep(0)  # its first requests are sent before the next group's task is looked up
        return list(await asyncio.gather(*playing))

    def _rollouts(self, actor: Any, target: Target, plans: Sequence[GroupPlan], watch: Watchdog) -> Rollouts:
        (temperature,) = {plan.temperature for plan in plans}  # a call is training or evaluation
        engine = RemoteEngine(actor, policy=target.policy, version=target.version, timeout=self.limits.engine_timeout)
        solver = Solver(engine, self._form, self._budgets, policy=target.policy, temperature=temperature, watch=watch)
        return Rollouts(solver, concurrent=self._concurrent)

    async def _play_group(
        self,
        rollouts: Rollouts,
        plan: GroupPlan,
        version: int,
        lost: Mapping[tuple[str, int], Fault],
        watch: Watchdog,
    ) -> Group:
        try:
            task = find_task(plan.task, self._sources)
        except (EnvironmentFault, UserError) as error:
            fault = Fault(plan.task, plan.seeds[0], type(error).__name__, str(error)[:500])
            return Group(plan, tuple(Member(arm, fault) for arm in plan.arms))
        outcomes = await rollouts.play_or_fault(
            [
                RolloutJob(task, seed, arm.interface, plan.protocol, plan.start)
                for seed, arm in zip(plan.seeds, plan.arms, strict=True)
                if (plan.task, seed) not in lost
            ],
            retries=RETRIES,
            check=lambda trajectory: self._check(trajectory, version),
        )
        played = iter(outcomes)
        members = []
        for seed, arm in zip(plan.seeds, plan.arms, strict=True):
            outcome = lost.get((plan.task, seed)) or next(played)
            view = None
            if self._gives_views and plan.start is None and isinstance(outcome, Trajectory) and not arm.plain:
                await asyncio.sleep(0)  # other dialogues proceed between two replays
                with watch.over(task.id, outcome.seed):
                    view = plain_view(outcome, task, self._form, self._budgets)
            members.append(Member(arm, outcome, view))
        return Group(plan, tuple(members))

    def _check(self, trajectory: Trajectory, version: int) -> None:
        """Raises `ValueError` for impossible samples, and `StaleWeights` for another version."""
        columns = (trajectory.token_ids_T, trajectory.mask_T, trajectory.sampled_logprobs_T, trajectory.versions_T)
        if len(set(map(len, columns))) != 1:
            raise ValueError("the engine gave different numbers of tokens, log-probs and versions")
        if not all(0 <= token < self._vocabulary for token in trajectory.token_ids_T):
            raise ValueError("the engine gave a token outside the vocabulary")
        if not all(math.isfinite(value) and value <= _ROUNDING for value in trajectory.sampled_logprobs_T):
            raise ValueError("the engine gave a log-prob that is not finite, or above 0")
        sampled_with = set(compress(trajectory.versions_T, trajectory.mask_T))
        if others := sampled_with - {version}:
            raise StaleWeights(
                f"engine: a dialogue was sampled with weights of version {min(others)} instead of {version}; the "
                "update did not reach the engine."
            )


class SealEnvRunner(EnvRunner, Checkpointable):
    """Plays groups. The dialogues of a call run concurrently, each group on one engine."""

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        # RLlib's seeding would import PyTorch's compiler, half a second of a core.
        unseeded = config.copy(copy_frozen=False)
        unseeded.seed = None
        super().__init__(config=unseeded, **kwargs)
        self._spec: RunSpec = config.spec
        self.config.seed = config.seed
        self._seed = None if config.seed is None else int(config.seed) + (self.worker_index or 0)
        update_global_seed_if_necessary(seed=self._seed)

    def sample(  # type: ignore[override] # RLlib's takes options
        self, *, plans: Sequence[GroupPlan], target: Target, lost: Sequence[Fault] = (), **_: Any
    ) -> list[Group] | StuckDialogue:
        """Plays these groups, without the dialogues in `lost`: their outcomes are those faults.

        Returns `StuckDialogue` if a dialogue hangs: this runner must then be replaced. Raises `StaleWeights`, or
        `EngineLost` if an engine does not restart.
        """
        player, watch = self._player, Watchdog()  # the thread of an earlier call may still use another one
        return run_with_watchdog(
            lambda: asyncio.run(player.play(plans, target, watch, lost)),
            watch,
            limit=player.limits.step_timeout,
            replaceable=bool(self.worker_index),
        )

    @cached_property
    def _player(self) -> _Player:
        player = _Player(self._spec)
        if self.worker_index:  # a separate process
            lower_process_priority()
            gc.freeze()  # later collections, which halt all dialogues, skip these objects
        return player

    def assert_healthy(self) -> None:
        """Does nothing: a runner is always complete."""

    def get_spaces(self) -> dict[str, tuple[Any, Any]]:
        """Text spaces of the environment and of the agents' modules."""
        texts = (UnicodeText(), UnicodeText())
        return {"__env__": texts, "__env_single__": texts, SOLVER: texts, CURATOR: texts, TASK_WRITER: texts}

    def get_metrics(self) -> Any:
        return self.metrics.reduce()

    def get_state(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Empty: each call has all that it needs."""
        return {}

    def set_state(self, state: Any) -> None:
        """Does nothing."""

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (), {"config": self.config}

    def stop(self) -> None:
        """Does nothing: no resource is open."""
