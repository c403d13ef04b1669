"""Ray's private names under public ones: a cluster that only this user on this machine can reach.

Ray gives no public way to have its processes listen at loopback addresses on Linux. Verified with Ray 2.60.
"""

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

from envs.errors import UserError
from envs.received import read_yaml

_RAYLET: Any = ray._raylet
_BOOTSTRAP = "~/ray_bootstrap_config.yaml"
_LOOPBACK = {
    # Ray uses the loopback address for the node: its switch for systems that form no clusters.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # The same for the learners' collectives and vLLM, which open their own ports.
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
        ray_constants.ENABLE_RAY_CLUSTER = False  # Ray reads its switch on import
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = forms_clusters
        _set(before)


def actor_processes(class_name: str) -> list[int]:
    """Process ids of the cluster's running actors of a class."""
    running = [each for each in ray._private.state.actors().values() if each["State"] == "ALIVE"]
    return [each["Pid"] for each in running if each["ActorClassName"].rpartition(".")[2] == class_name]


class _WithoutWorkingDirectory(JobConfig):
    def _runtime_env_has_working_dir(self) -> bool:
        return True


def without_working_directory() -> dict[str, Any]:
    """Settings of `ray.init` for workers that do not import modules from the working directory.

    Files in it could shadow modules of packages. In a job the job server makes these settings.
    """
    is_job = RAY_JOB_CONFIG_JSON_ENV_VAR in os.environ
    return {} if is_job else {"job_config": _WithoutWorkingDirectory()}


def configured_nodes() -> list[tuple[dict[str, float], int]]:
    """For each kind of node of the autoscaler's: its resources, and the largest number of such nodes.

    `ray up` leaves its config on the head node, where jobs run. There are none without it.
    """
    try:
        config = read_yaml(Path(_BOOTSTRAP).expanduser(), "autoscaling config")
        most = int(config["max_workers"])
        return [
            (dict(kind["resources"]), min(most, int(kind.get("max_workers", 0))) + (name == config["head_node_type"]))
            for name, kind in config["available_node_types"].items()
        ]
    except (UserError, KeyError, TypeError, ValueError, AttributeError):
        return []


def _set(variables: dict[str, str | None]) -> None:
    """Sets environment variables or, with None, removes them; then Ray reads them again."""
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    _RAYLET.Config.initialize("")
    _RAYLET.AuthenticationTokenLoader.instance().reset_cache()
