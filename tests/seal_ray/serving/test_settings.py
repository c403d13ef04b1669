"""Settings of a server: mistakes are one sentence, and nothing is started."""

import socket
import warnings
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import yaml  # type: ignore[import-untyped]
from fastapi.testclient import TestClient
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import WebSocketDenialResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from envs.errors import UserError
from policies.engine import Adapter
from policies.engine.adapters import lora_tensor_names, write_adapter
from policies.engine.requests import checkpoint_shapes
from seal_ray.cli.serve import check_address
from seal_ray.serving.admission import Intake, RequireKey, digest_of
from seal_ray.serving.app import KEY_VARIABLE, ServingSettings, build, llm_config, read_key, resolve
from seal_ray.serving.hosts import KnownHosts, is_loopback
from seal_ray.serving.limits import RequestLimits
from seal_ray.serving.queues import Places
from tests.command_line import Refusal
from tests.policies.chat_models import random_chat_model


@pytest.fixture(scope="module")
def front() -> ModuleType:
    """The module of the front door, and with it Ray Serve, whose use of pydantic is out of date."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from seal_ray.serving import front
    return front


EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["/nowhere"], "'/nowhere' is no folder"),
        (["tiny", "--adapter", "/nowhere"], "has no adapter_model.safetensors"),
        (["tiny", "--adapter", "a=/x", "--adapter", "a=/y"], "two are called 'a'"),
        (["tiny", "--model-name", "a:b"], "without a colon"),
        (["tiny", "--adapter", "tiny=/x"], "'tiny' is the model's name"),
        (["tiny", "--gpus", "3"], "gpus: 3 ranks cannot share tiny's 4 attention heads"),
        (["tiny", "--dtype", "float8"], "'float8' is not known"),
        (["tiny", "--context", "1000000"], "is more than the model's"),
        (["tiny", "--replicas", "2", "--max-replicas", "1"], "is less than"),
        (["tiny", "--host", "0.0.0.0"], "give --api-key-file FILE, or --no-key"),
        (["tiny", "--host", "no.such.host.invalid", "--no-key"], "cannot be used"),
        (["tiny", "--api-key-file", "/nowhere"], "api_key_file: /nowhere cannot be read (No such file"),
        (["tiny", "--api-key-file", "/dev/null"], "/dev/null: the key is empty"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_started(
    arguments: list[str], sentence: str, check_refused: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    check_refused("serve", *arguments, sentence=sentence)


def test_a_key_is_no_argument_and_is_not_repeated(check_refused: Refusal, capsys: pytest.CaptureFixture[str]) -> None:
    check_refused("serve", "tiny", "--api-key", "sesame", sentence="give --api-key-file FILE")
    with pytest.raises(ValidationError) as refused:
        ServingSettings.model_validate({"api_key": "sesame"})
    assert "sesame" not in f"{refused.value}{capsys.readouterr()}"


@pytest.mark.parametrize("content", [b"", b"two words", b"two\nlines", "s\u00e9same".encode(), b"\xff"])
def test_a_key_file_holds_one_key_that_a_header_can_carry(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"sesame\n")
    assert read_key(str(file)) == "sesame"
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"key: the key is empty, or holds|cannot be read \(it is no text\)"):
        read_key(str(file))


def test_a_port_in_use_is_a_mistake() -> None:
    refused = pytest.raises(UserError, match="cannot be used")
    with socket.create_server(("127.0.0.1", 0)) as listener, refused:
        check_address("127.0.0.1", listener.getsockname()[1], key=None, no_key=False)


@pytest.mark.parametrize(("host", "family"), [("::1", socket.AF_INET6), ("127.0.0.1", socket.AF_INET)])
def test_an_address_is_tried_as_what_it_is(host: str, family: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every machine has IPv6."""
    tried = list[tuple[tuple[str, int], int]]()

    def listen(address: tuple[str, int], *, family: int) -> nullcontext[None]:
        tried.append((address, family))
        return nullcontext()

    monkeypatch.setattr(socket, "create_server", listen)
    check_address(host, 80, key=None, no_key=False)
    assert tried == [((host, 80), family)]


def test_only_loopback_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [True] * 4
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "192.168.0.1", "example.org"))
    check_address("0.0.0.0", 0, key="key", no_key=False)
    check_address("0.0.0.0", 0, key=None, no_key=True)
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    with pytest.raises(UserError, match="no_key: true"):
        build(ServingSettings())


@pytest.mark.usefixtures("front")
@pytest.mark.parametrize(("file", "name"), [("serve.yaml", "solver"), ("serve-seal-7b.yaml", "SEAL-7B")])
def test_the_examples_of_config_files_are_valid(file: str, name: str, tmp_path: Path) -> None:
    from ray.serve.schema import ServeDeploySchema

    document = yaml.safe_load((EXAMPLES / file).read_text("utf-8"))
    schema = ServeDeploySchema.model_validate(document)
    (application,) = schema.applications
    assert application.import_path == f"{build.__module__}:{build.__name__}"
    settings = ServingSettings.model_validate(application.args)
    if settings.model != "tiny":  # the same with another model of that architecture
        model = random_chat_model(tmp_path / "model", "qwen", context=32_768)
        settings = settings.model_copy(update={"model": str(model)})
    served = resolve(settings)
    assert (served.name, served.folder.dialect.name) == (name, "qwen")
    assert settings.max_replicas
    assert document["http_options"]["host"] == "127.0.0.1"


@pytest.mark.usefixtures("front")
def adapter_of(folder: Path, rank: int = 4) -> Adapter:
    """An adapter of the first query layer of the model."""
    module = "model.layers.0.self_attn.q_proj"
    outputs, inputs = checkpoint_shapes(folder)[f"{module}.weight"]
    half_a, half_b = lora_tensor_names(module)
    tensors = {half_a: torch.ones(rank, inputs), half_b: torch.ones(outputs, rank)}
    return Adapter({"peft_type": "LORA", "r": rank, "lora_alpha": 8}, tensors)


A, B = lora_tensor_names("model.layers.0.self_attn.q_proj")


@pytest.mark.parametrize(
    ("config", "change", "sentence"),
    [
        ({}, {A: None}, f"'{A}' is missing"),
        ({}, {f"base_model.{A}": torch.ones(4, 64)}, "is no half of a module"),
        ({}, {name.replace("layers.0", "layers.9"): torch.ones(4, 4) for name in (A, B)}, "is no half of a module"),
        ({}, {A: torch.full((4, 64), float("nan"))}, "no finite floating-point numbers"),
        ({}, {A: torch.ones(4, 63)}, "has shape"),
        ({"r": 8}, {}, "has shape"),
        ({"r": 2_000}, {}, "the engine takes 1 to"),
        ({"rank_pattern": {"q_proj": 2}}, {}, "rank_pattern is"),
        ({"alpha_pattern": {"q_proj": 2}}, {}, "alpha_pattern is"),
        ({"use_dora": True}, {}, "use_dora is True"),
        ({"init_lora_weights": "pissa"}, {}, "changes the base model"),
    ],
)
def test_an_adapter_that_vllm_would_not_serve_exactly_is_refused(
    config: dict[str, Any], change: dict[str, torch.Tensor | None], sentence: str, tmp_path: Path
) -> None:
    folder = random_chat_model(tmp_path / "model", "qwen", context=512)
    whole = adapter_of(folder)
    tensors = {name: tensor for name, tensor in {**whole.tensors, **change}.items() if tensor is not None}
    write_adapter(Adapter({**whole.config, **config}, tensors), tmp_path / "adapter", base="")
    with pytest.raises(UserError, match=sentence) as raised:
        resolve(ServingSettings(model=str(folder), adapters={"a": str(tmp_path / "adapter")}))
    assert "'a'" in str(raised.value)


def test_the_engine_and_the_scale_follow_the_settings(tmp_path: Path) -> None:
    folder = random_chat_model(tmp_path / "model", "llama3_json", context=512)
    adapter = tmp_path / "adapter"
    write_adapter(adapter_of(folder, rank=12), adapter, base="")
    settings = ServingSettings(model=str(folder), adapters={"a": str(adapter)}, replicas=2, max_replicas=4)
    served = resolve(settings)
    config = llm_config(served, gpus=0)
    assert config.engine_kwargs["max_model_len"] == 512
    assert config.engine_kwargs["max_lora_rank"] == 16
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
    assert config.engine_kwargs["override_generation_config"] == {**sampling, "max_new_tokens": 4_096}
    assert config.engine_kwargs["structured_outputs_config"]["backend"] == "guidance"
    assert config.engine_kwargs["max_num_batched_tokens"] <= 1_024  # others wait for a batch
    assert config.deployment_config["autoscaling_config"]["min_replicas"] == 2
    assert config.deployment_config["autoscaling_config"]["max_replicas"] == 4
    on_gpus = llm_config(served, gpus=2)
    assert on_gpus.engine_kwargs["tensor_parallel_size"] == 2
    assert on_gpus.get_engine_config().placement_bundles == [{"GPU": 1, "CPU": 1}] * 2


KEYLESS = [
    # listens at, Host, Origin, status
    ("127.0.0.1", "127.0.0.1:8000", None, 404),
    ("127.0.0.1", "LOCALHOST:8000", "http://localhost:3000", 404),
    ("127.0.0.1", "127.9.9.9", "https://[::1]:8000", 404),
    ("127.0.0.1", "[::1]:8000", None, 404),
    ("127.0.0.1", "evil.example:8000", None, 403),
    ("127.0.0.1", "localhost.evil.example", None, 403),
    ("127.0.0.1", "", None, 403),
    ("127.0.0.1", "localhost:8000", "http://evil.example", 403),
    ("127.0.0.1", "localhost:8000", "null", 403),
    ("Gpu-box", "gpu-box:8000", "http://gpu-box:8000", 404),
    ("0.0.0.0", "10.0.0.1:8000", "http://10.0.0.1:8000", 404),
    ("0.0.0.0", f"{socket.gethostname()}:8000", None, 404),
    ("::", "[fd00::2]:8000", None, 404),
    ("0.0.0.0", "10.0.0.1:8000", "http://6.6.6.6", 403),
]


@pytest.mark.parametrize(("listens", "host", "origin", "status"), KEYLESS)
def test_without_a_key_no_page_of_another_host_is_answered(
    listens: str, host: str, origin: str | None, status: int, front: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "make_fastapi_ingress", lambda *_, app, **__: app)
    limits = RequestLimits(body_bytes=64, messages=8, tools=8, context=64)
    headers = {"Host": host} if origin is None else {"Host": host, "Origin": origin}
    app = front.make_ingress(key_digest=None, host=listens, limits=limits, places=1)
    answer = TestClient(app).get("/nothing", headers=headers)
    code = {403: "unknown_host", 404: "not_found"}[status]
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    app = front.make_ingress(key_digest=digest_of("sesame"), host=listens, limits=limits, places=1)
    headers["Authorization"] = "Bearer sesame"
    assert TestClient(app).get("/nothing", headers=headers).status_code == 404, "with the key any name is answered to"


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}])
def test_without_a_key_web_sockets_are_as_requests(headers: dict[str, str]) -> None:
    async def accept(scope: Scope, receive: Receive, send: Send) -> None:
        await WebSocket(scope, receive, send).accept()

    client = TestClient(KnownHosts(accept, "127.0.0.1"))
    with client.websocket_connect("ws://localhost"):
        pass
    with pytest.raises(WebSocketDenialResponse) as refused, client.websocket_connect("ws://localhost", headers=headers):
        pass
    assert refused.value.status_code == 403


def test_the_key_is_asked_for_before_the_request_is_read() -> None:
    async def length(request: Request) -> PlainTextResponse:
        return PlainTextResponse(str(len(await request.body())))

    body = b'{"prompt": "x"}'
    path = "/v1/completions"
    limits = RequestLimits(body_bytes=len(body), messages=8, tools=8, context=64)
    app = Starlette(routes=[Route(path, length, methods=["POST"])])
    app.add_middleware(Intake, limits=limits, places=Places(1, waiting=1))
    app.add_middleware(RequireKey, digest=digest_of("sesame"))
    with TestClient(app) as client:
        json_type = {"Content-Type": "application/json"}
        right = {"Authorization": "Bearer sesame", **json_type}
        assert client.post(path, content=body, headers=right).text == str(len(body))
        assert client.post(path, content=body + b" ", headers=right).status_code == 413
        assert client.post(path, content=iter([body, b" "]), headers=right).status_code == 413
        assert client.post(path, content=body + b" ", headers=json_type).status_code == 401
        for wrong in ("Bearer sesam", "Bearer sesame2", "sesame", "Basic sesame", ""):
            headers = {"Authorization": wrong, **json_type}
            assert client.post(path, content=body, headers=headers).status_code == 401
