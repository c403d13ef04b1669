"""A world in which one cue helps and one harms, and engines that play it.

Engine actors import this module: it does without RLlib and PyTorch.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from envs.sources import find_task
from envs.task import Category
from policies.engine import Engine, GenRequest
from policies.engine.choice import start_engine
from policies.models import open_model
from policies.prompting import ChatFormat
from seal_ray.config.schema import EnvironmentSection
from seal_ray.rollout.engine_actor import EngineSpec
from seal_ray.rollout.tasks import TaskStream
from tests.policies.scripted_engine import ScriptedEngine
from tests.policies.scripts import oracle_script
from tests.seal_ray.algorithm.engines import asked

HELPS, HARMS = "Check", "Guess"
CUES = (HELPS, HARMS, "Smile", "Order")
CHANCES = {HELPS: 0.9, HARMS: 0.1}
"""Guideline → how often a dialogue under it succeeds; half of the others do."""
DIFFICULTY = "t1-1_c1-2_d1-3_s2-4"
TASKS = 16


@dataclass(frozen=True)
class Planted:
    """A factory: the solver's engine plays the planted world, the curator's samples from its model."""

    async def __call__(self, spec: EngineSpec) -> Engine:
        model = open_model(spec.model)
        if spec.agent == "curator":
            return await start_engine(
                "transformers", model, context=spec.context, dtype=spec.dtype, concurrent=spec.concurrent
            )
        form = ChatFormat.load(model.path, model.dialect)
        stream = TaskStream(EnvironmentSection(tasks=TASKS, difficulty=DIFFICULTY, categories=[Category.BASE]), 0)
        tasks = [find_task(name) for name in sorted({stream.task_id(number) for number in range(TASKS)})]
        script = {asked(form, prompt): said for prompt, said in oracle_script(form, tasks).items()}
        done = form.completion("Done.")

        def answer(request: GenRequest) -> Sequence[int]:
            text = form.text(request.prompt_ids)
            chance = next((CHANCES[cue] for cue in CHANCES if f"- {cue}" in text), 0.5)
            # It is decided at the first completion of a dialogue whether it succeeds.
            first = text.count("<|assistant|>") == 1
            fails = first and random.Random(request.seed).random() >= chance
            return done if fails else script.get(asked(form, request.prompt_ids), done)

        return ScriptedEngine(answer, context=spec.context, vocabulary=int(model.config["vocab_size"]))
