"""The Serve application and its settings; `build` is for `serve deploy` and `serve run`."""

# Annotations are not postponed here: Serve inspects that of `build` to read a config file's arguments.
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field

from envs.errors import UserError, check_known
from policies import tiny
from policies.engine import BadRequest
from policies.engine.adapters import TENSOR_FILE, check_adapter, read_adapter
from policies.engine.choice import DTYPES, cache_bytes, check_tensor_parallel, choose_dtype
from policies.engine.requests import Shapes, adaptable_shapes, checkpoint_shapes
from policies.models import ModelFolder, open_model
from seal_ray.config.schema import Count
from seal_ray.evaluation.suites import budgets_for
from seal_ray.run.checkpoints import model_of, name_of
from seal_ray.serving.hosts import EVERYWHERE
from seal_ray.serving.limits import RequestLimits

KEY_VARIABLE = "SEAL_RAY_API_KEY"

_ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
_CPU_ENVIRONMENT = {
    # OpenMP threads spin while they wait, and the processes of a replica then starve each other.
    "OMP_NUM_THREADS": "1",
    # vLLM would bind all replicas of a machine to one core.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # Compiling takes longer than it saves.
    "TORCHDYNAMO_DISABLE": "1",
}
_INGRESS_REQUESTS = 10_000
"""Requests in the ingress, including requests that wait for a replica."""
_PLAIN_SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""Default sampling, as of OpenAI's servers and of evaluations.

A model's generation_config.json may differ, and a repetition penalty changes greedy requests too.
"""
_CPU_BLOCK = 32
"""Tokens in a block of the cache on CPU, as in training."""
_CPU_BATCH, _CPU_LONG = 512, 64
"""Tokens in a batch on CPU, and of one prompt in it while others wait.

A batch takes some 0.1 s. Larger ones are hardly faster, and all other requests wait for them.
"""
_GPU_READING = 65_536
"""Tokens of prompts that are read at a time on GPUs; on CPU one batch."""
_CPU_CACHE = 2 << 30
"""Bytes of a replica's cache, unless one request needs more."""


class ServingSettings(BaseModel):
    """The arguments of `seal_ray.serving.app:build`, in a config file of `serve deploy` and on the command line."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        protected_namespaces=(),
        hide_input_in_errors=True,  # one may have written the key itself
    )

    model: str = tiny.NAME
    """A model by name, a model folder, or the folder of a run; the same on every node."""
    name: str | None = None
    """The model's name in requests; None is the name of its folder."""
    adapters: dict[str, str] = Field(default_factory=dict)
    """LoRA adapters on top of it: what clients call each → its folder in PEFT's format."""
    dialect: str | None = None
    """How the model writes calls; None is what it says or suggests (docs/solver.md)."""
    dtype: str | None = None
    """Dtype of the computation; None is bfloat16 on GPUs and float32 elsewhere."""
    context: Count | None = None
    """Tokens of prompt and answer together at most; None is the model's, 32,768 at most."""
    response: Count = 4_096
    """Tokens of an answer at most, whatever a client asks for, and no more than the context leaves."""
    concurrent: Count = 64
    """Requests that a replica works on at once."""
    replicas: Count = 1
    """Copies of the model, at least."""
    max_replicas: Count | None = None
    """Copies at most, under load; None keeps their number."""
    gpus: Annotated[int, Field(ge=0)] | None = None
    """GPUs of each copy; None is 1 if the cluster has any, and else 0."""
    max_request_mib: Count = 8
    """MiB of a request at most."""
    max_messages: Count = 8_192
    """Messages of a chat at most."""
    max_tools: Count = 256
    """Tools of a chat at most."""
    api_key_file: str | None = None
    """A file with the key that clients must send, on every node; None reads it from SEAL_RAY_API_KEY."""
    no_key: bool = False
    """Serves without authentication. Otherwise requests need a key."""

    @property
    def places(self) -> int:
        """Requests that all copies of the model work on at once."""
        return self.concurrent * max(self.replicas, self.max_replicas or 0)


@dataclass(frozen=True, slots=True)
class Served:
    """Resolved settings, with opened folders. `lora_rank` is the largest of the adapters'."""

    settings: ServingSettings
    folder: ModelFolder
    name: str
    context: int
    lora_rank: int


def resolve(settings: ServingSettings) -> Served:
    """Opens the folders of the settings. Raises `UserError` for settings that cannot be served."""
    folder = open_model(model_of(settings.model), dialect=settings.dialect)
    name = settings.name or name_of(settings.model, folder)
    # Ray Serve takes the part after a colon for an adapter, and uses the name for the deployment.
    for each in (name, *settings.adapters):
        if not each or ":" in each:
            raise UserError(f"name: {each!r} cannot be used; give a name without a colon.")
    if name in settings.adapters:
        raise UserError(f"adapter: {name!r} is the model's name; give the adapter another.")
    check_known("dtype", DTYPES, settings.dtype)
    check_tensor_parallel("gpus", settings.gpus or 1, folder)
    context = budgets_for(folder, settings.context, settings.response).context
    if settings.max_replicas is not None and settings.max_replicas < settings.replicas:
        raise UserError(f"max_replicas: {settings.max_replicas} is less than the {settings.replicas} at least.")
    shapes = adaptable_shapes(checkpoint_shapes(folder.path)) if settings.adapters else {}
    ranks = [_checked_rank(label, Path(adapter), shapes) for label, adapter in settings.adapters.items()]
    return Served(settings, folder, name, context, max(ranks, default=0))


def _checked_rank(name: str, folder: Path, shapes: Shapes) -> int:
    from vllm.config.lora import MaxLoRARanks

    if not (folder / TENSOR_FILE).is_file():
        raise UserError(f"adapter: {folder} of {name!r} has no {TENSOR_FILE}; give a folder in PEFT's format.")
    adapter = read_adapter(folder)
    try:
        check_adapter(adapter, shapes, max(get_args(MaxLoRARanks)))
    except BadRequest as error:
        raise UserError(f"{error} It is {name!r}, in {folder}.") from None
    return int(adapter.config["r"])


def read_key(file: str | None) -> str | None:
    """The key that clients must send, from the file or else the environment; None if there is neither.

    Raises `UserError` if the file cannot be read, or has no key that fits into a header.
    """
    key = os.environ.get(KEY_VARIABLE) or None
    if file is not None:
        try:
            key = Path(file).expanduser().read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise UserError(f"api_key_file: {file} cannot be read ({reason}).") from None
    if key is not None and (len(key.split()) != 1 or not key.isascii()):
        raise UserError(f"{file or KEY_VARIABLE}: the key is empty, or holds spaces or letters that are not ASCII.")
    return key


def build(args: ServingSettings) -> Any:
    """The application of these arguments. Raises `UserError` if there is no key."""
    key = read_key(args.api_key_file)
    if not key and not args.no_key:
        raise UserError(f"key: none is set; give api_key_file, set {KEY_VARIABLE}, or set no_key: true to need none.")
    return application(resolve(args), key=key, host=EVERYWHERE[0])  # http_options are not available here


def application(served: Served, *, key: str | None, host: str) -> Any:
    """The Serve application: an ingress, and replicas of the model behind it. Ray must be connected.

    Without a key, requests must be sent to the `host` at which Serve listens.
    """
    import ray
    from ray import serve
    from ray.llm._internal.serve.core.configs.openai_api_models import to_model_metadata
    from ray.serve.llm import build_llm_deployment

    from seal_ray.serving.admission import digest_of
    from seal_ray.serving.front import make_ingress
    from seal_ray.serving.server import Server

    settings, folder = served.settings, served.folder
    gpus = int(ray.cluster_resources().get("GPU", 0) >= 1) if settings.gpus is None else settings.gpus
    config = llm_config(served, gpus=gpus)
    replicas = build_llm_deployment(
        config,
        deployment_cls=Server,
        bind_kwargs={
            "folder": str(folder.path.resolve()),
            "dialect": folder.dialect.name,
            "context": served.context,
            "response": settings.response,
            "reading": _GPU_READING if gpus else _CPU_BATCH,
        },
    )
    ingress = make_ingress(
        key_digest=digest_of(key) if key else None,
        host=host,
        limits=RequestLimits(
            body_bytes=settings.max_request_mib << 20,
            messages=settings.max_messages,
            tools=settings.max_tools,
            context=served.context,
        ),
        places=settings.places,
    )
    names = (served.name, *settings.adapters)
    deployment: Any = serve.deployment(
        ingress, name="ingress", max_ongoing_requests=_INGRESS_REQUESTS, ray_actor_options={"num_cpus": 0}
    )
    return deployment.bind(
        llm_deployments=dict.fromkeys(names, replicas),
        model_cards={name: to_model_metadata(name, config) for name in names},
    )


def llm_config(served: Served, *, gpus: int) -> Any:
    """Ray's configuration of the replicas, on `gpus` each, or on CPU."""
    from ray.llm._internal.common.callbacks.base import CallbackConfig
    from ray.serve.llm import LLMConfig

    settings = served.settings
    return LLMConfig(
        model_loading_config={"model_id": served.name, "model_source": str(served.folder.path.resolve())},
        engine_kwargs={**_engine(served, gpus), **_adapters(served)},
        placement_group_config=(
            {"bundle_per_worker": {"GPU": 1, "CPU": 1}} if gpus else {"bundles": [{"CPU": 1}], "strategy": "PACK"}
        ),
        deployment_config={
            **_scale(settings),
            "max_ongoing_requests": 2 * settings.concurrent,
            "health_check_period_s": 5,
            "ray_actor_options": {"num_cpus": 0},
        },
        runtime_env={"env_vars": {**_ENVIRONMENT, **({} if gpus else _CPU_ENVIRONMENT)}},
        callback_config=CallbackConfig("seal_ray.serving.start.LocalFolder"),
    )


def _scale(settings: ServingSettings) -> dict[str, Any]:
    if settings.max_replicas in (None, settings.replicas):
        return {"num_replicas": settings.replicas}
    return {
        "autoscaling_config": {
            "min_replicas": settings.replicas,
            "max_replicas": settings.max_replicas,
            # A replica is full at `concurrent`; another starts before.
            "target_ongoing_requests": max(1.0, settings.concurrent / 2),
        }
    }


def _engine(served: Served, gpus: int) -> dict[str, Any]:
    settings, folder = served.settings, served.folder
    dtype = choose_dtype(settings.dtype, on_gpu=bool(gpus))
    common: dict[str, Any] = {
        "dtype": dtype,
        "max_model_len": served.context,
        "max_num_seqs": settings.concurrent,
        "enable_prefix_caching": True,
        "override_generation_config": {**_PLAIN_SAMPLING, "max_new_tokens": settings.response},
        # Its grammars keep control tokens out of strings and raise an error when too large; the default's do neither.
        # A small model would produce endless white space, and endless properties that a schema does not name.
        "structured_outputs_config": {
            "backend": "guidance",
            "disable_any_whitespace": True,
            "disable_additional_properties": True,
        },
        # It patches vLLM on CPU, in each worker.
        "worker_extension_cls": "policies.engine.vllm_worker.WeightsExtension",
    }
    if gpus:
        return {**common, "tensor_parallel_size": gpus}
    kv_bytes = folder.kv_bytes_per_token(DTYPES[dtype])
    return {
        **common,
        "enforce_eager": True,
        "block_size": _CPU_BLOCK,
        "max_num_batched_tokens": max(_CPU_BATCH, settings.concurrent),
        "long_prefill_token_threshold": min(_CPU_LONG, served.context),
        "kv_cache_memory_bytes": min(
            cache_bytes(served.context, settings.concurrent, kv_bytes),
            max(_CPU_CACHE, cache_bytes(served.context, 1, kv_bytes)),
        ),
    }


def _adapters(served: Served) -> dict[str, Any]:
    from vllm.config.lora import MaxLoRARanks
    from vllm.entrypoints.openai.models.protocol import LoRAModulePath

    adapters = served.settings.adapters
    if not adapters:
        return {}
    return {
        "enable_lora": True,
        "max_loras": len(adapters),
        "max_lora_rank": min(rank for rank in get_args(MaxLoRARanks) if rank >= served.lora_rank),
        "lora_modules": [LoRAModulePath(name, str(Path(path).resolve())) for name, path in adapters.items()],
    }
