"""The small models that come with the package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from policies import tiny


@dataclass(frozen=True, slots=True)
class ShippedModel:
    """A folder of this package."""

    path: Path

    def folder(self) -> Path:
        return self.path


TINY = ShippedModel(tiny.SHIPPED[tiny.NAME])
TINY_WRITER = ShippedModel(tiny.SHIPPED[tiny.TASK_WRITER])
TINY_RARE = ShippedModel(tiny.SHIPPED[tiny.RARE])
