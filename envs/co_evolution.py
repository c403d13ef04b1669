"""`CoEvolutionGame`: curator and solver, and in version 1 a task writer, as agents of one PettingZoo game.

The curator moves once, first: it reads the failure profile and answers with an interface as JSON. Then the solver plays
one dialogue under that interface, one completion per move. If a proposal is invalid or the leak guard rejects it, the
incumbent interface is played instead, and the curator's reward is 0.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gymnasium import spaces
from pettingzoo import AECEnv

from envs.diagnosis import Diagnosis
from envs.dialects import DIALECTS, Dialect
from envs.dialogue import Dialogue, Protocol
from envs.errors import UserError, unknown_value
from envs.interface.guard import LeakGuard
from envs.interface.json_form import interface_from_json
from envs.interface.value import Interface
from envs.profile import FailureProfile
from envs.roles import CURATOR, SOLVER
from envs.task import Task
from envs.text_space import UnicodeText

Observation = dict[str, str]
"""`{"text": …}`: PettingZoo's compliance tests accept texts inside a `Dict` space only."""


@dataclass(frozen=True, slots=True)
class GameOutcome:
    """How a game ended. `interface` is the one that was played, `rejection` the reason if the proposal was rejected."""

    task_id: str
    interface: Interface
    rejection: str | None
    diagnosis: Diagnosis
    reward: float


def cooperative_reward(outcome: GameOutcome) -> float:
    """The curator's default reward: the solver's under an accepted proposal, 0.0 under a rejected one."""
    return 0.0 if outcome.rejection is not None else outcome.reward


class CoEvolutionGame(AECEnv[str, Observation, str]):
    """The two-agent game over a set of tasks; actions are texts, observations `{"text": …}`.

    Each reset draws a task; `options={"task": id}` names one instead. Finished dialogues are added to `profile`. A
    reset with a seed starts a new series with an empty profile; the same seed and actions give the same games. Both
    rewards come with the last move: `curator_reward` for a game, and that of the solver's dialogue. `guard` judges
    proposals, if given. No action makes `step` raise.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "co_evolution_v0",
        "render_modes": ["ansi"],
        "is_parallelizable": False,  # the agents move in turn
    }
    order: ClassVar[tuple[str, ...]] = (CURATOR, SOLVER)
    """The agents in the order of their first moves."""

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        dialect: Dialect = DIALECTS["qwen"],
        protocol: Protocol | str = Protocol.SEAL,
        incumbent: Interface = Interface.plain(),
        curator_reward: Callable[[GameOutcome], float] = cooperative_reward,
        guard: LeakGuard | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__()
        if not tasks:
            raise UserError("tasks: the list is empty; a game needs at least one task.")
        if render_mode not in (None, "ansi"):
            raise UserError(f"render_mode: {render_mode!r} is not known; allowed are None and 'ansi'.")
        self.possible_agents = list(self.order)
        self.agents: list[str] = []
        self._observation_spaces = {agent: spaces.Dict({"text": UnicodeText()}) for agent in self.possible_agents}
        self._action_spaces = {agent: UnicodeText() for agent in self.possible_agents}
        self.render_mode = render_mode
        self.incumbent = incumbent
        self.profile = FailureProfile()
        self.last_outcome: GameOutcome | None = None
        self._tasks = {task.id: task for task in tasks}
        self._dialect = dialect
        self._protocol = protocol
        self._curator_reward = curator_reward
        self._guard = guard
        self._rng = random.Random(0)

    def observation_space(self, agent: str) -> spaces.Dict:
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[str]:
        return self._action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        if seed is not None:
            self._rng = random.Random(seed)
            self.profile = FailureProfile()
        drawn = self._rng.choice(list(self._tasks))
        name = (options or {}).get("task", drawn)
        if name not in self._tasks:
            raise unknown_value("task", name, self._tasks)
        self._task = self._tasks[name]
        self.dialogue: Dialogue | None = None
        self._rejection: str | None = None
        self.agents = list(self.possible_agents)
        self.agent_selection = self.order[0]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {"task": name} for agent in self.agents}
        self._texts = {**dict.fromkeys(self.agents, self.profile.render()), SOLVER: ""}

    def step(self, action: str | None) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        text = action if isinstance(action, str) else ""
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self._move(agent, text)
        self._accumulate_rewards()

    def observe(self, agent: str) -> Observation:
        return {"text": self._texts[agent]}

    def render(self) -> str | None:
        return self._texts[self.agent_selection] if self.render_mode == "ansi" and self.agents else None

    def close(self) -> None:
        """Holds nothing open."""

    def _move(self, agent: str, text: str) -> None:
        (self._move_curator if agent == CURATOR else self._move_solver)(text)

    def _rewards_of(self, outcome: GameOutcome) -> dict[str, float]:
        return {CURATOR: float(self._curator_reward(outcome)), SOLVER: outcome.reward}

    def _move_curator(self, proposal: str) -> None:
        try:
            interface = interface_from_json(proposal, source="proposal")
        except UserError as error:
            interface, self._rejection = self.incumbent, str(error)
        else:
            fault = None if self._guard is None else self._guard.check(interface)
            if fault is not None:
                interface, self._rejection = self.incumbent, f"proposal: {fault}"
        dialogue = Dialogue(self._task, dialect=self._dialect, interface=interface, protocol=self._protocol)
        self._texts[SOLVER], info = dialogue.reset()
        self.dialogue = dialogue
        self.infos[SOLVER] = info
        self.infos[CURATOR] = {"task": self._task.id, "rejection": self._rejection}
        self.agent_selection = SOLVER

    def _move_solver(self, completion: str) -> None:
        dialogue = self.dialogue
        assert dialogue is not None, "the curator moves first"
        self._texts[SOLVER], reward, terminated, truncated, self.infos[SOLVER] = dialogue.step(completion)
        if not dialogue.over:
            return
        outcome = GameOutcome(self._task.id, dialogue.interface, self._rejection, dialogue.diagnosis, reward)
        self.last_outcome = outcome
        self.profile.add(outcome.diagnosis, reward)
        self.rewards = self._rewards_of(outcome)
        self.terminations = dict.fromkeys(self.agents, terminated)
        self.truncations = dict.fromkeys(self.agents, truncated)
        self.agent_selection = self.order[0]
