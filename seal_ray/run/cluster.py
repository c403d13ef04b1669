"""Connecting to Ray, to the cluster of a job or a new one on this machine; and whether and when a run fits on it."""

import logging
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.autoscaler.sdk import request_resources
from transformers.utils.logging import disable_progress_bar

from envs.errors import SealError, UserError
from envs.trusting import imports_here
from seal_ray.config.resolve import RunSpec
from seal_ray.run.ray_private import (
    closed_to_others,
    configured_nodes,
    without_working_directory,
)

_LONGEST_TEMP = 28
"""Longest path of a temporary folder in bytes; paths of Ray's sockets below it have at most 107."""

_KINDS = ("CPU", "GPU")

_STARTS = 3
"""Attempts to start Ray."""


@contextmanager
def connected() -> Iterator[bool]:
    """Joins the cluster at `RAY_ADDRESS`, as in a Ray job, or starts one that only this user on this machine can reach.

    Without an address Ray would join the cluster that was started here last, and wait for it if it has ended.

    Yields:
        Whether the cluster was started here; then it ends with the block.

    Raises:
        UserError: The cluster cannot be joined.
        ClusterNotStarted: Ray does not start on this machine.
    """
    # Errors are raised as one sentence; these log lines would only repeat them.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    disable_progress_bar()
    address = os.environ.get("RAY_ADDRESS") or "local"
    if address != "local":
        with _joined(address):
            yield False
        return
    # Ray lowers the priority of all workers; here only processes that compete with engines have a low one.
    os.environ.setdefault("RAY_worker_niceness", "0")
    with _private_folder() as folder, closed_to_others(folder):
        # Other users can read Ray's own folder, but not the private one above it.
        _start(include_dashboard=False, _temp_dir=str(folder / "r"))
        try:
            yield True
        finally:
            ray.shutdown()


class ClusterNotStarted(SealError, RuntimeError):
    """Ray's processes did not start on this machine in time."""


def _start(**settings: Any) -> None:
    """Starts a cluster. Ray gives its processes 30 seconds, too few on a busy machine, so it gets several attempts."""
    os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "90")
    for attempt in range(1, _STARTS + 1):
        try:
            _init("local", **settings)
        except Exception as error:  # noqa: BLE001 - Ray raises plain ones
            ray.shutdown()
            if attempt == _STARTS:
                why = " ".join(str(error).split())[:300]
                raise ClusterNotStarted(
                    f"Ray did not start on this machine in {_STARTS} attempts ({why}); end other programs that use its "
                    "processors, or wait for them, and start again."
                ) from None
        else:
            return


def _init(address: str, **settings: Any) -> None:
    if not imports_here():
        settings |= without_working_directory()
    ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, **settings)


@contextmanager
def _joined(address: str) -> Iterator[None]:
    try:
        _init(address)
    # RuntimeError, of several lines, if the cluster has another version of Ray or Python.
    except (ConnectionError, ValueError, RuntimeError) as error:
        lines = str(error).split("\n")
        why = " ".join(" ".join(lines).split())[:400] if isinstance(error, RuntimeError) else lines[0]
        # Ray sends its token only with RAY_AUTH_MODE; without, the error does not mention tokens.
        no_token = isinstance(error, ConnectionError) and "RAY_AUTH_MODE" not in os.environ
        token = "; if it requires a token, export RAY_AUTH_MODE=token" if no_token else ""
        raise UserError(f"RAY_ADDRESS: the cluster at {address} cannot be joined ({why}){token}.") from None
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _private_folder() -> Iterator[Path]:
    """A temporary folder that only this user can enter. It is removed at the end, except after a fault."""
    place = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    if len(os.fsencode(place)) > _LONGEST_TEMP:
        place = "/tmp"  # noqa: S108 - the folder below it is private
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir=place))
    is_kept = False
    try:
        yield folder
    except Exception as error:
        is_kept = not isinstance(error, UserError)
        raise
    finally:
        if is_kept:
            sys.stderr.write(f"Ray's logs are kept in {folder / 'r' / 'session_latest' / 'logs'}\n")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def actor_requests(spec: RunSpec) -> dict[str, list[dict[str, float]]]:
    """The resources of a run: kind of actors → resource → amount, for each actor."""
    engine, learners, runners = spec.engine, spec.learners, spec.env_runners
    requests = {
        "env runners": (runners.num_env_runners, runners.num_cpus_per_env_runner, 0.0),
        "engines": (spec.num_engines, engine.num_cpus_per_engine, engine.num_gpus_per_engine),
        "learners": (learners.num_learners, 1.0, learners.num_gpus_per_learner),
    }
    return {actors: [{"CPU": cpus, "GPU": gpus}] * count for actors, (count, cpus, gpus) in requests.items()}


def resources(spec: RunSpec) -> dict[str, dict[str, float]]:
    """The resources of a run: kind of actors → resource → amount of all actors of the kind."""
    return {actors: _total(each) for actors, each in actor_requests(spec).items()}


def _total(requests: Iterable[Mapping[str, float]]) -> dict[str, float]:
    requests = list(requests)
    return {kind: sum(request[kind] for request in requests) for kind in _KINDS}


def check_fits(spec: RunSpec) -> None:
    """Raises `UserError` if the cluster can never hold the run; Ray would wait forever."""
    ranks, gpus = spec.engine.tensor_parallel, spec.engine.num_gpus_per_engine
    if ranks > 1 and gpus > (most := _largest_node()):
        raise UserError(
            f"engine.tensor_parallel: {ranks} takes GPUs of one machine, and the largest here has {most:g}; lower it."
        )
    check_available("the run", _total(resources(spec).values()))


def _largest_node() -> float:
    """The largest number of GPUs of one machine that the cluster has, or can have."""
    nodes = [node for node, _ in configured_nodes()] + [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return float(max(node.get("GPU", 0.0) for node in nodes))


def wait_until_it_fits(spec: RunSpec, say: Callable[[str], None], *, pause: float = 30.0) -> None:
    """Has the autoscaler of the cluster, if any, start the nodes that a run needs, and blocks until they are there.

    Raises `UserError` as `check_fits`.

    Args:
        say: Gets a line of progress every `pause` seconds.
    """
    check_fits(spec)
    requests = [request for each in actor_requests(spec).values() for request in each if any(request.values())]
    request = _total(requests)
    if not _lacking(request, ray.cluster_resources()):
        return
    request_resources(bundles=[{kind: amount for kind, amount in each.items() if amount} for each in requests])
    try:
        while _lacking(request, present := ray.cluster_resources()):
            parts = (f"{present.get(kind, 0.0):g} of {needed:g} {kind}s" for kind, needed in request.items() if needed)
            say(f"waiting for the autoscaler: the cluster has {' and '.join(parts)}")
            time.sleep(pause)
    finally:
        request_resources(bundles=[])


def largest_resources() -> dict[str, float]:
    """The resources that the cluster has, or can have with its autoscaler: resource → amount.

    A kind of node whose config does not say its CPUs has enough of them.
    """
    present, nodes = ray.cluster_resources(), [node for node, count in configured_nodes() for _ in range(count)]
    return {
        "CPU": max(present.get("CPU", 0.0), sum(node.get("CPU", math.inf) for node in nodes)),
        "GPU": max(present.get("GPU", 0.0), sum(node.get("GPU", 0.0) for node in nodes)),
    }


_SMALLEST = 1e-4
"""Ray's smallest share of a resource; rounding errors of sums are smaller."""


def check_available(who: str, request: Mapping[str, float]) -> None:
    """Raises `UserError` if a request exceeds the resources that the whole cluster has, or can have."""
    cluster = largest_resources()
    for kind in _lacking(request, cluster):
        raise UserError(
            f"resources: {who} needs {request[kind]:g} {kind}s and the cluster has {cluster.get(kind, 0.0):g}; lower "
            f"the num_{kind.lower()}s settings or the number of engines, env runners and learners."
        )


def _lacking(request: Mapping[str, float], there: Mapping[str, float]) -> list[str]:
    """The kinds of resources of which there is less than requested."""
    return [kind for kind in _KINDS if request.get(kind, 0.0) > there.get(kind, 0.0) + _SMALLEST]
