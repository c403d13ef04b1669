"""Clients of OpenAI's interfaces against a server: a dialogue of two turns with two tools, and an answer in a schema.

Runs in an environment that has the clients: `python dialogues.py URL KEY MODEL`. Each client does everything twice,
whole and streamed, at temperature 0; what it gets must be equal.
"""

import asyncio
import importlib.util
import json
import sys
from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel

URL, KEY, MODEL = sys.argv[1:]
ASKED = ("Which files are here?", "What is in a.txt?")
SETTINGS: dict[str, Any] = {"temperature": 0, "max_tokens": 64}


def ls(a: bool = False) -> str:
    """Lists the files of this folder, with hidden ones if a is true."""
    return json.dumps({"hidden": a, "files": ["a.txt"]})


def cat(file_name: Literal["a.txt", "b.txt"]) -> str:
    """Reads a file."""
    return json.dumps({"name": file_name, "text": "It is one line."})


class Summary(BaseModel):
    """A file in short; a small model ends neither numbers nor texts."""

    kind: Literal["text", "table"]
    empty: bool


TOOLS: dict[str, Callable[..., str]] = {"ls": ls, "cat": cat}
_ARGUMENTS: dict[str, dict[str, Any]] = {
    "ls": {"a": {"type": "boolean"}},
    "cat": {"file_name": {"type": "string", "enum": ["a.txt", "b.txt"]}},
}
DOCUMENTS = [
    {
        "name": name,
        "description": TOOLS[name].__doc__,
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        },
    }
    for name, properties in _ARGUMENTS.items()
]
NESTED: Any = [{"type": "function", "function": document} for document in DOCUMENTS]


def called(name: str, arguments: Any) -> str:
    given = json.loads(arguments) if isinstance(arguments, str) else arguments
    return TOOLS[name](**given)


def play_openai(*, stream: bool) -> list[Any]:
    """OpenAI's own client, with chats."""
    from openai import OpenAI

    client = OpenAI(base_url=URL, api_key=KEY, max_retries=0)
    messages: list[Any] = []
    for question, name in zip(ASKED, TOOLS, strict=True):
        messages.append({"role": "user", "content": question})
        for choice in ({"type": "function", "function": {"name": name}}, "none"):
            sent: dict[str, Any] = {"model": MODEL, "messages": messages, "tools": NESTED, "tool_choice": choice}
            if stream:
                with client.chat.completions.stream(**sent, **SETTINGS) as events:
                    events.until_done()
                    answer = events.get_final_completion().choices[0].message
            else:
                answer = client.chat.completions.create(**sent, **SETTINGS).choices[0].message
            calls = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.function.name, "arguments": call.function.arguments},
                }
                for call in answer.tool_calls or ()
            ]
            messages.append(
                {"role": "assistant", "content": answer.content, **({"tool_calls": calls} if calls else {})}
            )
            for call in calls:
                result = called(call["function"]["name"], call["function"]["arguments"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    sent = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Sum it up."}],
        "response_format": Summary,
        **SETTINGS,
    }
    if stream:
        with client.chat.completions.stream(**sent) as events:
            events.until_done()
            parsed = events.get_final_completion().choices[0].message.parsed
    else:
        parsed = client.chat.completions.parse(**sent).choices[0].message.parsed
    return [*messages, parsed]


def play_responses(*, stream: bool) -> list[Any]:
    """OpenAI's own client, with Responses."""
    from openai import OpenAI

    client = OpenAI(base_url=URL, api_key=KEY, max_retries=0)
    items: list[Any] = []
    flat: Any = [{"type": "function", "strict": True, **document} for document in DOCUMENTS]
    for question, name in zip(ASKED, TOOLS, strict=True):
        items.append({"role": "user", "content": question})
        for choice in ({"type": "function", "name": name}, "none"):
            sent: dict[str, Any] = {"model": MODEL, "input": items, "tools": flat, "tool_choice": choice}
            sent |= {"temperature": 0, "max_output_tokens": 64}
            if stream:
                with client.responses.stream(**sent) as events:
                    events.until_done()
                    answer = events.get_final_response()
            else:
                answer = client.responses.create(**sent)
            for item in answer.output:
                items.append(item.model_dump(exclude_none=True, exclude={"id", "parsed_arguments"}, mode="json"))
                if item.type == "function_call":
                    result = called(item.name, item.arguments)
                    items.append({"type": "function_call_output", "call_id": item.call_id, "output": result})
    sent = {"model": MODEL, "input": "Sum it up.", "text_format": Summary, "temperature": 0}
    if stream:
        with client.responses.stream(**sent) as events:
            events.until_done()
            parsed = events.get_final_response().output_parsed
    else:
        parsed = client.responses.parse(**sent).output_parsed
    return [*items, parsed]


def play_litellm(*, stream: bool) -> list[Any]:
    import litellm

    common: dict[str, Any] = {"model": f"openai/{MODEL}", "api_base": URL, "api_key": KEY, **SETTINGS}
    messages: list[Any] = []

    def answer(**sent: Any) -> Any:
        got = litellm.completion(**common, **sent, stream=stream)
        return (litellm.stream_chunk_builder(list(got)) if stream else got).choices[0].message

    for question, name in zip(ASKED, TOOLS, strict=True):
        messages.append({"role": "user", "content": question})
        for choice in ({"type": "function", "function": {"name": name}}, "none"):
            message = answer(messages=messages, tools=NESTED, tool_choice=choice)
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls or ():
                result = called(call.function.name, call.function.arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    text = answer(messages=[{"role": "user", "content": "Sum it up."}], response_format=Summary).content
    return [*messages, Summary.model_validate_json(text)]


def play_langchain(*, stream: bool) -> list[Any]:
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(base_url=URL, api_key=KEY, model=MODEL, temperature=0, max_tokens=64, max_retries=0)
    messages: list[Any] = []
    for question, name in zip(ASKED, TOOLS, strict=True):
        messages.append(HumanMessage(question))
        for choice in (name, "none"):
            bound = model.bind_tools(NESTED, tool_choice=choice)
            if stream:
                parts = list(bound.stream(messages))
                message = parts[0]
                for part in parts[1:]:
                    message += part
            else:
                message = bound.invoke(messages)
            messages.append(message)
            for call in message.tool_calls:
                result = called(call["name"], call["args"])
                messages.append(ToolMessage(result, tool_call_id=call["id"]))
    structured = model.with_structured_output(Summary)
    parsed = list(structured.stream("Sum it up."))[-1] if stream else structured.invoke("Sum it up.")
    return [*((message.text, getattr(message, "tool_calls", None)) for message in messages), parsed]


def play_instructor(*, stream: bool) -> list[Any]:
    import instructor
    from openai import OpenAI

    found: list[Any] = []
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        client = instructor.from_openai(OpenAI(base_url=URL, api_key=KEY, max_retries=0), mode=mode)
        messages: list[Any] = []
        for question in ASKED:
            messages.append({"role": "user", "content": question})
            sent: dict[str, Any] = {"model": MODEL, "messages": messages, "max_retries": 0, **SETTINGS}
            if stream:
                *_, parsed = client.chat.completions.create_partial(response_model=Summary, **sent)
            else:
                parsed = client.chat.completions.create(response_model=Summary, **sent)
            messages.append({"role": "assistant", "content": parsed.model_dump_json()})
        found += messages
    return found


def play_pydantic_ai(*, stream: bool) -> list[Any]:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.usage import UsageLimits

    async def events(_: Any, stream: Any) -> None:
        async for _ in stream:
            pass

    async def play(kind: Any) -> list[Any]:
        model = kind(MODEL, provider=OpenAIProvider(base_url=URL, api_key=KEY))
        more: dict[str, Any] = {"event_stream_handler": events} if stream else {}
        agent = Agent(model, tools=list(TOOLS.values()), model_settings=SETTINGS)
        history: list[Any] = []
        for question in ASKED:
            run = await agent.run(question, message_history=history, usage_limits=UsageLimits(request_limit=3), **more)
            history = run.all_messages()
        summary = Agent(model, output_type=Summary, model_settings=SETTINGS, retries=0)
        parsed = (await summary.run("Sum it up.", **more)).output
        shown = ("part_kind", "content", "tool_name", "args")
        parts = [[getattr(part, key, None) for key in shown] for message in history for part in message.parts]
        return [*parts, parsed]

    return [asyncio.run(play(kind)) for kind in (OpenAIChatModel, OpenAIResponsesModel)]


def play_agents(*, stream: bool) -> list[Any]:
    """OpenAI's Agents SDK in its default mode, which is Responses."""
    from agents import Agent, ModelSettings, Runner, function_tool, set_default_openai_client, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)

    async def play() -> list[Any]:
        set_default_openai_client(AsyncOpenAI(base_url=URL, api_key=KEY, max_retries=0), use_for_tracing=False)

        async def run(agent: Any, items: Any) -> Any:
            if not stream:
                return await Runner.run(agent, items, max_turns=4)
            result = Runner.run_streamed(agent, items, max_turns=4)
            async for _ in result.stream_events():
                pass
            return result

        tools = [function_tool(tool) for tool in TOOLS.values()]
        items: list[Any] = []
        for question, name in zip(ASKED, TOOLS, strict=True):
            settings = ModelSettings(temperature=0, max_tokens=64, tool_choice=name)
            agent = Agent(name="files", instructions="Be brief.", model=MODEL, tools=tools, model_settings=settings)
            result = await run(agent, [*items, {"role": "user", "content": question}])
            items = result.to_input_list()
        settings = ModelSettings(temperature=0, max_tokens=64)
        agent = Agent(name="sum", model=MODEL, output_type=Summary, model_settings=settings)
        return [*items, (await run(agent, "Sum it up.")).final_output]

    return asyncio.run(play())


CLIENTS = {
    "openai": (play_openai, play_responses),
    "litellm": (play_litellm,),
    "langchain_openai": (play_langchain,),
    "instructor": (play_instructor,),
    "pydantic_ai": (play_pydantic_ai,),
    "agents": (play_agents,),
}
_RANDOM = ("id", "call_id", "tool_call_id", "provider_specific_fields")


def comparable(value: Any) -> Any:
    """A result without what differs between any two answers."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    if isinstance(value, dict):
        return {
            key: comparable(item) for key, item in value.items() if key not in _RANDOM and item not in (None, "", [])
        }
    return [comparable(item) for item in value] if isinstance(value, list | tuple) else value


def main() -> None:
    failed = 0
    for module, plays in CLIENTS.items():
        for play in plays if importlib.util.find_spec(module) else ():
            try:
                whole, streamed = (comparable(play(stream=stream)) for stream in (False, True))
            except Exception as error:  # noqa: BLE001 - each client has its own
                outcome = f"{type(error).__name__}: {str(error)[:300]}"
            else:
                outcome = "equal" if whole == streamed else f"differs:\n  {whole}\n  {streamed}"
            failed += outcome != "equal"
            print(f"{play.__name__}: {outcome}", flush=True)
    sys.exit(min(failed, 1))


if __name__ == "__main__":
    main()
