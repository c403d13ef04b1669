"""`seal-ray serve`: a model or a trained solver behind an OpenAI-compatible interface."""

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from envs.errors import SealError, UserError
from policies import tiny
from seal_ray.cli import options as opt
from seal_ray.cli.console import make_console, print_line

if TYPE_CHECKING:
    from seal_ray.serving.app import Served

_NAME = "seal-ray"

Adapters = Annotated[
    list[str] | None, typer.Option(help="A LoRA adapter's folder, or NAME=FOLDER; can be given several times.")
]
KeyFile = Annotated[
    str | None, typer.Option(help="File with the key that clients must send; by default SEAL_RAY_API_KEY.")
]


def command(
    model: opt.Model = tiny.NAME,
    adapter: Adapters = None,
    model_name: Annotated[str | None, typer.Option(help="The model's name for clients; else its folder's.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.", min=1, max=65535)] = 8000,
    api_key_file: KeyFile = None,
    api_key: Annotated[str | None, typer.Option(hidden=True)] = None,
    no_key: Annotated[bool, typer.Option("--no-key", help="Serve without a key, at any address.")] = False,
    replicas: Annotated[int, typer.Option(help="Copies of the model, at least.", min=1)] = 1,
    max_replicas: Annotated[int | None, typer.Option(help="Copies at most, under load.", min=1)] = None,
    gpus: Annotated[int | None, typer.Option(help="GPUs of each copy; 1 if there are any.", min=0)] = None,
    context: opt.Context = None,
    response: opt.Response = 4_096,
    concurrent: opt.Concurrent = 64,
    dialect: opt.Dialect = None,
    dtype: opt.Dtype = None,
) -> None:
    """Serve a model to OpenAI's clients, with tools and streaming. Ctrl-C stops. On a cluster, use serve deploy."""
    from seal_ray.serving.app import KEY_VARIABLE, ServingSettings, read_key, resolve

    if api_key is not None:
        raise UserError(
            "--api-key: all users of this machine can read arguments; write the key to a private file, and give "
            "--api-key-file FILE."
        )
    key = read_key(api_key_file)
    served = resolve(
        ServingSettings(
            model=model,
            name=model_name,
            adapters=_named(adapter or ()),
            dialect=dialect,
            dtype=dtype,
            context=context,
            response=response,
            concurrent=concurrent,
            replicas=replicas,
            max_replicas=max_replicas,
            gpus=gpus,
            api_key_file=api_key_file,
            no_key=no_key,
        )
    )
    check_address(host, port, key=key, no_key=no_key)
    os.environ.pop(KEY_VARIABLE, None)  # processes would inherit it
    from seal_ray.run.cluster import connected
    from seal_ray.serving.admission import admit

    # A few requests wait behind the proxy, so that replicas are never idle.
    admit(places=served.settings.places + 16, body_bytes=served.settings.max_request_mib << 20, key=key)
    say = partial(print_line, make_console())
    say(f"starting {served.name}: a minute or two on CPU")
    with connected() as own:
        logging.disable(logging.WARNING)  # Serve and vLLM log every step
        serve_until_interrupted(served, host=host, port=port, key=key, say=say, own=own)
    say("stopped")


def _named(adapters: Sequence[str]) -> dict[str, str]:
    """Adapter name → folder, from NAME=FOLDER or FOLDER."""
    named: dict[str, str] = {}
    for each in adapters:
        name, equals, folder = each.partition("=")
        if not equals:
            name, folder = Path(each).resolve().name, each
        if name in named:
            raise UserError(f"--adapter: two are called {name!r}; give NAME=FOLDER for one of them.")
        named[name] = folder
    return named


def check_address(host: str, port: int, *, key: str | None, no_key: bool) -> None:
    """Raises `UserError` for an address in use, or one that others can reach without a key."""
    from seal_ray.serving.hosts import is_loopback

    if not key and not no_key and not is_loopback(host):
        raise UserError(
            f"--host: other machines can reach {host} and there is no key; give --api-key-file FILE, or --no-key."
        )
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            pass
    except OSError as error:
        raise UserError(f"--port: {host}:{port} cannot be used ({error.strerror or error}).") from None


def serve_until_interrupted(
    served: "Served", *, host: str, port: int, key: str | None, say: Callable[[str], None], own: bool
) -> None:
    """Serves until Ctrl-C. Ray must be connected.

    Serve ends too if the cluster is its `own`, or no other application runs on it.

    Raises:
        UserError: Serve has another address already, or such an application.
        SealError: The replicas do not start.
    """
    from ray import serve
    from ray.serve.config import HTTPOptions
    from ray.serve.schema import LoggingConfig

    from seal_ray.serving.app import application

    quiet = LoggingConfig(log_level="WARNING", enable_access_log=False)
    with suppress(KeyboardInterrupt):
        serve.start(http_options=HTTPOptions(host=host, port=port), logging_config=quiet)
        _check_serve(host, port)
        with _ended(own=own):
            try:
                serve.run(application(served, key=key, host=host), name=_NAME, route_prefix="/", logging_config=quiet)
            except RuntimeError as error:
                first, *_ = str(error).strip().splitlines() or ["no reason given"]
                raise SealError(f"serve: the model could not be started ({first}).") from error
            names = ", ".join((served.name, *served.settings.adapters))
            with_key = "with the key" if key else "without a key"
            say(f"serving {names} at http://{f'[{host}]' if ':' in host else host}:{port}/v1, {with_key}; Ctrl-C stops")
            while True:
                time.sleep(1.0)


def _check_serve(host: str, port: int) -> None:
    """Raises `UserError` if Serve runs already with another address or with such an application."""
    from ray import serve
    from ray.serve.context import _get_global_client

    client: Any = _get_global_client()
    http = client.http_config
    if (http.host, http.port) != (host, port):
        raise UserError(
            f"--port: Serve listens at {http.host}:{http.port} on this cluster; end it, or use `serve deploy`."
        )
    if _NAME in serve.status().applications:
        raise UserError("RAY_ADDRESS: another `seal-ray serve` runs on this cluster; end it first.")


@contextmanager
def _ended(*, own: bool) -> Iterator[None]:
    """Ends the application at the end of the block, and on a shared cluster Serve if no other application runs."""
    from ray import serve
    from ray.exceptions import RayError
    from ray.serve.exceptions import RayServeException

    try:
        yield
    finally:
        # Replicas may not end in time, and Serve or the cluster may have ended already.
        with suppress(TimeoutError, RayError, RayServeException):
            serve.delete(_NAME)
            if not own and not serve.status().applications:
                serve.shutdown()
