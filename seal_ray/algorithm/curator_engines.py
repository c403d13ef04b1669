"""Where a curator that is a language model writes, and how it reaches its engine: the solver's, or one of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from envs.co_evolution import CURATOR
from envs.interface import Interface
from policies.curator.choice import CURATORS
from policies.curator.llm import LLMCurator, Writing
from policies.engine import BASE
from policies.engine.choice import default_kind
from policies.model_folder import ModelFolder, open_model
from policies.prompting import ChatFormat
from seal_ray.algorithm.agent_engines import start_engines
from seal_ray.algorithm.engine_pool import EnginePool, RemoteEngine
from seal_ray.config import sections
from seal_ray.config.agents import learning_agents, model_of, shares_engines

if TYPE_CHECKING:
    from seal_ray.config.settings import Settings


class CuratorEngines:
    """The engine that a curator writes on. `version` is that of the weights which it must have."""

    def __init__(self, config: Settings, solver_engines: EnginePool) -> None:
        self._config = config
        self.model = model_of(config, CURATOR)
        self.folder: ModelFolder = open_model(self.model.model, dialect=self.model.dialect)
        self.owns = not shares_engines(config)
        self.pool = start_engines(config, CURATOR) if self.owns else solver_engines
        learns = CURATOR in learning_agents(config)
        self.policy = CURATOR if learns and self.model.lora_rank else BASE
        self.version = 0

    def make_curator(self, check: Callable[[Interface], str | None]) -> LLMCurator:
        """The curator that writes here. `check` is the leak guard's."""
        curator = self._config.section(sections.Curator)
        kind = self._config.section(sections.Engine).kind if not self.owns else curator.engine
        grammar = (default_kind() if kind == "auto" else kind) == "vllm"
        kind_class: Any = CURATORS.find(curator.kind)
        made: LLMCurator = kind_class(
            self._connect,
            ChatFormat.load(self.folder.path, self.folder.dialect),
            Writing(
                context=min(curator.context, self._context()),
                max_tokens=curator.response,
                temperature=curator.temperature,
                constrained=grammar,
                retries=curator.retries,
            ),
            check=check,
            kind=curator.kind,
            policy=self.policy,
        )
        return made

    def close(self) -> None:
        """Ends the engine, if it is the curator's own."""
        if self.owns:
            self.pool.close()

    def _context(self) -> int:
        return self._config.section(sections.Solver).context if not self.owns else self.model.context

    def _connect(self) -> RemoteEngine:
        return RemoteEngine(
            self.pool.actors[0],
            policy=self.policy,
            version=self.version,
            timeout=self._config.section(sections.FaultTolerance).engine_timeout,
        )
