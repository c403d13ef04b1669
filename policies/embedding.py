"""`Embedder`: texts as vectors, by an encoder model in the layout of sentence-transformers."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.errors import UserError
from envs.received import check_no_links
from policies.models import hub, read_json
from policies.models.folder import DATA_ONLY, check_weights

_BATCH = 32


class Embedder:
    """Mean of a text's token vectors in the last layer, scaled to length 1 (Reimers and Gurevych 2019, section 3).

    They equal sentence-transformers' vectors for models with mean pooling, such as all-MiniLM-L6-v2, in float32 on
    the CPU. A text is cut to the tokens that the model can read.
    """

    def __init__(self, name: str) -> None:
        """Reads the sizes of a folder, or of a hub's OWNER/NAME or OWNER/NAME@REVISION, downloaded if needed.

        Raises `UserError` if there is no model, or it does not use mean pooling.
        """
        folder = Path(name)
        if not folder.is_dir():
            if not hub.is_name(name):
                raise UserError(f"embeddings: {name!r:.200} is no folder and no hub's OWNER/NAME.")
            folder = hub.folder_of(name)
        check_weights(folder)
        check_no_links(folder)
        self._folder = folder
        self._config = read_json(folder / "config.json")
        self._sizes = _optional_json(folder / "sentence_bert_config.json")
        steps = {path.name.partition("_")[2]: path for path in folder.glob("[0-9]_*")}
        pooling = _optional_json(steps.pop("Pooling") / "config.json") if "Pooling" in steps else {}
        if set(steps) - {"Normalize"} or not _is_mean(pooling):
            raise UserError(f"embeddings: {folder} does not make a text's vector as the mean of its tokens' vectors.")

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of texts, [texts, size of the model], each of length 1."""
        import torch

        tokenizer, model, longest = self._loaded
        vectors = []
        for first in range(0, len(texts), _BATCH):
            batch = list(texts[first : first + _BATCH])
            if self._sizes.get("do_lower_case"):
                batch = [text.lower() for text in batch]
            tokens = tokenizer(batch, padding=True, truncation=True, max_length=longest, return_tensors="pt")
            with torch.inference_mode():
                last = model(**tokens).last_hidden_state
            mask = tokens["attention_mask"].unsqueeze(-1).to(last.dtype)
            mean = (last * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
            vectors.append(torch.nn.functional.normalize(mean, dim=1).numpy())
        return np.concatenate(vectors)

    @cached_property
    def _loaded(self) -> tuple[Any, Any, int]:
        """Tokenizer, model, and the largest number of tokens of a text."""
        import torch
        from transformers import AutoModel, AutoTokenizer

        tokenizer: Any = AutoTokenizer.from_pretrained(self._folder, trust_remote_code=False)
        model: Any = AutoModel.from_pretrained(self._folder, dtype=torch.float32, local_files_only=True, **DATA_ONLY)
        room = min(tokenizer.model_max_length, self._config.get("max_position_embeddings") or 512)
        return tokenizer, model.eval(), int(self._sizes.get("max_seq_length") or room)


def _optional_json(path: Path) -> dict[str, Any]:
    return dict(read_json(path)) if path.is_file() else {}


def _is_mean(pooling: dict[str, Any]) -> bool:
    """Whether the settings, of any version of sentence-transformers, mean mean pooling, which is the default."""
    if "pooling_mode" in pooling:
        return bool(pooling["pooling_mode"] == "mean")
    chosen = [key for key, value in pooling.items() if key.startswith("pooling_mode_") and value is True]
    return chosen in ([], ["pooling_mode_mean_tokens"])
