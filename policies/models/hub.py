"""Models of the Hugging Face hub by name: OWNER/NAME, or OWNER/NAME@REVISION with a branch, a tag or a commit.

The hub's client does the work, with its cache, `HF_HUB_OFFLINE`, `HF_ENDPOINT` and `HF_TOKEN`. A complete model in the
cache is used without a request to the hub: every actor of a run opens its model, and all must get the same one.
"""

import re
from contextlib import suppress
from pathlib import Path

from envs.errors import UserError
from policies.models.folder import check_weights, has_tokenizer, template_of

_NAME = re.compile(r"([\w.-]{1,96}/[\w.-]{1,96})(?:@([\w./-]{1,200}))?")
_FILES = ["*.json", "*.jinja", "*.safetensors", "tokenizer.model", "vocab.json", "merges.txt"]
"""The files of a model folder: no weights in other formats, and no code."""
_CONFIG = ["config.json"]
_NUMBERS = Path(__file__).parent / "numbers"
"""Folders OWNER/NAME with the config.json of models in presets: sizes for plans without weights."""


def is_name(name: str) -> bool:
    """Whether a hub could have a model of this name."""
    if _NAME.fullmatch(name) is None:
        return False
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # documented there

    try:
        validate_repo_id(repository_of(name))
    except HFValidationError:
        return False
    return True


def repository_of(name: str) -> str:
    """The model's OWNER/NAME."""
    return name.partition("@")[0]


def folder_of(name: str) -> Path:
    """The folder of the model in the hub's cache, downloaded if needed. Raises `UserError` with the remedy."""
    cached = _cached(name, _FILES)
    if cached is None or not _has_weights(cached):
        return _fetched(name, _FILES)
    if not (has_tokenizer(cached) and template_of(cached)):
        with suppress(UserError):  # the model may have no template; its caller reports that
            return _fetched(f"{repository_of(name)}@{cached.name}", _FILES)  # of the same commit, in all processes
    return cached


def _has_weights(cached: Path) -> bool:
    """False if only the config was downloaded for a plan, or a download was interrupted."""
    try:
        check_weights(cached)
    except UserError:
        return False
    return True


def config_of(name: str) -> Path:
    """A folder with at least the model's config.json, from the package or the hub. Raises `UserError` without one."""
    numbers = _NUMBERS / name
    return numbers if numbers.is_dir() else _cached(name, _CONFIG) or _fetched(name, _CONFIG)


def _cached(name: str, files: list[str]) -> Path | None:
    """The model's folder in the cache, perhaps incomplete."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return _snapshot(name, files, local_files_only=True)
    except LocalEntryNotFoundError:
        return None


def _fetched(name: str, files: list[str]) -> Path:
    try:
        return _snapshot(name, files)
    except Exception as error:
        download = name.replace("@", " --revision ", 1)
        raise UserError(
            f"model: {name} is no folder here, and the hub did not give it ({_reason(error)}); fetch it where there is "
            f"a network with `hf download {download}` (a gated one after `hf auth login`), into a cache that "
            "HF_HOME names here, or give a folder."
        ) from error


def _snapshot(name: str, files: list[str], *, local_files_only: bool = False) -> Path:
    from huggingface_hub import snapshot_download

    repository, _, revision = name.partition("@")
    return Path(
        snapshot_download(
            repository, revision=revision or None, allow_patterns=files, local_files_only=local_files_only
        )
    )


def _reason(error: Exception) -> str:
    from huggingface_hub import errors

    known = {
        errors.GatedRepoError: "its licence must be accepted with an account first",
        errors.RepositoryNotFoundError: "there is no such model, or it is private",
        errors.RevisionNotFoundError: "it has no such revision",
        errors.OfflineModeIsEnabled: "HF_HUB_OFFLINE is set, and it is not in the cache",
        errors.LocalEntryNotFoundError: "it is not in the cache, and the hub cannot be reached",
    }
    first, *_ = f"{type(error).__name__}: {error}".splitlines()
    return next((text for kind, text in known.items() if isinstance(error, kind)), first[:200])
