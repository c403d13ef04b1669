"""Ray's private names, under public ones: what keeps a cluster of this machine to this machine and this user.

Ray gives no public way to have its processes listen at loopback addresses on Linux. Verified with Ray 2.60.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray._private import ray_constants
from ray._private.runtime_env.constants import RAY_JOB_CONFIG_JSON_ENV_VAR
from ray.job_config import JobConfig

_RAYLET: Any = ray._raylet
_LOOPBACK = {
    # Ray takes the loopback address for the node's: its own switch for machines that form no clusters.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # So do the parts that listen by themselves: the learners' collectives, and vLLM.
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    "VLLM_HOST_IP": "127.0.0.1",
}


@contextmanager
def closed_to_others(folder: Path) -> Iterator[None]:
    """Clusters that start inside the block listen at loopback, and require a token that only this user can read.

    Args:
        folder: A private folder, to which the token is written.
    """
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32), "ascii")
    wanted = {**_LOOPBACK, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_AUTH_TOKEN": None}
    before = {name: os.environ.get(name) for name in wanted}
    forms_clusters = ray_constants.ENABLE_RAY_CLUSTER
    try:
        _set(wanted)
        ray_constants.ENABLE_RAY_CLUSTER = False  # Ray has read its switch when it was imported
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = forms_clusters
        _set(before)


class _WithoutWorkingDirectory(JobConfig):
    def _runtime_env_has_working_dir(self) -> bool:
        return True


def without_working_directory() -> dict[str, Any]:
    """Settings of `ray.init` with which workers do not search the working directory for modules before all else.

    Files in it could shadow modules of packages. A job has its config from the job server.
    """
    is_job = RAY_JOB_CONFIG_JSON_ENV_VAR in os.environ
    return {} if is_job else {"job_config": _WithoutWorkingDirectory()}


def _set(variables: dict[str, str | None]) -> None:
    """Sets environment variables or, with None, removes them, and has Ray read them again."""
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    _RAYLET.Config.initialize("")
    _RAYLET.AuthenticationTokenLoader.instance().reset_cache()
