"""`NamedModel`: a model that a setting can name."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class NamedModel(Protocol):
    """A model that is made ready where it is asked for."""

    def folder(self) -> Path:
        """The Hugging Face model folder on this machine. Raises `UserError` where it cannot be had, with the remedy."""
        ...
