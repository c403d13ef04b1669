"""`Trackers`: metrics to TensorBoard always, and to wandb if it is on."""

import logging
import math
import netrc
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from envs.errors import check_known
from envs.task import JSON
from envs.text import visible
from policies.trajectory import Trajectory
from seal_ray.metrics import check
from seal_ray.report.files import RunFolder, as_json, replace_file

if TYPE_CHECKING:
    import wandb as wandb_package

WANDB = ("off", "auto", "online", "offline")
"""Modes of wandb; auto is online with a key, and offline without."""

PROJECT = "seal-ray"
_FLUSH_S = 1
"""Seconds between writes of TensorBoard's events; a kill loses no more of them."""
_INIT_TIMEOUT_S = 60.0
_FINISH_TIMEOUT_S = 120.0
"""Longest wait for the upload at the end of a run; `wandb sync` uploads the rest."""

_DIALOGUES = 16
"""Largest number of dialogues in a table."""
_TEXT = 2000
"""Largest number of characters of a text in it."""

R = TypeVar("R")
_LOG = logging.getLogger(__name__)


class Trackers:
    """Writes the metrics of each round to trackers. A failure of wandb is logged once, and turns it off."""

    def __init__(
        self, folder: RunFolder, *, config: Mapping[str, object], wandb: str = "off", rewound: bool = False
    ) -> None:
        """Opens the trackers of a run; TensorBoard's events are written again from the metrics in the folder.

        wandb cannot replace rounds, and lacks the last ones after a kill. A new run there gets all rounds if later ones
        were logged (`rewound`), or the run before was not closed, which leaves its id in the folder.

        Raises `UserError` if `wandb` is not in `WANDB`.
        """
        check_known("wandb", WANDB, wandb)
        from tensorboardX import SummaryWriter  # type: ignore[import-untyped] # here: it imports torch

        self._folder = folder
        shutil.rmtree(folder.tensorboard, ignore_errors=True)
        self._board = SummaryWriter(logdir=str(folder.tensorboard), flush_secs=_FLUSH_S)
        self._run: wandb_package.Run | None = None
        for row in (rows := folder.metrics.rows()):
            self.write(row["round"], {name: value for name, value in row.items() if value is not None})
        if wandb != "off":
            known = folder.wandb_id.read_text("ascii").strip() if folder.wandb_id.exists() and not rewound else None
            folder.wandb_id.unlink(missing_ok=True)
            self._id = known or secrets.token_hex(4)
            self._run = self._call_wandb("start", lambda: _start_wandb(folder, wandb, as_json(config), self._id))
        if (run := self._run) is not None and not known:
            self._call_wandb("log", lambda: [run.log(row, step=row["round"]) for row in rows])

    def write(self, round_number: int, metrics: Mapping[str, float | int]) -> None:
        """Writes the metrics of a round, the finite ones. Raises as `check` does."""
        check(metrics)
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        for name, value in finite.items():
            self._board.add_scalar(name, value, round_number)
        if (run := self._run) is not None:
            self._call_wandb("log", lambda: run.log(finite, step=round_number))

    def write_dialogues(self, round_number: int, trajectories: Iterable[Trajectory]) -> None:
        """Writes a table of dialogues to wandb: the label of the first failed turn, and the last text."""
        if (run := self._run) is not None:
            table = partial(_dialogue_table, islice(trajectories, _DIALOGUES))
            self._call_wandb("table", lambda: run.log({"dialogues": table()}, step=round_number))

    def close(self) -> None:
        """Finishes both; wandb gets the pictures and the report page. It may be called twice."""
        self._board.close()
        if self._run is not None:
            self._call_wandb("artifact", partial(_log_files, self._run, self._folder))
        if self._run is not None:
            self._call_wandb("finish", self._run.finish)
        if self._run is not None:
            replace_file(self._folder.wandb_id, self._id.encode("ascii"))
            self._run = None
            _end_service()

    def _call_wandb(self, what: str, work: Callable[[], R]) -> R | None:
        """The result of `work` with wandb; any error turns wandb off."""
        try:
            return work()
        except Exception as error:  # noqa: BLE001
            _LOG.warning("wandb: %s failed (%s: %s); the run continues without it.", what, type(error).__name__, error)
            self._run = None
            _end_service()
            return None


def _dialogue_table(trajectories: Iterable[Trajectory]) -> "wandb_package.Table":
    import wandb

    table = wandb.Table(columns=["task", "arm", "reward", "label", "last text"])
    for each in trajectories:
        labels = [turn.label for turn in each.diagnosis.turns]
        label = next((label for label in labels if label.is_failure), labels[-1])
        texts = [step.completion[:_TEXT] for turn in each.trace.turns for step in turn] or [""]
        table.add_data(visible(each.task), each.interface, each.reward, str(label), visible(texts[-1]))
    return table


def _log_files(run: "wandb_package.Run", folder: RunFolder) -> None:
    files = [*sorted(folder.path.glob("*.png")), folder.path / "report.html"]
    if files := [path for path in files if path.is_file() and not path.is_symlink()]:
        import wandb

        artifact = wandb.Artifact(f"report-{run.id}", type="report")
        for path in files:
            artifact.add_file(str(path))
        run.log_artifact(artifact)


def _start_wandb(folder: RunFolder, mode: str, config: dict[str, JSON], run_id: str) -> "wandb_package.Run":
    if mode == "auto":
        mode = "online" if _has_key() else "offline"
    if mode == "offline":
        # Offline, not even reports of wandb's own errors leave the machine.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    return wandb.init(
        project=PROJECT,
        name=folder.path.resolve().name,
        dir=str(folder.path),
        id=run_id,
        resume="allow",
        mode="online" if mode == "online" else "offline",
        config=config,
        reinit="create_new",  # do not end a run that the user has open in this process
        settings=wandb.Settings(
            silent=True,
            console="off",
            init_timeout=_INIT_TIMEOUT_S,
            finish_timeout=_FINISH_TIMEOUT_S,
            # Arguments, environment and git remotes can contain secrets.
            x_disable_meta=True,
            disable_git=True,
            disable_code=True,
        ),
    )


def _has_key() -> bool:
    """Whether wandb has a key: in the environment, or in the netrc file for its host."""
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
    """Ends wandb's service process, which would run as long as this one."""
    try:
        import wandb

        if wandb.run is None:
            wandb.teardown()
    except Exception as error:  # noqa: BLE001 - nothing is left to be lost
        _LOG.debug("wandb: its service did not end: %s", error)
