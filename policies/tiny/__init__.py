"""The tiny base: a small Qwen2 that has seen demonstrations on generated tasks, shipped with the package.

It is a stand-in to see the whole loop learn on a laptop, not a language model. What it does right and wrong is chosen
(`behaviours.py`), shown to it in demonstrations (`demonstrations.py`), and measured after training (`measure.py`).
"""

from pathlib import Path

FOLDER = Path(__file__).parent / "model"
"""The shipped model: a Hugging Face folder."""
NAME = "tiny"
"""What the shipped model is called where a model is asked for."""
