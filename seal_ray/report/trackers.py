"""`Trackers`: metrics to TensorBoard always, and to wandb where that is wanted."""

from __future__ import annotations

import logging
import math
import netrc
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from envs.errors import check_known
from envs.task import JSON
from seal_ray.metrics import check
from seal_ray.report.files import RunFolder, as_json, replace_file

if TYPE_CHECKING:
    import wandb as wandb_package

WANDB = ("off", "auto", "online", "offline")
"""Whether metrics go to wandb: never, online where a key is found and offline else, or always one of the two."""

PROJECT = "seal-ray"
_FLUSH_S = 1
"""How long TensorBoard's events wait in memory; a kill loses no more of them."""
_INIT_TIMEOUT_S = 60.0
_FINISH_TIMEOUT_S = 120.0
"""How long the end of a run waits for the upload; `wandb sync` delivers what is missing."""

R = TypeVar("R")
_LOG = logging.getLogger(__name__)


class Trackers:
    """Writes the metrics of each round where people look at them.

    wandb is optional: a failure is logged once, and the run goes on without it.
    """

    def __init__(
        self,
        folder: RunFolder,
        *,
        config: Mapping[str, object],
        wandb: str = "off",
        after_round: int | None = None,
    ) -> None:
        """`after_round` is the round after which a run goes on; what was written of later ones is then hidden.

        Raises `UserError` where `wandb` is none of `WANDB`.
        """
        check_known("wandb", WANDB, wandb)
        from tensorboardX import SummaryWriter  # type: ignore[import-untyped] # here, since it loads torch

        self._board = SummaryWriter(
            logdir=str(folder.tensorboard),
            purge_step=None if after_round is None else after_round + 1,
            # Names hold the second only, and a file of the same name would be overwritten.
            filename_suffix="" if after_round is None else f".after_{after_round}",
            flush_secs=_FLUSH_S,
        )
        self._run: wandb_package.Run | None = None
        if wandb != "off":
            self._run = self._unless_it_fails("start", lambda: _start_wandb(folder, wandb, as_json(config)))

    def write(self, round_number: int, metrics: Mapping[str, float | int]) -> None:
        """Writes the metrics of a round, the finite ones. Raises as `check` does."""
        check(metrics)
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        for name, value in finite.items():
            self._board.add_scalar(name, value, round_number)
        if (run := self._run) is not None:
            self._unless_it_fails("log", lambda: run.log(finite, step=round_number))

    def close(self) -> None:
        """Finishes both. It may be called twice."""
        self._board.close()
        if self._run is not None:
            self._unless_it_fails("finish", self._run.finish)
            self._run = None
            _end_service()

    def _unless_it_fails(self, what: str, work: Callable[[], R]) -> R | None:
        """What `work` with wandb returns. Whatever it raises, the run goes on without wandb."""
        try:
            return work()
        except Exception as error:  # noqa: BLE001
            _LOG.warning("wandb: %s failed (%s: %s); the run goes on without it.", what, type(error).__name__, error)
            self._run = None
            _end_service()
            return None


def _start_wandb(folder: RunFolder, mode: str, config: dict[str, JSON]) -> wandb_package.Run:
    if mode == "auto":
        mode = "online" if _has_key() else "offline"
    if mode == "offline":
        # Offline means that nothing leaves the machine, reports of wandb's own errors included.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    if not folder.wandb_id.exists():
        replace_file(folder.wandb_id, secrets.token_hex(4).encode("ascii"))
    return wandb.init(
        project=PROJECT,
        name=folder.path.resolve().name,
        dir=str(folder.path),
        id=folder.wandb_id.read_text("ascii").strip(),
        resume="allow",
        mode="online" if mode == "online" else "offline",
        config=config,
        reinit="create_new",  # a run that the user has open in this process is not ours to end
        settings=wandb.Settings(
            silent=True,
            console="off",
            init_timeout=_INIT_TIMEOUT_S,
            finish_timeout=_FINISH_TIMEOUT_S,
            # Arguments, environment and git's remotes can hold secrets. Where wandb is open to others, so are they.
            x_disable_meta=True,
            disable_git=True,
            disable_code=True,
        ),
    )


def _has_key() -> bool:
    """Whether wandb would find a key without asking: in the environment, or in the netrc file for its host."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    import wandb

    host = urlsplit(os.environ.get("WANDB_BASE_URL") or wandb.Settings().base_url).hostname
    try:
        hosts = netrc.netrc(Path(os.environ.get("NETRC") or "~/.netrc").expanduser()).hosts
    except (OSError, netrc.NetrcParseError):
        return False
    return host in hosts


def _end_service() -> None:
    """Ends wandb's service process, which would live as long as this one."""
    try:
        import wandb

        if wandb.run is None:
            wandb.teardown()
    except Exception as error:  # noqa: BLE001 - nothing is left to be lost
        _LOG.debug("wandb: its service did not end: %s", error)
