"""Connecting to Ray: the cluster that a job runs on, or one of this machine's own; and whether a run fits on it."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from transformers.utils.logging import disable_progress_bar

from envs.errors import UserError
from envs.trusting import imports_here
from seal_ray.config.resolve import RunSpec
from seal_ray.run.ray_private import closed_to_others, without_working_directory

_LONGEST_TEMP = 28
"""Bytes of a temporary folder's path that leave room for the paths of Ray's sockets, of 107 bytes at most."""


@contextmanager
def connected() -> Iterator[bool]:
    """Joins the cluster that `RAY_ADDRESS` names, as in a Ray job, or starts one here; leaves it at the end.

    Gives whether it is one of its own, which ends then; only this user's processes on this machine can reach it.
    Without an address Ray would join whichever cluster was started here last, and wait for one that has ended. Raises
    `UserError` where the cluster cannot be joined.
    """
    # Errors are raised with one clear sentence; these log lines add nothing to it.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    disable_progress_bar()
    address = os.environ.get("RAY_ADDRESS") or "local"
    own = address == "local"
    if not own:
        with _joined(address):
            yield False
        return
    # Ray gives all workers a low priority; here those have it that give way to engines.
    os.environ.setdefault("RAY_worker_niceness", "0")
    with (
        _private_folder() as folder,
        closed_to_others(folder),
        # Ray opens its own folder to all users; the one above it stays closed.
        _joined(address, include_dashboard=False, _temp_dir=str(folder / "r")),
    ):
        yield True


@contextmanager
def _joined(address: str, **settings: Any) -> Iterator[None]:
    try:
        if not imports_here():
            settings |= without_working_directory()
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, **settings)
    # The last where the cluster has another version of Ray or Python, in words of several lines.
    except (ConnectionError, ValueError, RuntimeError) as error:
        lines = str(error).split("\n")
        why = " ".join(" ".join(lines).split())[:400] if isinstance(error, RuntimeError) else lines[0]
        # Ray does not send a token that it has unless it is told to, and then says only that it got no answer.
        unasked = isinstance(error, ConnectionError) and "RAY_AUTH_MODE" not in os.environ
        token = "; where it asks for a token, export RAY_AUTH_MODE=token" if unasked else ""
        raise UserError(f"RAY_ADDRESS: the cluster at {address} cannot be joined ({why}){token}.") from None
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _private_folder() -> Iterator[Path]:
    """A temporary folder that only this user can enter. It is removed at the end, unless a fault leaves the block."""
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


def resources(spec: RunSpec) -> dict[str, dict[str, float]]:
    """What a run asks Ray for: actor → resource → amount, for all actors of a kind together."""
    engine, learners, runners = spec.engine, spec.learners, spec.env_runners
    asked = {
        "env runners": (runners.num_env_runners, runners.num_cpus_per_env_runner, 0.0),
        "engines": (spec.num_engines, engine.num_cpus_per_engine, engine.num_gpus_per_engine),
        "learners": (learners.num_learners, 1.0, learners.num_gpus_per_learner),
    }
    return {actors: {"CPU": count * cpus, "GPU": count * gpus} for actors, (count, cpus, gpus) in asked.items()}


def check_fits(spec: RunSpec) -> None:
    """Raises `UserError` where the cluster can never hold the run; Ray would wait for ever.

    And where the run's own process is to learn on a GPU, of which Ray is not told outside of Tune.
    """
    learners = spec.learners
    if learners.num_gpus_per_learner and not learners.num_learners:
        raise UserError("learners.num_learners: 0 sets no GPU aside for learning; set it to 1 or more.")
    asked = resources(spec).values()
    check_asked("the run", {kind: sum(each[kind] for each in asked) for kind in ("CPU", "GPU")})


_SMALLEST = 1e-4
"""Ray's smallest share of a resource: sums of shares are off by less."""


def check_asked(who: str, asked: Mapping[str, float]) -> None:
    """Raises `UserError` where the whole cluster has less of a resource than is asked for at once."""
    there = ray.cluster_resources()
    for kind in ("CPU", "GPU"):
        needed, had = asked.get(kind, 0.0), there.get(kind, 0.0)
        if needed > had + _SMALLEST:
            raise UserError(
                f"resources: {who} asks for {needed:g} {kind}s and the cluster has {had:g}; lower the "
                f"num_{kind.lower()}s settings or the number of engines, env runners and learners."
            )
