"""Logs in Inspect's format: `.eval` files, ZIP archives with a JSON file for each sample, so that readers are lazy."""

import hashlib
import json
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, RootModel

from envs.errors import UserError
from envs.received import MAX_BYTES, MIB, opened, parse_json, validated
from envs.task import JSON
from envs.text import map_texts, valid_text
from seal_ray.report.files import as_json, note_on_runs

SUFFIX = ".eval"
SUCCESS = "success"
"""The score of a dialogue's verdict, whose mean is the accuracy of a log of dialogues."""
PLAIN = "plain"
"""The arm of dialogues without hints."""
_INPUT = 1000
"""Characters of a sample's input in the list of samples."""
_SAMPLES, _TOKENS, _SUMMARIES = "samples", "tokens", "summaries.json"
_MAX_SUMMARIES_BYTES = 128 * MIB
_CHUNK, _ZSTANDARD = 4096, 93
"""Bytes that are unpacked at a time, and the compression of the logs that Inspect writes itself."""
_BROKEN = (OSError, ValueError, EOFError, LookupError, RuntimeError, zipfile.BadZipFile, zlib.error)
Sample = Mapping[str, JSON]
Logged = tuple[Sample, JSON]
"""A sample, and values that Inspect does not read, or None."""


def write_log(
    path: Path,
    samples: Iterable[Logged],
    *,
    task: str,
    model: str,
    scorer: str,
    created: datetime | None = None,
    metadata: Mapping[str, JSON] | None = None,
) -> None:
    """Writes a log, one sample at a time, atomically.

    Args:
        samples: The values that Inspect does not read are stored next to a sample, in `tokens/`.
        scorer: The score whose share of "C" (right) among these and "I" (wrong) is the log's accuracy.
        created: The time in the log; by default now.
    """
    summaries: list[str] = []
    epochs, values, usage = Counter[str](), Counter[str](), Counter[str]()
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with new.open("xb") as file, zipfile.ZipFile(file, "w") as archive:
        for sample, tokens in samples:
            epochs[sample["id"]] += 1
            whole = map_texts({**sample, "epoch": epochs[sample["id"]]}, valid_text)
            member = _member(whole["id"], whole["epoch"])
            _write(archive, f"{_SAMPLES}/{member}", _dumped(whole))
            if tokens is not None:
                _write(archive, f"{_TOKENS}/{member}", _dumped(tokens))
            summaries.append(_dumped(_summary(whole)))
            values[whole["scores"][scorer]["value"]] += 1
            usage.update(whole["model_usage"][model])
        _write(archive, _SUMMARIES, f"[{','.join(summaries)}]")
        right, counted = values["C"], values["C"] + values["I"]
        score = {
            "name": scorer,
            "scorer": scorer,
            "scored_samples": counted,
            "unscored_samples": len(summaries) - counted,
            "metrics": {"accuracy": {"name": "accuracy", "value": right / max(1, counted)}},
        }
        results = {"total_samples": len(summaries), "completed_samples": len(summaries), "scores": [score]}
        # Inspect takes logs of one id for attempts at one evaluation.
        name = hashlib.sha256(f"{path.resolve()} {task}".encode("utf-8", "replace")).hexdigest()[:22]
        header = _header(name, task, model, created or datetime.now(UTC), list(epochs), dict(metadata or {}))
        time = header["eval"]["created"]
        stats = {"started_at": time, "completed_at": time, "model_usage": {model: dict(usage)}}
        _write(archive, "header.json", _dumped(map_texts({**header, "results": results, "stats": stats}, valid_text)))
    os.replace(new, path)


def _header(name: str, task: str, model: str, created: datetime, ids: list[str], metadata: dict[str, JSON]) -> Sample:
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": name,
            "run_id": name,
            "created": created.isoformat(timespec="seconds"),
            "task": task,
            "task_id": name,
            "dataset": {"name": task, "samples": len(ids), "sample_ids": ids},
            "model": model,
            "config": {},
            "packages": {"seal_ray": version("seal-ray")},
            "metadata": metadata,
        },
    }


def _member(sample_id: str, epoch: int) -> str:
    return f"{sample_id}_epoch_{epoch}.json"


def model_usage(model: str, *, read: int, sampled: int) -> dict[str, dict[str, int]]:
    """The tokens of a sample, as Inspect counts them."""
    return {model: {"input_tokens": read, "output_tokens": sampled, "total_tokens": read + sampled}}


def _summary(sample: Sample) -> Sample:
    asked = sample["input"]
    text = asked if isinstance(asked, str) else "\n".join(message["content"] for message in asked)
    return {
        **{name: sample[name] for name in ("id", "epoch", "target", "model_usage")},
        "metadata": {name: value for name, value in sample["metadata"].items() if not isinstance(value, dict)},
        "input": text[:_INPUT],
        "scores": {name: {"value": score["value"]} for name, score in sample["scores"].items()},
        "completed": True,
        "message_count": len(sample["messages"]),
    }


def _dumped(value: JSON) -> str:
    return json.dumps(as_json(value), ensure_ascii=False, allow_nan=False)


def _write(archive: zipfile.ZipFile, name: str, text: str) -> None:
    # Without a time, so that the same values give the same file.
    archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)


def _block_texts(content: JSON) -> JSON:
    """The text of a message whose content is a list of blocks."""
    if not isinstance(content, list):
        return content
    blocks = [block if isinstance(block, dict) else {} for block in content]
    return "\n".join(str(block.get("text") or block.get("reasoning") or f"[{block.get('type')}]") for block in blocks)


class LoggedSample(BaseModel):
    """A sample as a reader needs it. Inspect's format has more."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    class Message(BaseModel):
        role: str
        content: Annotated[str, BeforeValidator(_block_texts)]
        error: JSON = None
        metadata: dict[str, JSON] | None = None

    class Score(BaseModel):
        value: JSON
        explanation: str | None = None
        metadata: dict[str, JSON] | None = None

    id: str
    epoch: int = 1
    messages: list[Message] = []
    scores: Annotated[dict[str, Score], BeforeValidator(lambda scores: scores or {})] = {}
    metadata: dict[str, JSON] = {}

    @property
    def solved(self) -> bool | None:
        """Whether the verifier passed the dialogue; None without its score."""
        return self.scores[SUCCESS].value == "C" if SUCCESS in self.scores else None

    @property
    def arm(self) -> str:
        """The id of the arm that was played."""
        return str(self.metadata.get("arm", PLAIN))

    @property
    def labels(self) -> set[str]:
        turns = (self.scores[SUCCESS].metadata or {}).get("turns") if SUCCESS in self.scores else None
        labelled = [turn for turn in turns if isinstance(turn, dict)] if isinstance(turns, list) else []
        return {str(turn.get("label", "")) for turn in labelled}


class _Summaries(RootModel[list[LoggedSample]]):
    """The samples of a log, without messages."""


Choose = Callable[[Sequence[LoggedSample]], Iterable[LoggedSample]]


def log_files(folder: Path) -> list[Path]:
    """The logs in a folder and its subfolders. Raises `UserError` if there are none."""
    paths = sorted(path for path in folder.rglob(f"*{SUFFIX}") if path.is_file())
    if not paths:
        raise UserError(f"run: {str(folder)!r:.200} holds no log of dialogues (*{SUFFIX}).{note_on_runs(folder)}")
    return paths


def read_samples(path: Path, choose: Choose | None = None) -> Iterator[LoggedSample]:
    """The samples of a log, one at a time. Raises `UserError` for a file that is no log.

    Args:
        choose: Chooses the samples to read, in order, from samples without messages.
    """
    wrong = f"{path}: it is no log of dialogues"
    try:
        with opened(path) as file, zipfile.ZipFile(file) as archive:
            names = [each.filename for each in archive.infolist() if each.filename.startswith(f"{_SAMPLES}/")]
            if choose is not None:
                summaries = validated(_Summaries, _read(archive, _SUMMARIES, _MAX_SUMMARIES_BYTES), wrong).root
                names = [f"{_SAMPLES}/{_member(each.id, each.epoch)}" for each in choose(summaries)]
            for name in names:
                yield validated(LoggedSample, _read(archive, name, MAX_BYTES), wrong)
    except _BROKEN as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{wrong} ({error}).") from None


def _read(archive: zipfile.ZipFile, name: str, limit: int) -> JSON:
    kind = archive.getinfo(name).compress_type
    if kind == _ZSTANDARD:
        import zipfile_zstd  # type: ignore[import-untyped] # noqa: F401 - with it zipfile can unpack them
    elif kind not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("it is compressed in another way")
    with archive.open(name) as packed:
        content = b"".join(islice(iter(partial(packed.read, _CHUNK), b""), limit // _CHUNK + 1))
    if len(content) > limit:
        raise ValueError(f"{name} is larger than {limit:,} bytes")
    return parse_json(content)
