"""Hostile files: a chunk of them from a seed, and the checks of each."""

from __future__ import annotations

import io
import json
import os
import random
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml  # type: ignore[import-untyped]
from safetensors.torch import save_file

from envs.bfcl.splits import load_split
from envs.errors import UserError
from envs.interface.json_form import load_interface
from envs.task import JSON
from envs.trusting import restricted
from policies.engine.adapters import read_adapter
from policies.models.folder import check_folder
from seal_ray.cli.console import harmless
from seal_ray.config.presets import read_sections, read_settings
from seal_ray.report.arms import histories, history_as_rows
from seal_ray.report.files import RunFolder
from seal_ray.report.pool import pool_table, read_pool
from seal_ray.run.export import model_card
from seal_ray.run.signature import Signature
from seal_ray.run.storage import pull
from seal_ray.state import read_state, write_state
from seal_ray.training.shards import ShardReader
from tests.fuzz.pieces import Tally
from tests.tuning.comparison.folders import constant, drawn, make_comparison, play
from tuning.comparison.collect import collect, trial_folder
from tuning.comparison.merge import merge
from tuning.comparison.report import report_as_markdown, timeline_as_markdown
from tuning.sweep.importance import importances
from tuning.sweep.parameter import SweptParameter
from tuning.sweep.results import SweepManifest, evaluated_trials, score, table_of
from tuning.sweep.results import collect as collect_sweep

CHUNK = 250
"""Files in a chunk."""
MODULE = "fuzz_evil"
"""A module that files name, and that nothing may import."""
_NAME = f"{MODULE}:Reward"

_SCALARS: tuple[JSON, ...] = (
    *(None, True, 0, -1, 7.0, 1e308, 10**30, "", "a", "9" * 5000, "\x1b]52;c;Zm9v\x07", "\u202e", "\ud83d", "\x00"),
    *(_NAME, "../../outside", "/etc/passwd", "x" * 5000, [], {}, [[]], {"a": {"b": [1]}}, {"": None}, [[[[[[1]]]]]]),
    *("2020-13-45", "1e999", "~", "*a", "&a", "!!python/name:os.system", "{{ x }}", "vanilla", "plain", "<a>"),
)
_BOMBS = (
    b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n",
    b"[" * 60_000,
    b'{"a":' * 60_000,
    b"- " * 30_000,
    b'{"round": ' + b"9" * 100_000 + b"}",
    b'{"round": 1, "x": NaN}\n' * 1_000,
    b"? " * 30_000,
    b'"' + b"\\" * 60_000,
    b"[" + b"1," * 500_000 + b"1]",
    b"\xff\xfe\x00",
    b"",
)


@dataclass
class Read(Tally):
    """The outcomes and costs of files."""

    files: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)


@cache
def whole_files() -> Mapping[str, bytes]:
    """A folder with everything that commands read from other people, all of it right: path → content."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        out = root / "piece"
        make_comparison(out, seeds=1)
        exam: JSON = {"groups": {"s": {"g": [1, 2]}}, "settings": {"model": {"model": "round_000008"}}, "notes": []}
        for place, arm in enumerate(("vanilla", "rules")):
            play(out, arm, 0, constant(0.5), solved=drawn({"base": 0.5}, place, tasks=6))
            _write_json(trial_folder(out, arm, 0) / "exams" / "exam.json", exam)
        known = {"id": "a", "schema_cues": [], "recovery": "none", "guidelines": ["Wait."], "groups": 2, "rollouts": 8}
        known |= {"success": 0.5, "gain": 0.1, "error": 0.1, "incumbent": True, "promoted": False}
        run = RunFolder(root / "run")
        run.write_config({"seed": 0, "environment": {"reward": _NAME, "source": _NAME}, "training": {"rounds": 3}})
        run.metrics.append({"round": 1, "evaluation/success": 0.5, "evaluation/dialogues": 4})
        run.arms.append({"round": 1, "rounds": 1, "arms": [known]})
        task = {"task": "t", "category": "base", "depth": 1, "written": 0, "played": 1, "rollouts": 4, "p": 0.5}
        task |= {"low": 0.2, "high": 0.8, "left_out": False, "writer": "w", "profile": "p", "specification": "{}"}
        run.pool.append({"round": 1, "tasks": [task]})
        _write_json(run.path / "signature.json", {"imports": {_NAME: "00"}, "files": {"tune/tuner.pkl": ["00"]}})
        sections = f"sections: {{training: {{loss: '{_NAME}'}}}}"
        (root / "preset.yaml").write_text(f"kind: method\nabout: x\nlike: seal\n{sections}\n")
        _write_json(root / "split.json", {"train": ["multi_turn_base_0"], "test": ["multi_turn_base_1"]})
        _write_json(root / "interface.json", {"schema_cues": [{"kind": "required"}], "guidelines": ["Wait."]})
        model, adapter = root / "model", root / "adapter"
        _write_json(model / "config.json", {"model_type": "qwen2", "max_position_embeddings": 512, "vocab_size": 8})
        _write_json(model / "model.safetensors.index.json", {"weight_map": {"a": "model-1.safetensors"}})
        (model / "chat_template.jinja").write_text("{{ messages }}<tool_call>")
        (model / "tokenizer.json").write_text("{}")
        _write_json(adapter / "adapter_config.json", {"r": 8, "lora_alpha": 8, "peft_type": "LORA"})
        for path in (adapter / "adapter_model.safetensors", model / "model-1.safetensors"):
            save_file({"a": torch.zeros(2)}, path)
        sweep = root / "sweep"
        for number in range(4):
            trial = RunFolder(sweep / "trials" / str(number))
            trial.write_config({"seed": 0, "training": {"lr": 10.0 ** (-2 - number), "loss": "grpo"}})
            trial.metrics.append({"round": 2, "evaluation/success": number / 4})
        rate = SweptParameter("training.lr", low=1e-5, high=1e-2, log=True)
        loss = SweptParameter("training.loss", choices=("grpo", "cispo"))
        of_sweep = SweepManifest(
            parameters=(rate, loss), scheduler="none", search="random", trials=4, rounds=2, folder="/sweep"
        )
        of_sweep.write(sweep)
        write_state(root / "state", {"round": 1, "names": ("a", "b"), "numbers": {1: 2.5}})
        tensor = {"dtype": "float32", "size": [4], "chunks": [[[0], [4]]]}
        part = ["a", [0], 0, "__0_0.distcp", 0, 16]
        _write_json(root / "shards" / "shards.json", {"tensors": {"a": tensor}, "parts": [part]})
        mirror = root / "mirrored"
        _write_json(mirror / "mirror.json", ["config.yaml"])
        (mirror / "config.yaml").write_text("seed: 0\n")
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def _write_json(path: Path, value: JSON) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value), "utf-8")


def readers(root: Path) -> dict[str, Callable[[], object]]:
    """Beginning of a path → what commands do with the file, all of it without leave to import anything."""
    return {
        "piece.tar.xz": lambda: _report(root, root / "piece.tar.xz"),
        "piece": lambda: _report(root, root / "piece"),
        "sweep": lambda: _sweep(root),
        "run/config": lambda: _card(root),
        "run/metrics": lambda: _card(root),
        "run/arms": lambda: history_as_rows(histories(root / "run")),
        "run/pool": lambda: pool_table(read_pool(root / "run")[-1].tasks),
        "run/signature": lambda: Signature(root / "run").holds_import(_NAME),
        "preset": lambda: read_sections([str(root / "preset.yaml")]),
        "split": lambda: load_split(root / "split.json"),
        "interface": lambda: load_interface(root / "interface.json"),
        "model": lambda: check_folder(root / "model"),
        "adapter": lambda: read_adapter(root / "adapter"),
        "state": lambda: read_state(root / "state"),
        "shards": lambda: ShardReader(root / "shards").read_metadata(),
        "mirrored": lambda: pull(str(root / "mirrored"), root / "runs"),
    }


def _report(root: Path, piece: Path) -> str:
    """The report of a merged comparison without pictures, which take ten times as long."""
    merge([piece], root / "out")
    comparison = collect(root / "out")
    return report_as_markdown(comparison) + timeline_as_markdown(comparison)


def _sweep(root: Path) -> object:
    """The results of a sweep without pictures."""
    sweep = collect_sweep(root / "sweep")
    points = [[each.value_in(trial.config) for each in sweep.manifest.parameters] for trial in evaluated_trials(sweep)]
    scores = [score(trial) or 0.0 for trial in evaluated_trials(sweep)]
    found = importances(sweep.manifest.parameters, points, scores, draws=2)
    return list(table_of(sweep)), found


def _card(root: Path) -> str:
    rows = RunFolder(root / "run").metrics.rows()
    return model_card(read_settings(root / "run" / "config.yaml"), rows, name="x", rounds=1, adapter=False)


def read_chunk(seed: int, number: int) -> Read:
    """Reads the files of one chunk. Raises `AssertionError` for a broken promise, and whatever else escapes."""
    rng = random.Random(f"{seed} {number}")
    found = Read()
    for place in range(CHUNK):
        with tempfile.TemporaryDirectory() as scratch:
            name = _read_one(rng, Path(scratch), found)
            assert os.listdir(scratch) == ["inside"], f"file {place}, {name}: something was written elsewhere"
            assert MODULE not in sys.modules, f"file {place}, {name}: code of a file was imported"
    return found


def _read_one(rng: random.Random, scratch: Path, found: Read) -> str:
    root = scratch / "inside"
    name = plant(rng, root)
    read = next(read for begin, read in readers(root).items() if name.startswith(begin))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    try:
        with restricted([]):
            read()
        outcome = "read"
    except Exception as error:
        if not isinstance(error, UserError) or "\n" in harmless(str(error)):
            raise AssertionError(f"{name}: {error!r:.300}") from error
        outcome = "refused"
    found.time(time.process_time() - started, name)
    found.grown = max(found.grown, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024)
    found.files += 1
    found.outcomes[outcome] += 1
    return name


def plant(rng: random.Random, root: Path) -> str:
    """Writes all files to a folder, one of them changed; returns its name."""
    files = dict(whole_files())
    name = rng.choice([*files, *["piece.tar.xz"] * (len(files) // 3)])
    if name == "piece.tar.xz":
        inside = {each: content for each, content in files.items() if each.startswith("piece/")}
        if rng.random() < 0.5:
            changed = rng.choice(list(inside))
            inside[changed] = mutated(rng, changed, inside[changed])
        files[name] = _packed(rng, inside)
    else:
        files[name] = mutated(rng, name, files[name])
    for each, content in files.items():
        path = root / each
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    if rng.random() < 0.05:
        (root / name).unlink()
        (root / name).symlink_to(rng.choice(["/etc/passwd", "../../outside", ".", name.rpartition("/")[2]]))
    return name


def _packed(rng: random.Random, files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    form = rng.choice([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
    with tarfile.open(fileobj=packed, mode="w:xz", preset=0, format=form) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            if rng.random() < 0.05:
                info.name = rng.choice(["../outside", "/tmp/outside", f"piece/../../{name}", "x" * 3000, "\ud83d"])
            if rng.random() < 0.05:
                kinds = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE, b"z"]
                info.type = rng.choice(kinds)
                info.linkname = "../../outside"
            with suppress(UnicodeError, ValueError):
                archive.addfile(info, io.BytesIO(content))
    return _changed_bytes(rng, packed.getvalue()) if rng.random() < 0.5 else packed.getvalue()


def mutated(rng: random.Random, name: str, content: bytes) -> bytes:
    """The content with another value, other bytes, or something else altogether."""
    kind = rng.random()
    if kind < 0.1:
        return rng.choice(_BOMBS)
    if kind < 0.4:
        return _changed_bytes(rng, content)
    with suppress(Exception):
        if name.endswith(".yaml"):
            document = _with_other_value(rng, yaml.safe_load(content))
            return str(yaml.safe_dump(document, allow_unicode=True)).encode("utf-8", "surrogatepass")
        lines = content.decode().splitlines()
        at = rng.randrange(len(lines))
        lines[at] = json.dumps(_with_other_value(rng, json.loads(lines[at])))
        return "\n".join([*lines, ""]).encode()
    return _changed_bytes(rng, content)


def _with_other_value(rng: random.Random, value: Any) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        kept = {name: each for name, each in value.items() if name != key}
        choice = rng.random()
        if choice < 0.1:
            return kept
        if choice < 0.2:
            return {**kept, str(rng.choice(_SCALARS))[:300]: value[key]}
        return {**value, key: _with_other_value(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], _with_other_value(rng, value[at]), *value[at + 1 :]]
    return rng.choice(_SCALARS)


def _changed_bytes(rng: random.Random, content: bytes) -> bytes:
    found = bytearray(content)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(4):
            case 0:
                found[at : at + 1] = rng.randbytes(1)
            case 1:
                found[at:at] = rng.choice([b"{", b"[", b'"', b"\x1b", b"\n", b"&a ", b"*a", b": ", rng.randbytes(4)])
            case 2:
                del found[at : at + rng.randint(1, 64)]
            case _:
                found[at:at] = found[at : at + 200]
    return bytes(found)


def run_command(seed: int, number: int) -> Read:
    """The same for one file and the command that reads it, in a process of its own."""
    rng = random.Random(f"command {seed} {number}")
    found = Read()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "inside")
        name = plant(rng, root)
        (Path(scratch) / f"{MODULE}.py").write_text("raise SystemExit('imported')\n")
        words = next(words for begin, words in _commands(root).items() if name.startswith(begin))
        code = "import sys; from seal_ray.cli import main; sys.argv = ['seal-ray', *sys.argv[1:]]; main()"
        command = [sys.executable, "-c", code, *words]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True, check=False)
        said = f"{name}: {' '.join(words)}: {done.returncode}: {done.stderr[-600:]}"
        assert done.returncode in (0, 2), said
        assert "imported" not in done.stderr, said
        assert done.returncode == 0 or (done.stderr.count("\n") == 1 and done.stderr.startswith("error: ")), said
        assert set(os.listdir(scratch)) == {"inside", f"{MODULE}.py"}, said
        found.files, found.outcomes["read" if done.returncode == 0 else "refused"] = 1, 1
    return found


def _commands(root: Path) -> dict[str, list[str]]:
    run = str(root / "run")
    return {
        "piece.tar.xz": ["compare", "--merge", str(root / "piece.tar.xz"), "--name", "out", "--runs", str(root)],
        "piece": ["compare", "--report", str(root / "piece")],
        "sweep": ["sweep", "--report", str(root / "sweep")],
        "run/arms": ["curator", run],
        "run/pool": ["pool", run],
        "run": ["export", run, "--out", str(root / "out")],
        "preset": ["train", "--dry-run", "--preset", str(root / "preset.yaml")],
        "interface": ["play", "multi_turn_base_0", "--oracle", "--interface", str(root / "interface.json")],
        "mirrored": ["train", "--resume", str(root / "mirrored"), "--runs", str(root / "runs"), "--dry-run"],
        "": ["train", "--dry-run", f"solver.model={root / 'model'}"],
    }
