"""`RunFolder`: what lies where in the folder of one run, and how it is kept right across kills."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from envs.errors import UserError
from envs.interface import Interface
from envs.interface.document import interface_to_dict
from envs.task import JSON
from policies.trajectory import interface_id
from seal_ray.report import metrics as namespace
from seal_ray.report.files import JsonLines, replace_yaml

_ROUND_FILE = re.compile(r"round_(\d{6,})\.jsonl")


class RunFolder:
    """The folder of a run; it is created where it does not exist, and nothing in it is changed by opening it.

    Raises `UserError` where it cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        """The resolved configuration."""
        self.metrics = JsonLines(path / "metrics.jsonl")
        """One row a round: `round` and the round's metrics."""
        self.interfaces = JsonLines(path / "interfaces.jsonl")
        """One row a round: `round` and `interfaces`, those shown, each with its `id`."""
        self.profiles = JsonLines(path / "profiles.jsonl")
        """One row a round: `round` and `profile`, the failure profile's JSON form."""
        self.proposals = JsonLines(path / "proposals.jsonl")
        """One row a round: `round` and `proposals` of the window it belongs to, with reward or rejection."""
        self.trajectories = path / "trajectories"
        """The folder of the stored trajectories, one file a round."""
        self.checkpoints = path / "checkpoints"
        self.tensorboard = path / "tensorboard"
        self.wandb_id = path / "wandb_id"
        """The file that holds the id of the run's wandb run."""
        self.curves = path / "curves.png"
        try:
            for folder in (path, self.trajectories, self.checkpoints):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"run folder: {path} cannot be created ({error}).") from None

    def trajectories_of(self, round_number: int) -> JsonLines:
        """The trajectories stored of one round."""
        return JsonLines(self.trajectories / f"round_{round_number:06d}.jsonl")

    def write_config(self, config: Mapping[str, object]) -> None:
        """Writes the resolved configuration. Raises `TypeError` for values without a JSON form."""
        replace_yaml(self.config, config)

    def read_config(self) -> dict[str, JSON]:
        """The configuration. Raises `UserError` where there is none, or it is not YAML of a mapping."""
        try:
            config = yaml.safe_load(self.config.read_bytes())
        except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
            raise UserError(f"run folder: {self.config} cannot be read ({error}).") from None
        if not isinstance(config, dict):
            raise UserError(f"run folder: {self.config} is no mapping.")
        return config

    def append_metrics(self, round_number: int, metrics: Mapping[str, float | int]) -> None:
        """Adds the metrics of a round. Raises as `metrics.check` does."""
        namespace.check(metrics)
        self.metrics.append({"round": round_number, **metrics})

    def append_interfaces(self, round_number: int, interfaces: Sequence[Interface]) -> None:
        """Adds the interfaces shown in a round, in their order."""
        shown = [{"id": interface_id(interface), **interface_to_dict(interface)} for interface in interfaces]
        self.interfaces.append({"round": round_number, "interfaces": shown})

    def truncate_after(self, round_number: int) -> None:
        """Drops all that was stored of later rounds, before a run goes on after `round_number`.

        Checkpoints are not touched. Raises `UserError` where a file holds something else.
        """
        for lines in (self.metrics, self.interfaces, self.proposals, self.profiles):
            if lines.path.exists():
                lines.replace(row for row in lines.rows() if _round_of(row, lines.path) <= round_number)
        for path in self.trajectories.iterdir():
            match = _ROUND_FILE.fullmatch(path.name)
            if match and int(match[1]) > round_number:
                path.unlink()


def _round_of(row: Mapping[str, JSON], path: Path) -> int:
    number = row.get("round")
    if type(number) is not int:
        raise UserError(f"{path}: a row has no whole number as its round.")
    return number
