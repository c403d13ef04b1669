"""Engines without a model for whole rounds: they play the ground truth now and then, and die or lie when told to.

Engine actors import this module: it does without RLlib.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from envs.sources import find_task
from policies.engine import Engine, GenRequest, GenResult
from policies.engine.stored import StoredWeights
from policies.models import open_model
from policies.prompting import ChatFormat
from seal_ray.config.schema import EnvironmentSection, EvaluationSection
from seal_ray.evaluation.suites import evaluation_tasks
from seal_ray.rollout.engine_actor import EngineSpec
from seal_ray.rollout.tasks import TaskStream
from tests.policies.scripted_engine import ScriptedEngine
from tests.policies.scripts import oracle_script

HANG = "HANG"
"""A completion over which the environment of `tests.seal_ray.rollout.hanging` does not come back."""
USER = ("<|user|>", "<|im_start|>user")
"""The beginning of a user's turn, in the templates of the models that are used here."""
TASKS = 8
"""Training tasks that the engines know the ground truth of."""


def asked(form: ChatFormat, prompt_ids: Sequence[int]) -> str:
    """The prompt without what an interface adds to it: from the first user turn on."""
    text = form.text(prompt_ids)
    return text[min(text.index(each) for each in USER if each in text) :]


@dataclass(frozen=True)
class Half:
    """A factory of engines that solve a known task in about half of its dialogues. The seed of a request decides.

    Known are the training tasks, and the first `evaluated` evaluation tasks. `pause` is the time in seconds that each
    completion takes; `garbage` the share of completions that are none, `hangs` of those that say `HANG`.
    """

    seed: int = 0
    evaluated: int = 0
    pause: float = 0.0
    garbage: float = 0.0
    hangs: float = 0.0
    version_offset: int = 0
    known: tuple[str, ...] = ()
    """Ids of further tasks in its script."""
    writes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Agent → texts that it writes in turn, on an engine of its own or as a policy of the solver's."""
    elsewhere: str | None = None
    """A file that is there once an engine has begun which reads no other process's memory, as on another machine."""

    async def __call__(self, spec: EngineSpec) -> Engine:
        with suppress(FileExistsError):
            if self.elsewhere is not None:
                Path(self.elsewhere).open("x").close()  # the first alone
                setattr(StoredWeights, "is_here", lambda _: False)  # noqa: B010 - mypy wants methods left alone
        model = open_model(spec.model)
        form = ChatFormat.load(model.path, model.dialect)
        stream = TaskStream(EnvironmentSection(tasks=TASKS), self.seed)
        tasks = {*self.known, *(stream.task_id(number) for number in range(TASKS))}
        if self.evaluated:
            tasks |= {
                task.id for task in evaluation_tasks(EnvironmentSection(), EvaluationSection(tasks=self.evaluated))
            }
        told = oracle_script(form, [find_task(name) for name in sorted(tasks)])
        script = {asked(form, prompt): said for prompt, said in told.items()}
        done = form.completion("Done.")

        def answer(request: GenRequest) -> Sequence[int]:
            texts = self.writes.get(request.policy) or self.writes.get(spec.agent)
            if texts:
                return form.completion(texts[request.seed % len(texts)])
            if random.Random(f"hang {request.seed}").random() < self.hangs:
                return form.completion(HANG)
            gives_up = random.Random(request.seed).random() < 0.25
            # A dialogue that has left the script is given up too.
            return done if gives_up else script.get(asked(form, request.prompt_ids), done)

        vocabulary = int(model.config["vocab_size"])
        return _Told(self, answer, context=spec.context, vocabulary=vocabulary)


class _Told(ScriptedEngine):
    def __init__(self, told: Half, answer: Any, **settings: Any) -> None:
        super().__init__(answer, **settings)
        self._told = told

    async def generate(self, request: GenRequest) -> GenResult:
        await asyncio.sleep(self._told.pause)
        result = await super().generate(request)
        rng = random.Random(f"garbage {request.seed}")
        if rng.random() < self._told.garbage:
            kind = rng.randrange(3)
            if kind == 0:
                return replace(result, token_ids_T=(10**9, *result.token_ids_T[1:]))
            if kind == 1:
                return replace(result, sampled_logprobs_T=(float("nan"), *result.sampled_logprobs_T[1:]))
            return replace(result, sampled_logprobs_T=result.sampled_logprobs_T[1:])
        if self._told.version_offset:
            versions = tuple(version + self._told.version_offset for version in result.versions_T)
            return replace(result, versions_T=versions)
        return result


@dataclass(frozen=True)
class WrongAtFirst(Half):
    """Its engines give a log-prob that is no number at each first request with a seed."""

    async def __call__(self, spec: EngineSpec) -> Engine:
        engine, known = await super().__call__(spec), set[int]()
        generate = engine.generate

        async def told(request: GenRequest) -> GenResult:
            result = await generate(request)
            if request.seed in known:
                return result
            known.add(request.seed)
            return replace(result, sampled_logprobs_T=(float("nan"), *result.sampled_logprobs_T[1:]))

        setattr(engine, "generate", told)  # noqa: B010 - mypy wants methods left alone
        return engine


@dataclass(frozen=True)
class Logged(Half):
    """Its engines write their calls to a file."""

    file: str = ""

    async def __call__(self, spec: EngineSpec) -> Engine:
        engine = await super().__call__(spec)
        for name in ("generate", "sleep", "update_weights"):
            setattr(engine, name, self._logging(name, getattr(engine, name)))
        return engine

    def _logging(self, name: str, method: Any) -> Any:
        async def call(*arguments: Any, **settings: Any) -> Any:
            with Path(self.file).open("a", encoding="utf-8") as file:
                file.write(f"{name}\n")
            return await method(*arguments, **settings)

        return call
