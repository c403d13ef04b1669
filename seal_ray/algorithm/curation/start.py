"""The curator of a run, made from its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from envs.interface import Interface
from envs.task import Task
from policies.curator.choice import CURATORS
from policies.curator.llm import LLMCurator, Writing
from policies.engine.choice import default_kind
from policies.model_folder import ModelFolder
from policies.prompting import ChatFormat
from seal_ray.algorithm.agent import Agent
from seal_ray.algorithm.curation.curation import Curation
from seal_ray.algorithm.curation.guard import RunGuard
from seal_ray.algorithm.objects import make_plain_curator
from seal_ray.config import sections

if TYPE_CHECKING:
    from seal_ray.config.settings import Settings


def start_curation(
    config: Settings, agent: Agent | None, *, solver: ModelFolder, guarded: Callable[[], Iterable[Task]]
) -> Curation:
    """The curation of a run. `agent` is the curator where it is a language model, else None.

    The guard of such a curator holds its proposals against the `guarded` tasks, counted in tokens of the `solver`.
    """
    settings = config.section(sections.Curator)
    if agent is None:
        return Curation(settings, make_plain_curator(settings))
    guard = RunGuard(guarded(), solver, most_tokens=settings.guideline_tokens)
    return Curation(settings, _writer(config, agent, guard.check), agent=agent, guard=guard)


def _writer(config: Settings, agent: Agent, check: Callable[[Interface], str | None]) -> LLMCurator:
    """The curator that writes as an agent. `check` is the leak guard's."""
    curator, solver = config.section(sections.Curator), config.section(sections.Solver)
    kind = curator.engine if agent.owns else config.section(sections.Engine).kind
    kind_class: Any = CURATORS.find(curator.kind)
    made: LLMCurator = kind_class(
        agent.connect,
        ChatFormat.load(agent.model.path, agent.model.dialect),
        Writing(
            context=min(curator.context, agent.settings.context if agent.owns else solver.context),
            max_tokens=curator.response,
            temperature=curator.temperature,
            constrained=(default_kind() if kind == "auto" else kind) == "vllm",
            retries=curator.retries,
        ),
        check=check,
        kind=curator.kind,
        policy=agent.policy,
    )
    return made
