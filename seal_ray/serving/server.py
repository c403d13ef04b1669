"""A replica of the model: Ray's `LLMServer` with vLLM in it, and prompts that are those of training."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from ray.serve.llm import LLMConfig
from ray.serve.llm.deployment import LLMServer

from envs.errors import UserError
from policies.model_folder import open_model
from seal_ray.serving.answers import listened_to
from seal_ray.serving.prompt import ServedFormat

if TYPE_CHECKING:
    from ray.llm._internal.serve.core.configs.openai_api_models import ChatCompletionRequest


class Server(LLMServer):
    """Renders each chat by the model's `ServedFormat`; all else is Ray's and vLLM's."""

    async def __init__(self, llm_config: LLMConfig, *, folder: str, dialect: str) -> None:  # type: ignore[misc]
        opened = open_model(folder, dialect=dialect)
        self._format = ServedFormat.of(opened.path, opened.dialect)
        await super().__init__(llm_config)

    async def chat(self, request: ChatCompletionRequest, raw_request_info: Any = None) -> AsyncGenerator[Any, None]:
        """Answers a chat, with a 400 where its messages cannot be a dialogue."""
        try:
            token_ids = self._format.prompt(request.messages, map(_document, request.tools or ()))
        except UserError as error:
            return _refused(str(error))
        if "skip_special_tokens" not in request.model_fields_set:
            request.skip_special_tokens = False  # what the model said, as the solver's dialogues read it
        # vLLM takes the tokens of a prompt that another of its processes has rendered, instead of rendering again.
        request.kv_transfer_params = {"prompt_token_ids": list(token_ids)}
        show_tokens, request.return_token_ids = bool(request.return_token_ids), True
        said = await super().chat(request, raw_request_info)
        return listened_to(
            said,
            lambda answer: self._format.keep(token_ids, answer.message(), answer.token_ids),
            show_tokens=show_tokens,
        )


def _document(tool: Any) -> dict[str, Any]:
    """The tool's document as its client wrote it; vLLM's models leave out what OpenAI does not know."""
    function = tool.function
    known = {key: getattr(function, key) for key in ("name", "description", "parameters")}
    given = {key: value for key, value in known.items() if key in function.model_fields_set}
    return {**given, **(function.model_extra or {})}


async def _refused(message: str) -> AsyncGenerator[Any, None]:
    from ray.serve.llm.openai_api_models import ErrorResponse
    from vllm.entrypoints.serve.engine.protocol import ErrorInfo

    yield ErrorResponse(error=ErrorInfo(message=message, type="invalid_request_error", code=400))
