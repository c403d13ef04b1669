"""`WrittenTasksGame`: the game with a third agent, the task writer.

The task writer moves first: it reads the failure profile and the grammar of specifications, and answers with one as
JSON. The task source composes and verifies the task. If the specification is invalid or has no task, one of the given
tasks is played instead, and the writer's reward is 0. The rest is as in `CoEvolutionGame`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from envs.co_evolution import CoEvolutionGame, GameOutcome
from envs.errors import UserError
from envs.roles import CURATOR, SOLVER, TASK_WRITER
from envs.sources import GENERATED
from envs.specifications import Rejected, Writable, writable
from envs.task import Task

_SEEDS = 10**9
"""Seeds of composed tasks are below this."""

WriterReward = Callable[[float], float]
"""Mean reward of a specification's games so far in the series → the writer's reward for the last of them."""


def near_the_middle(p: float) -> float:
    """exp(−2·(p − ½)²): GenEnv's reward with its released constants (arXiv 2512.19682)."""
    return math.exp(-2.0 * (p - 0.5) ** 2)


class WrittenTasksGame(CoEvolutionGame):
    """The three-agent game. `source` composes tasks; `tasks` are played if a specification is rejected.

    The writer's infos give the reason for a rejection, or None. All else is as in `CoEvolutionGame`.
    """

    metadata: ClassVar[dict[str, Any]] = {**CoEvolutionGame.metadata, "name": "co_evolution_v1"}
    order: ClassVar[tuple[str, ...]] = (TASK_WRITER, CURATOR, SOLVER)

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        source: str = GENERATED,
        writer_reward: WriterReward = near_the_middle,
        **settings: Any,
    ) -> None:
        super().__init__(tasks, **settings)
        self._source: Writable = writable(source, key="source")
        self._writer_reward = writer_reward
        self._apart = self._source.apart(tasks)
        self._played: dict[str, list[float]] = {}
        self._key: str | None = None

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed=seed, options=options)
        if seed is not None:
            self._played = {}
        self._seed = self._rng.randrange(_SEEDS)
        self._key = None
        self._texts[TASK_WRITER] = f"{self._source.specification_help}\n{self.profile.render()}"

    def _move(self, agent: str, text: str) -> None:
        if agent == TASK_WRITER:
            self._move_writer(text)
        else:
            super()._move(agent, text)

    def _move_writer(self, text: str) -> None:
        rejection = None
        try:
            specification = self._source.read(text)
        except UserError as error:
            rejection = str(error)
        else:
            made = self._source.compose(specification, self._seed, apart=self._apart)
            if isinstance(made, Rejected):
                rejection = made.reason
            else:
                self._task, self._key = made, specification.key
        for agent in self.agents:
            self.infos[agent] = {"task": self._task.id}
        self.infos[TASK_WRITER]["rejection"] = rejection
        self.agent_selection = CURATOR

    def _rewards_of(self, outcome: GameOutcome) -> dict[str, float]:
        paid = 0.0
        if self._key is not None:
            games = self._played.setdefault(self._key, [])
            games.append(outcome.reward)
            paid = float(self._writer_reward(sum(games) / len(games)))
        return {TASK_WRITER: paid, **super()._rewards_of(outcome)}
