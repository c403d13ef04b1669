"""Models that come with the package as a LoRA adapter of another one."""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from policies.models.cache import made_once
from policies.models.choice import NamedModel
from policies.models.smollm2 import NAME, SMOLLM2

_CARD = "README.md"


@dataclass(frozen=True, slots=True)
class AdaptedModel:
    """A base model with an adapter of this package merged into it, made on first use."""

    name: str
    base: NamedModel
    adapter: Path

    def folder(self) -> Path:
        """The merged model's folder. Raises `UserError` if the base is not available."""
        base = self.base.folder()
        return made_once(f"{self.name}-{_digest(base.name, self.adapter)}", lambda out: self._make(base, out))

    def _make(self, base: Path, out: Path) -> None:
        import torch

        from policies.engine.adapters import read_adapter
        from policies.models.folder import read_json
        from policies.models.merging import merged
        from policies.models.writing import write_model

        weights = {name: tensor.to(torch.bfloat16) for name, tensor in merged(base, read_adapter(self.adapter)).items()}
        write_model(base, read_json(base / "config.json"), weights, out, dtype="bfloat16")
        (out / _CARD).write_text((self.adapter / _CARD).read_text("utf-8"), encoding="utf-8")


@cache
def _digest(base: str, adapter: Path) -> str:
    """A fingerprint of base and adapter; cached, since it reads the whole adapter."""
    digest = hashlib.sha256(base.encode())
    for path in sorted(adapter.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


_HERE = Path(__file__).parent
SMOLLM2_WARM = AdaptedModel(f"{NAME}-warm", SMOLLM2, _HERE / "smollm2_warm")
SMOLLM2_RARE = AdaptedModel(f"{NAME}-rare", SMOLLM2_WARM, _HERE / "smollm2_rare")
