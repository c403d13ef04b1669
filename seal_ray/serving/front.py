"""Ray's OpenAI ingress, with a key, limits, and errors in OpenAI's form."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from ray.exceptions import RayActorError
from ray.llm._internal.serve.core.configs.openai_api_models import ModelCard, OpenAIHTTPException
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.llm.ingress import OpenAiIngress, make_fastapi_ingress
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import JSONResponse
from vllm.entrypoints.openai.responses import streaming_events  # noqa: F401 - loaded before the first response needs it
from vllm.exceptions import VLLMClientError

import seal_ray.serving.start  # noqa: F401 - replicas of the ingress import this file before they listen
from envs.text import valid_text
from seal_ray.serving.admission import CHAT, COMPLETIONS, Intake, RequireKey
from seal_ray.serving.hosts import KnownHosts
from seal_ray.serving.limits import SEND_AGAIN, RequestLimits, error_response
from seal_ray.serving.queues import MAX_WAITING, Places

_UNAVAILABLE = (RayActorError, BackPressureError, DeploymentUnavailableError)
"""The errors of a request whose replica dies, or that no replica can take."""

_ENDPOINTS = {
    "models": lambda app: app.get("/v1/models"),
    "model_data": lambda app: app.get("/v1/models/{model:path}", response_model=ModelCard),
    "completions": lambda app: app.post(COMPLETIONS),
    "chat": lambda app: app.post(CHAT),
}


def make_ingress(*, key_digest: str | None, host: str, limits: RequestLimits, places: int) -> Any:
    """The class of the ingress deployment, for `places` requests at a time.

    Without a digest, requests need no key, and must be sent to the `host` at which the server listens.
    """
    app = FastAPI(title="seal_ray", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Intake, limits=limits, places=Places(places, waiting=MAX_WAITING))
    # Added last, so it runs first.
    if key_digest is not None:
        app.add_middleware(RequireKey, digest=key_digest)
    else:
        app.add_middleware(KnownHosts, listens=host)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(StarletteHTTPException, _refused)
    app.add_exception_handler(OpenAIHTTPException, _refused_by_engine)
    app.add_exception_handler(VLLMClientError, _refused_by_vllm)
    for kind in _UNAVAILABLE:
        app.add_exception_handler(kind, _unavailable)
    app.add_exception_handler(Exception, _failed)
    return make_fastapi_ingress(OpenAiIngress, endpoint_map=_ENDPOINTS, app=app)


async def _malformed(_: Request, error: Any) -> JSONResponse:
    first: dict[str, Any] = next(iter(error.errors()), {})
    place = ".".join(map(str, first.get("loc", ("body",))))
    return error_response(400, f"{place}: {first.get('msg', 'it cannot be read')}")


async def _refused(_: Request, error: Any) -> JSONResponse:
    return error_response(error.status_code, str(error.detail), "not_found" if error.status_code == 404 else None)


async def _refused_by_engine(_: Request, error: Any) -> JSONResponse:
    code = "context_length_exceeded" if error.type == "context_length_exceeded" else None
    return error_response(error.status_code, error.message, code)


async def _refused_by_vllm(_: Request, error: Any) -> JSONResponse:
    return error_response(400, valid_text(str(error)))


async def _unavailable(_: Request, __: Exception) -> JSONResponse:
    message = "the replica that had the request is gone, or all are busy; send it again."
    return error_response(503, message, headers=SEND_AGAIN)


async def _failed(_: Request, __: Exception) -> JSONResponse:
    return error_response(500, "the request failed; the log of the server says why.")
