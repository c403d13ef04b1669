"""Trust in resumed trials: code that their settings import, and files that Ray Tune unpickles. No Ray."""

from collections.abc import Iterator
from pathlib import Path

from envs.received import MIB, check_no_links, read_bytes
from envs.trusting import import_names, require_trust
from seal_ray.config.presets import read_settings
from seal_ray.report.files import TRIALS
from seal_ray.run.signature import Signature, trust_signed_names
from tuning.record import TrialsManifest

TUNE = "tune"
"""Tune's own folder: its state, and the checkpoints to resume from."""
_MAX_BYTES = 512 * MIB


def trust_trials(out: Path, kind: type[TrialsManifest]) -> None:
    """Allows the code that the trials in a folder bring: signed by this user, or else with the user's consent.

    Raises:
        UserError: The user does not consent.
    """
    check_no_links(out)
    configs = [path for path in (out / "config.yaml", *sorted((out / TRIALS).glob("*/config.yaml"))) if path.is_file()]
    documents = [kind.read(out).model_dump(mode="json"), *map(read_settings, configs)]
    trust_signed_names(documents, out, run=out)
    signature = Signature(out)
    files = dict(_pickles(out, out / TUNE))
    unsigned = [path for path, content in files.items() if not signature.holds_file(path, content)]
    if unsigned:
        require_trust(f"{len(unsigned)} files with pickles of Ray Tune, for instance {unsigned[0]}", str(out))
    signature.sign(imports=import_names(documents), files={path: files[path] for path in unsigned})


def sign_tune_files(out: Path, folder: Path) -> None:
    """Signs the pickles in `folder`, which Tune is about to move to its own folder in `out`."""
    Signature(out).sign(files=dict(_pickles(folder, folder, prefix=TUNE)))


def _pickles(root: Path, folder: Path, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    """The files in a folder that Tune unpickles, by their paths below `root`; its JSON contains pickles."""
    for path in sorted({*folder.rglob("*.pkl"), *folder.glob("*.json")}):
        yield str(Path(prefix, path.relative_to(root))), read_bytes(path, limit=_MAX_BYTES)
