"""The Serve application: `build` for `serve deploy` and `serve run`, and what it is put together from."""

# Annotations are not postponed here: Serve looks at that of `build` to read a config file's arguments.
import os
from pathlib import Path
from typing import Any, get_args

from envs.errors import UserError
from policies.engine.choice import DTYPES, cache_bytes
from seal_ray.serving.limits import Limits
from seal_ray.serving.settings import Served, ServingSettings, make_out

KEY_VARIABLE = "SEAL_RAY_API_KEY"

_PARSERS = {"qwen": "hermes", "llama3_json": "llama3_json", "toolace": "pythonic"}
"""Dialect → vLLM's parser of its calls."""

_ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    # No grammars of the dialects' markup, which control tokens are part of. A call that must be made is JSON.
    "VLLM_ENFORCE_STRICT_TOOL_CALLING": "0",
}
_CPU_ENVIRONMENT = {
    # OpenMP threads spin while they wait, and the processes of a replica then starve each other.
    "OMP_NUM_THREADS": "1",
    # vLLM would bind all replicas of a machine to the same core.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # Compiling takes longer than it saves.
    "TORCHDYNAMO_DISABLE": "1",
}
_INGRESS_REQUESTS = 10_000
"""Requests under way in the ingress; those beyond what the replicas take wait there."""
_CPU_BLOCK = 32
"""Tokens in a block of the cache on CPU: as in training."""
_CPU_BATCH, _CPU_LONG = 512, 64
"""Tokens in a batch on CPU, and those of one prompt in it while others wait.

A batch takes some 0.1 s then. Larger ones are hardly faster, and all other requests wait for them.
"""
_GPU_READING = 65_536
"""Tokens of prompts that are read at a time on GPUs; on CPU it is a batch."""
_CPU_CACHE = 2 << 30
"""Bytes of a replica's cache at most, where one request fits into them."""


def build(args: ServingSettings) -> Any:
    """The application of these arguments, with the environment's key. Raises `UserError` where there is no key."""
    key = os.environ.get(KEY_VARIABLE)
    if not key and not args.no_key:
        raise UserError(f"key: none is set; set {KEY_VARIABLE}, or say no_key: true to let anyone ask.")
    return application(make_out(args), key=key or None)


def application(served: Served, *, key: str | None) -> Any:
    """The Serve application: an ingress, and replicas of the model behind it. Ray must be connected."""
    from ray import serve
    from ray.llm._internal.serve.core.configs.openai_api_models import to_model_metadata
    from ray.serve.llm import build_llm_deployment

    from seal_ray.serving.front import make_ingress
    from seal_ray.serving.intake import digest_of
    from seal_ray.serving.server import Server

    settings = served.settings
    gpus = _gpus(settings)
    config = llm_config(served, gpus=gpus)
    folder = served.folder
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
        limits=Limits(
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
    """Ray's configuration of the replicas, on so many GPUs each, or on CPU."""
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
    )


def _gpus(settings: ServingSettings) -> int:
    import ray

    if settings.gpus is not None:
        return settings.gpus
    return int(ray.cluster_resources().get("GPU", 0) >= 1)


def _scale(settings: ServingSettings) -> dict[str, Any]:
    if settings.max_replicas in (None, settings.replicas):
        return {"num_replicas": settings.replicas}
    return {
        "autoscaling_config": {
            "min_replicas": settings.replicas,
            "max_replicas": settings.max_replicas,
            # A replica is full at `concurrent`; another is there before it is.
            "target_ongoing_requests": max(1.0, settings.concurrent / 2),
        }
    }


def _engine(served: Served, gpus: int) -> dict[str, Any]:
    settings, folder = served.settings, served.folder
    dtype = settings.dtype or ("bfloat16" if gpus else "float32")
    common: dict[str, Any] = {
        "dtype": dtype,
        "max_model_len": served.context,
        "max_num_seqs": settings.concurrent,
        "enable_prefix_caching": True,
        "enable_auto_tool_choice": True,
        "tool_call_parser": _PARSERS[folder.dialect.name],
        "override_generation_config": {"max_new_tokens": settings.response},
        # Its grammars keep control tokens out of strings and raise an error when too large; the default's do neither.
        # Endless white space and properties that a schema does not name are left out: a small model would fill them.
        "structured_outputs_config": {
            "backend": "guidance",
            "disable_any_whitespace": True,
            "disable_additional_properties": True,
        },
        # It mends what is wrong in vLLM on CPU, in each of its workers.
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
    ranks = [rank for rank in get_args(MaxLoRARanks) if rank >= served.lora_rank]
    if not ranks:
        raise UserError(f"adapter: a rank of {served.lora_rank} is more than vLLM can serve.")
    return {
        "enable_lora": True,
        "max_loras": len(adapters),
        "max_lora_rank": ranks[0],
        "lora_modules": [LoRAModulePath(name, str(Path(path).resolve())) for name, path in adapters.items()],
    }
