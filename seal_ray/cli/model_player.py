"""A model that plays one dialogue in `seal-ray play`, completion by completion."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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


@contextmanager
def model_player(
    model: str,
    task: Task,
    engine: str,
    *,
    dialect: str,
    interface: Interface,
    protocol: Protocol | str,
    temperature: float,
    seed: int,
) -> Iterator[Callable[[], tuple[str, bool]]]:
    """Starts a model, by name or run, on an engine of that kind, with its own copy of a dialogue.

    Yields a function that returns its next completion, and whether it ended within its budget; otherwise it is not
    executed. Raises `UserError` for a model that cannot play.
    """
    opened = open_model(model_of(model), dialect=dialect)
    form = ChatFormat.load(opened.path, opened.dialect)
    budgets = Budgets(prompt=opened.context, response=min(RESPONSE, opened.context), context=opened.context)
    with asyncio.Runner() as runner:
        played = TokenDialogue(task, form, interface=interface, protocol=protocol, context=opened.context)
        started = runner.run(start_engine(engine, opened, context=opened.context, dtype=choose_dtype(), concurrent=1))
        solver = Solver(started, form, budgets, temperature=temperature)

        def next_completion() -> tuple[str, bool]:
            before = len(played.sampled)
            if before:
                played.act()
            end = runner.run(solver.say(played, seed))
            if len(played.sampled) == before:
                return "", False
            last = played.sampled[-1]
            return form.text(played.record.token_ids_T[last.begin : last.end]), end is None

        try:
            yield next_completion
        finally:
            runner.run(started.close())
