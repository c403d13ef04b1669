"""Models of the Hugging Face hub by name: OWNER/NAME, or OWNER/NAME@REVISION with a branch, a tag or a commit.

The hub's own client does it all: its cache, `HF_HUB_OFFLINE`, `HF_ENDPOINT` and `HF_TOKEN`. What is in the cache whole
is taken as it is, and no hub is asked: every actor of a run opens its model, and all must get the same one.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from envs.errors import UserError
from policies.models.folder import check_weights, has_tokenizer, template_of

_NAME = re.compile(r"([\w.-]{1,96}/[\w.-]{1,96})(?:@([\w./-]{1,200}))?")
_FILES = ["*.json", "*.jinja", "*.safetensors", "tokenizer.model", "vocab.json", "merges.txt"]
"""What a model folder needs: no weights in other formats, and no code."""
_CONFIG = ["config.json"]
_NUMBERS = Path(__file__).parent / "numbers"
"""Folders OWNER/NAME with the config.json of models that presets name: sizes alone, for plans without weights."""


def is_name(name: str) -> bool:
    """Whether a hub could have a model of this name."""
    if _NAME.fullmatch(name) is None:
        return False
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # documented there

    try:
        validate_repo_id(_parsed(name)[0])
    except HFValidationError:
        return False
    return True


def short_name(name: str) -> str:
    """The model's name without owner and revision, for tables and folders."""
    return name.partition("@")[0].rpartition("/")[2]


def repository_of(name: str) -> str:
    """The model's OWNER/NAME."""
    return _parsed(name)[0]


def folder_of(name: str) -> Path:
    """The folder of the model in the hub's cache, fetched where it is not there. Raises `UserError` with the remedy."""
    cached = _cached(name, _FILES)
    if cached is None or not _has_weights(cached):
        return _fetched(name, _FILES)
    if not (has_tokenizer(cached) and template_of(cached)):
        with suppress(UserError):  # the model may have no template, and then it is said what it lacks
            return _fetched(f"{repository_of(name)}@{cached.name}", _FILES)  # of the same commit, in all processes
    return cached


def _has_weights(cached: Path) -> bool:
    """A plan has fetched the config alone, or somebody was interrupted."""
    try:
        check_weights(cached)
    except UserError:
        return False
    return True


def config_of(name: str) -> Path:
    """A folder with the model's config.json, and perhaps more: the sizes that come with the package, or the hub's.

    Raises `UserError` where there are none.
    """
    numbers = _NUMBERS / name
    return numbers if numbers.is_dir() else _cached(name, _CONFIG) or _fetched(name, _CONFIG)


def _parsed(name: str) -> tuple[str, str | None]:
    """Repository and revision."""
    match = _NAME.fullmatch(name)
    assert match is not None, "it was asked before"
    repository, revision = match.groups()
    return repository, revision


def _cached(name: str, files: list[str]) -> Path | None:
    """What the cache has of the model, perhaps not all of it."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    repository, revision = _parsed(name)
    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=files, local_files_only=True))
    except LocalEntryNotFoundError:
        return None


def _fetched(name: str, files: list[str]) -> Path:
    from huggingface_hub import snapshot_download

    repository, revision = _parsed(name)
    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=files))
    except Exception as error:
        reason = _reason(error)
        pinned = f" --revision {revision}" if revision else ""
        raise UserError(
            f"model: {name} is no folder here, and the hub did not give it ({reason}); fetch it where there is a "
            f"network with `hf download {repository}{pinned}` (a gated one after `hf auth login`), into a cache that "
            "HF_HOME names here, or give a folder."
        ) from error


def _reason(error: Exception) -> str:
    """What went wrong, in a phrase."""
    from huggingface_hub.errors import (
        GatedRepoError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    known = {
        GatedRepoError: "its licence must be accepted with an account first",
        RepositoryNotFoundError: "there is no such model, or it is private",
        RevisionNotFoundError: "it has no such revision",
        OfflineModeIsEnabled: "HF_HUB_OFFLINE is set, and it is not in the cache",
        LocalEntryNotFoundError: "it is not in the cache, and the hub cannot be reached",
    }
    phrase = next((text for kind, text in known.items() if isinstance(error, kind)), None)
    first, *_ = f"{type(error).__name__}: {error}".splitlines()
    return phrase or first[:200]
