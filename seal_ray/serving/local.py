"""Serving from the command line: a Serve instance of one's own, from its start to Ctrl-C."""

from __future__ import annotations

import ipaddress
import logging
import socket
import time
from collections.abc import Callable

from envs.errors import SealError, UserError
from seal_ray.serving.settings import Served

APPLICATION = "seal-ray"
_PULSE = 1.0


def check_address(host: str, port: int, *, key: str | None, no_key: bool) -> None:
    """Raises `UserError` for an address that is taken, or open to others without a key."""
    if not key and not no_key and not is_loopback(host):
        raise UserError(
            f"--host: {host} can be reached from other machines and there is no key; give --api-key, or --no-key "
            "to let anyone ask."
        )
    try:
        with socket.create_server((host, port)):
            pass
    except OSError as error:
        raise UserError(f"--port: {host}:{port} cannot be listened at ({error.strerror or error}).") from None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def serve_until_interrupted(
    served: Served, *, host: str, port: int, key: str | None, ready: Callable[[], None]
) -> None:
    """Starts Serve and the application, calls `ready`, and stays until Ctrl-C. Ray must be connected.

    Raises `SealError` where the replicas do not come up.
    """
    from ray import serve
    from ray.serve.config import HTTPOptions
    from ray.serve.schema import LoggingConfig

    from seal_ray.serving.app import application

    logging.disable(logging.WARNING)  # Serve and vLLM log every step
    quiet = LoggingConfig(log_level="WARNING", enable_access_log=False)
    try:
        serve.start(http_options=HTTPOptions(host=host, port=port), logging_config=quiet)
        try:
            serve.run(application(served, key=key), name=APPLICATION, route_prefix="/", logging_config=quiet)
        except RuntimeError as error:
            first, *_ = str(error).strip().splitlines() or ["no reason given"]
            raise SealError(f"serve: the model could not be started ({first}).") from error
        ready()
        while True:
            time.sleep(_PULSE)
    except KeyboardInterrupt:
        pass
    finally:
        serve.shutdown()
