"""The tiny base: a small Qwen2 that has seen demonstrations on generated tasks, shipped here, and its variants.

It is a stand-in to see the whole loop learn on a laptop, not a language model. What it does right and wrong is chosen
(`behaviours.py`), shown to it in demonstrations (`demonstrations.py`), and measured after training (`measure.py`).
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

FOLDER = Path(__file__).parent / "model"
"""The shipped model: a Hugging Face folder."""
NAME = "tiny"
"""What the shipped model is called where a model is asked for."""
RARE = "tiny-rare"
"""The variant that plain sampling hardly ever sees abstain or recover (`training.RARE_RECIPE`)."""
TASK_WRITER = "tiny-writer"
"""The one that writes task specifications, and plays no dialogues (`training.WRITER_RECIPE`)."""
SHIPPED: Mapping[str, Path] = MappingProxyType(
    {NAME: FOLDER, RARE: Path(__file__).parent / "model_rare", TASK_WRITER: Path(__file__).parent / "model_writer"}
)
"""Name → folder of every shipped model."""
