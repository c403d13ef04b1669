"""A model at work in `seal-ray play`: its completions of one dialogue, one after the other."""

from __future__ import annotations

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
from policies.solver import Budgets, Solver
from policies.token_dialogue import TokenDialogue
from seal_ray.run.checkpoints import model_of

RESPONSE = 256
"""Tokens of one completion at most."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """A model that plays one dialogue: on a copy of its own, in step with the one that is shown."""

    runner: asyncio.Runner
    solver: Solver
    played: TokenDialogue
    seed: int

    def say(self) -> tuple[str, bool]:
        """Its next completion, and whether it came to an end; one that did not is not acted on."""
        before = len(self.played.sampled)
        if before:
            self.played.act()
        end = self.runner.run(self.solver.say(self.played, self.seed))
        if len(self.played.sampled) == before:
            return "", False
        last = self.played.sampled[-1]
        return self.solver.form.text(self.played.record.token_ids_T[last.begin : last.end]), end is None


@contextmanager
def speaking(
    model: str,
    task: Task,
    engine: str,
    *,
    dialect: str,
    interface: Interface,
    protocol: Protocol | str,
    temperature: float,
    seed: int,
) -> Iterator[Speaker]:
    """The model on an engine of that kind; `model` is a run, or a name that `open_model` knows.

    Raises `UserError` for a model that cannot play.
    """
    found = open_model(model_of(model), dialect=dialect)
    form = ChatFormat.load(found.path, found.dialect)
    budgets = Budgets(prompt=found.context, response=min(RESPONSE, found.context), context=found.context)
    with asyncio.Runner() as runner:
        played = TokenDialogue(task, form, interface=interface, protocol=protocol, context=found.context)
        started = runner.run(start_engine(engine, found, context=found.context, dtype=choose_dtype(), concurrent=1))
        try:
            yield Speaker(runner, Solver(started, form, budgets, temperature=temperature), played, seed)
        finally:
            runner.run(started.close())
