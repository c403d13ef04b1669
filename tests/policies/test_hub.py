"""Models of the hub by name: fetched once, whole and pinned, and refused in one sentence."""

import shutil
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from unittest.mock import Mock

import pytest
from huggingface_hub import errors

from envs.errors import UserError
from policies.models import open_model
from tests.policies.chat_models import random_chat_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Stands in for the hub's client: one model, its cache, and an error for all that is not in the cache, if set."""

    def __init__(self, model: Path, cache: Path) -> None:
        self.model, self.cached = model, cache / COMMIT
        self.asked: list[tuple[str, str | None]] = []
        """Repository and revision of each download."""
        self.error: Exception | None = None

    def download(
        self, repository: str, *, revision: str | None, allow_patterns: Sequence[str], local_files_only: bool = False
    ) -> str:
        if local_files_only:
            if not self.cached.is_dir():
                raise errors.LocalEntryNotFoundError("nothing")
            return str(self.cached)
        self.asked.append((repository, revision))
        if self.error is not None:
            raise self.error
        self.cached.mkdir(exist_ok=True)
        for file in self.model.iterdir():
            if any(fnmatch(file.name, pattern) for pattern in allow_patterns):
                shutil.copy(file, self.cached)
        return str(self.cached)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    folder = random_chat_model(tmp_path / "model", "qwen")
    (folder / "pytorch_model.bin").write_bytes(b"what nobody should fetch")
    hub = Hub(folder, tmp_path)
    monkeypatch.setattr("huggingface_hub.snapshot_download", hub.download)
    return hub


def test_a_model_is_fetched_once_and_then_needs_no_network(hub: Hub) -> None:
    model = open_model("owner/model@v1")
    assert (model.path, model.name, model.dialect.name) == (hub.cached, "model", "qwen")
    assert not (hub.cached / "pytorch_model.bin").exists()
    hub.error = errors.OfflineModeIsEnabled("offline")
    assert open_model("owner/model@v1").path == hub.cached, "what is there is taken as it is, by every actor of a run"
    assert hub.asked == [("owner/model", "v1")]


@pytest.mark.parametrize(
    ("lost", "revision"), [("model.safetensors", None), ("tokenizer.json", COMMIT), ("chat_template.jinja", COMMIT)]
)
def test_what_is_there_in_part_is_fetched_whole(hub: Hub, lost: str, revision: str | None) -> None:
    open_model("owner/model")
    (hub.cached / lost).unlink()
    assert open_model("owner/model").path == hub.cached
    assert (hub.cached / lost).is_file()
    assert hub.asked[1:] == [("owner/model", revision)], "of the same commit, if its weights are there"


NOT_FOUND = Mock(headers={})


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errors.RepositoryNotFoundError("no", response=NOT_FOUND), "there is no such model, or it is private"),
        (errors.GatedRepoError("no", response=NOT_FOUND), "its licence must be accepted with an account first"),
        (errors.RevisionNotFoundError("no", response=NOT_FOUND), "it has no such revision"),
        (errors.OfflineModeIsEnabled("no"), "HF_HUB_OFFLINE is set, and it is not in the cache"),
        (errors.LocalEntryNotFoundError("no"), "it is not in the cache, and the hub cannot be reached"),
    ],
)
def test_what_the_hub_refuses_names_the_remedy(hub: Hub, error: Exception, reason: str) -> None:
    hub.error = error
    with pytest.raises(UserError) as refused:
        open_model("owner/model@v1")
    said = str(refused.value)
    assert said.startswith(f"model: owner/model@v1 is no folder here, and the hub did not give it ({reason});")
    assert "`hf download owner/model --revision v1`" in said
