"""The tiny base: a small shipped Qwen2 that was trained on demonstrations of generated tasks, and its variants.

It is a stand-in for a language model, so that the whole loop can learn on a laptop. Its rights and wrongs are chosen
(`behaviours.py`), shown in demonstrations (`demonstrations.py`), and measured after training (`measure.py`).
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

FOLDER = Path(__file__).parent / "model"
"""The shipped model: a Hugging Face folder."""
NAME = "tiny"
"""The shipped model's name in settings."""
RARE = "tiny-rare"
"""The variant that hardly ever abstains or recovers without a cue (`training.RARE_RECIPE`)."""
TASK_WRITER = "tiny-writer"
"""The variant that writes task specifications, and plays no dialogues (`training.WRITER_RECIPE`)."""
HIDDEN = "tiny-hidden"
"""The variant for tools with hidden conventions (`training.HIDDEN_RECIPE`)."""
SHIPPED: Mapping[str, Path] = MappingProxyType(
    {
        NAME: FOLDER,
        RARE: Path(__file__).parent / "model_rare",
        TASK_WRITER: Path(__file__).parent / "model_writer",
        HIDDEN: Path(__file__).parent / "model_hidden",
    }
)
"""Name → folder of every shipped model."""
