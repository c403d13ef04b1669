"""The imports of the servers of `preloaded`, and which environment variables that reads."""

import gc
import importlib
import os
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

LIBRARIES = (
    "seal_ray",  # sets what OpenMP reads
    "torch",
    "torch._dynamo",
    "torch._inductor.lowering",
    "torch._inductor.standalone_compile",
    "transformers",
    "transformers.models.llama.modeling_llama",
    "transformers.models.qwen2.modeling_qwen2",
    "peft",
    "gymnasium",
    "openai.types.responses",
    "scipy.signal",
    # What Ray imports, and what of ours does not import Ray.
    "envs.co_evolution",
    "pandas",
    "policies.curator.llm",
    "policies.rollouts",
    "pyarrow.compute",
    "rich.pretty",
    "seal_ray.config.resolve",
    "seal_ray.config.presets",
    "seal_ray.grpo.forward",
    "smart_open",
)
WITH_RAY = ("ray.rllib.algorithms.algorithm", "ray.tune", "seal_ray.algorithm.seal")
OF_ENGINES = ("vllm.v1.engine.async_llm",)
OF_CORES = (
    "vllm.v1.engine.core",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.executor.uniproc_executor",
    "vllm.model_executor.models.llama",
    "vllm.model_executor.models.qwen2",
    "policies.engine.vllm_worker",
)
"""The imports of the core of a vLLM engine."""
READ_BELOW_PYTHON = ("GOMP_", "LD_", "MKL_", "OMP_", "PYTHONHASHSEED", "TORCH_")
"""How variables begin that libraries read where Python does not see it."""
MAY_DIFFER = {
    *("COLUMNS", "HF_HUB_OFFLINE", "HOME", "LINES", "PATH", "PS1", "PYTEST_CURRENT_TEST", "PYTHONPATH"),
    *("OLDPWD", "PWD", "SHLVL", "_"),
}
"""Variables that libraries read again when they need them, for places where processes in tests have nothing, or to see
that they are tested; two that a fork minds itself; and what a shell sets."""
RAYLET, JOB, FIRST_JOB = "RAY_RAYLET_PID", "RAY_JOB_ID", "01000000"
READ_LATER = (
    *("CRC32C_", "PYTEST_", "PYTHONBREAKPOINT", "RAY_", "SEAL_RAY_", "SPT_NOENV"),
    *("VLLM_CPU_OMP_", "VLLM_ENFORCE_", "VLLM_HOST_IP"),
)
"""How variables begin that vLLM, which copies all of them when it is imported, reads when it needs them or not at all;
those of Ray are the same in all forks of one server, or may differ."""
QUIET = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""What keeps libraries from starting threads when they are imported; a process with threads cannot be forked."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What importing libraries did: the variables that it read, with their values then, and those that it set."""

    read: Mapping[str, str | None]
    made: Mapping[str, str]

    def suits(self, environment: Mapping[str, str], may_differ: Set[str]) -> bool:
        """Whether a process with these variables would have read the same."""
        found = {**self.made, **environment}
        below = {name for name in found if name.startswith(READ_BELOW_PYTHON)}
        names = {*self.read, *below} - MAY_DIFFER - QUIET.keys() - may_differ
        return all(found.get(name) == self.read.get(name) for name in names)


def import_these(names: Iterable[str], *, unless: tuple[str, ...] = ()) -> Imported:
    """Imports these. Variables whose names begin with one of `unless` do not matter to who has imported them."""
    given = set(os.environ)
    with _noted() as noted:
        for name in names:
            importlib.import_module(name)
    threads = os.listdir("/proc/self/task")
    if len(threads) > 1:
        raise RuntimeError("A library has started a thread, and a process with threads cannot be forked.")
    gc.collect()
    gc.freeze()
    noted = {name for name in noted if not name.startswith(unless)}
    below = {name for name in os.environ if name.startswith(READ_BELOW_PYTHON)}
    return Imported(
        read={name: os.environ.get(name) for name in noted | below},
        made={name: value for name, value in os.environ.items() if name not in given},
    )


@contextmanager
def _noted() -> Iterator[set[str]]:
    """The names of the environment variables that are read meanwhile."""
    names: set[str] = set()
    kind = type(os.environ)
    read = kind.__getitem__

    def note(environment: os._Environ[str], name: str) -> str:
        names.add(os.fsdecode(name))  # some read bytes, by `os.environb`
        return read(environment, name)

    kind.__getitem__ = note  # type: ignore[method-assign]
    try:
        yield names
    finally:
        kind.__getitem__ = read  # type: ignore[method-assign]


def with_ray(environment: Mapping[str, str], before: Imported) -> Imported:
    """Imports Ray with the variables of a process, as that would, and for a first job's workers what engines import."""
    from policies.engine.vllm_setup import prepare_environment

    os.environ.clear()
    os.environ.update(environment)
    names: tuple[str, ...] = WITH_RAY
    given = set(os.environ)
    if JOB in environment:
        os.environ[RAYLET] = str(os.getpid())  # which lives as long as any fork
    if environment.get(JOB) == FIRST_JOB:
        prepare_environment(None)
        names += OF_ENGINES
    imported = import_these(_ray_and(names), unless=(*READ_LATER, *(os.environ.keys() - given)))
    return Imported(imported.read, {**before.made, **imported.made})


def _ray_and(names: Iterable[str]) -> Iterator[str]:
    """Ray and these libraries. Ray draws no id before the last of them is imported.

    Its generator would be seeded by that, and draw the same ids in all forks: two calls of two processes would be one
    for an actor that both call, which then ends.
    """
    yield "ray"
    import ray

    class OfActors:
        @staticmethod
        def from_random() -> ray.ActorClassID:
            return ray.ActorClassID(os.urandom(ray.ActorClassID.size()))

    with patch.object(ray.actor, "ActorClassID", OfActors):
        yield from names
