"""A model that plays one dialogue in `seal-ray play`, completion by completion."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from envs.dialogue import Protocol
from envs.interface import Interface
from envs.task import Task
from policies.engine.choice import choose_dtype, start_engine
from policies.models import open_model
from policies.prompting import ChatFormat
from policies.solver import Budgets, Solver, TokenDialogue
from seal_ray.run.checkpoints import model_of

RESPONSE = 256
"""Largest number of tokens of a completion."""


@dataclass(frozen=True, slots=True)
class ModelPlayer:
    """A model with its own copy of a dialogue, in step with the displayed one."""

    runner: asyncio.Runner
    solver: Solver
    played: TokenDialogue
    seed: int

    def next_completion(self) -> tuple[str, bool]:
        """The next completion, and whether it ended within its budget; otherwise it is not executed."""
        before = len(self.played.sampled)
        if before:
            self.played.act()
        end = self.runner.run(self.solver.say(self.played, self.seed))
        if len(self.played.sampled) == before:
            return "", False
        last = self.played.sampled[-1]
        return self.solver.form.text(self.played.record.token_ids_T[last.begin : last.end]), end is None


@contextmanager
def open_player(
    model: str,
    task: Task,
    engine: str,
    *,
    dialect: str,
    interface: Interface,
    protocol: Protocol | str,
    temperature: float,
    seed: int,
) -> Iterator[ModelPlayer]:
    """Starts a model, by name or run, on an engine of that kind. Raises `UserError` for a model that cannot play."""
    opened = open_model(model_of(model), dialect=dialect)
    form = ChatFormat.load(opened.path, opened.dialect)
    budgets = Budgets(prompt=opened.context, response=min(RESPONSE, opened.context), context=opened.context)
    with asyncio.Runner() as runner:
        played = TokenDialogue(task, form, interface=interface, protocol=protocol, context=opened.context)
        started = runner.run(start_engine(engine, opened, context=opened.context, dtype=choose_dtype(), concurrent=1))
        try:
            yield ModelPlayer(runner, Solver(started, form, budgets, temperature=temperature), played, seed)
        finally:
            runner.run(started.close())
