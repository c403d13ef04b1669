"""Code that files bring: reading commands never import it; others run it once the user has said so."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.table import Table

from envs.errors import UserError
from envs.task import JSON
from envs.trusting import import_names, restricted, trust_names
from policies.models import open_model
from seal_ray.cli.console import make_console
from seal_ray.grpo.rewards import REWARDS
from seal_ray.report.files import RunFolder
from seal_ray.run.export import model_card
from seal_ray.run.signature import FILE, KEY_VARIABLE, Signature, trust_signed_names
from seal_ray.state import read_state, write_state
from seal_ray.training.shards import ShardReader
from tests.command_line import RunMain
from tests.policies.chat_models import random_chat_model
from tests.tuning.comparison.folders import make_comparison
from tuning.comparison.collect import ComparisonManifest
from tuning.trust import sign_tune_files, trust_trials

ROOT = Path(__file__).parents[2]
PICKLE = b"cos\nsystem\n(S'touch ran'\ntR."
EVIL = """
import pathlib
pathlib.Path(__file__).with_suffix(".ran").write_text("x")
class Reward:
    def __call__(self, trajectory):
        return 0.0
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with modules in it, and a config folder of the user's."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    (folder / "evil.py").write_text(EVIL)
    return folder


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    for name in [name for name in sys.modules if name.split(".")[0] in ("evil", "received")]:
        del sys.modules[name]


@contextmanager
def asked(answer: bool, questions: list[str]) -> Iterator[None]:
    def ask(question: str) -> bool:
        questions.append(question)
        return answer

    with restricted([], ask=ask):
        yield


def received(folder: Path, name: str = "evil:Reward") -> Path:
    """A run of another person, whose settings name code."""
    found = RunFolder(folder)
    found.write_config({"seed": 0, "environment": {"reward": name, "source": name}})
    return found.path


def ran(home: Path) -> bool:
    return any(home.rglob("*.ran"))


@pytest.mark.parametrize("option", ["--config", "--resume", "--preset"])
def test_code_that_a_file_names_does_not_run_without_trust(home: Path, run_main: RunMain, option: str) -> None:
    folder = received(home / "received")
    preset = home / "preset.yaml"
    preset.write_text("kind: method\nabout: x\nsections: {environment: {reward: 'evil:Reward'}}\n")
    word = {"--config": folder / "config.yaml", "--resume": folder, "--preset": preset}[option]
    said = run_main("train", option, str(word), code=2)
    assert "evil:Reward" in said
    assert "--trust" in said
    assert not ran(home)


def test_a_plan_shows_names_as_text(home: Path, run_main: RunMain) -> None:
    folder = received(home / "received")
    said = run_main("train", "--resume", str(folder), "--dry-run")
    assert "neither imported nor checked: evil:Reward" in said
    assert "reward: evil:Reward" in said
    assert not ran(home)


def test_a_model_card_shows_names_as_text(home: Path) -> None:
    with restricted([]):
        card = model_card({"environment": {"source": "evil:Reward"}}, [], name="x", rounds=1, adapter=False)
    assert "tasks of `evil:Reward`" in card
    assert not ran(home)


def test_names_of_the_command_line_and_of_the_user_s_own_folder_are_not_asked_for(
    home: Path, run_main: RunMain
) -> None:
    said = run_main("train", "environment.reward=evil:Reward", "training.rounds=0", code=2)
    assert "evil" not in said  # the other mistake is reported
    own = home.parent / "config" / "seal_ray"
    (own.parent / "dotfiles").mkdir(parents=True)
    own.symlink_to(own.parent / "dotfiles")  # as managers of such files do
    (own / "mine.yaml").write_text("kind: method\nabout: x\nsections: {environment: {reward: 'evil:Reward'}}\n")
    said = run_main("train", "--preset", str(own / "mine.yaml"), "--dry-run")
    assert ran(home)


def test_a_module_in_the_folder_of_a_run_is_never_imported(home: Path, run_main: RunMain) -> None:
    folder = received(home / "received", "received.inside:Reward")
    (folder / "inside.py").write_text(EVIL)
    (folder / "__init__.py").write_text(EVIL)
    for more in ([], ["--trust"]):
        said = run_main("train", "--resume", str(folder), *more, code=2)
        assert "lies in" in said
    (folder / "metrics.jsonl").touch()
    assert "the folder of a run" in run_main("train", "environment.reward=received.inside:Reward", code=2)
    assert not ran(home)


def test_a_question_says_what_would_run_from_where(home: Path) -> None:
    questions: list[str] = []
    names = {"environment": {"reward": "evil:Reward", "guidelines": ["Say note:this to me."]}}
    with asked(False, questions), pytest.raises(UserError, match="is not trusted; nothing was run"):
        trust_names(names, home / "config.yaml")
    with asked(True, questions):
        trust_names(names, home / "config.yaml")
        trust_names(names, home / "config.yaml")
    assert len(questions) == 2
    assert "evil:Reward" in questions[0]
    assert str(home / "config.yaml") in questions[0]
    found = import_names({"a": ["b:0.5", "x.y:Z+w:V", "s3://k:v@h/x", "toolworld:0.5+u:T:0.5", " s:R "]})
    assert found == {"x.y:Z", "w:V", "u:T", "s:R"}


@pytest.mark.parametrize("name", ["evil:Reward ", "evil: Reward", "evil:Reward:0.5", "evil:Reward.__class__", "evil:"])
def test_nothing_is_imported_that_is_no_plain_name(home: Path, name: str) -> None:
    with pytest.raises(UserError, match="is no name of Python code"):
        REWARDS.find(name)
    assert not ran(home)


def test_the_name_of_a_folder_is_no_name_of_code(home: Path, run_main: RunMain) -> None:
    folder = received(home / "evil:Reward")
    for word in ("evil:Reward", "./evil:Reward"):
        assert "--trust" in run_main("train", "--resume", word, code=2)
    assert folder.is_dir()
    assert not ran(home)


def test_files_of_the_working_directory_stand_for_no_module(home: Path) -> None:
    """Commands neither find entry points nor modules there, and nor do their workers."""
    points = home / "evil-1.0.dist-info" / "entry_points.txt"
    points.parent.mkdir()
    points.write_text("[seal_ray.commands]\nevil = evil:Reward\n[torch.backends]\nevil = evil:Reward\n")
    (points.parent / "METADATA").write_text("Name: evil\nVersion: 1.0\n")
    for name in ("transformers", "peft", "tensorboardX"):
        (home / f"{name}.py").write_text(EVIL)
    received(home)

    def python(program: str, *arguments: str) -> str:
        command = [sys.executable, "-P", "-c", program, *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    code = "from seal_ray.cli import main; main()"
    assert "neither imported nor checked: evil:Reward" in python(code, "train", "--config", "config.yaml", "--dry-run")
    program = (
        "import ray, sys\nfrom envs.trusting import restricted\nfrom seal_ray.run.cluster import connected\n"
        "with restricted([]), connected():\n    print(ray.get(ray.remote(lambda: sys.path).remote()))\n"
    )
    assert str(home) not in python(program).replace(f"{home}/", "")
    assert not ran(home)


def test_settings_of_wandb_in_the_working_directory_need_trust(home: Path, run_main: RunMain) -> None:
    (home / "wandb").mkdir()
    (home / "wandb" / "settings").write_text("[default]\nbase_url = http://127.0.0.1:9\n")
    assert "which say where your key is sent" in run_main("train", "--wandb", "online", code=2)


def test_the_user_s_own_run_is_resumed_without_a_question(home: Path) -> None:
    folder = received(home / "mine")
    Signature(folder).sign(imports=["evil:Reward"])
    sections = RunFolder(folder).read_config()
    with restricted([]):
        trust_signed_names(sections, folder, run=folder)
    key = home.parent / "config" / "seal_ray" / "key"
    assert key.stat().st_mode & 0o777 == 0o600
    key.write_text("0" * 64)  # another user's
    with restricted([]), pytest.raises(UserError, match="--trust"):
        trust_signed_names(sections, folder, run=folder)


def test_a_signature_does_not_hold_for_another_module_of_the_same_name(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = received(home / "mine")
    Signature(folder).sign(imports=["evil:Reward"])
    other = home / "sent"
    other.mkdir()
    (home / "evil.py").rename(other / "evil.py")
    monkeypatch.setattr(sys, "path", [*sys.path, str(other)])
    with restricted([]), pytest.raises(UserError, match="--trust"):
        trust_signed_names(RunFolder(folder).read_config(), folder, run=folder)


def test_a_key_can_be_handed_to_a_job(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = home / "secret"
    key.write_text("k" * 40)
    monkeypatch.setenv(KEY_VARIABLE, str(key))
    folder = received(home / "mine")
    Signature(folder).sign(imports=["evil:Reward"])
    assert Signature(folder).holds_import("evil:Reward")
    assert not (home.parent / "config").exists()
    assert "k" * 40 not in (folder / FILE).read_text()
    key.write_text("short")
    with pytest.raises(UserError, match="is no key"):
        Signature(folder)


def test_pickles_of_tune_are_loaded_only_if_they_are_signed(home: Path) -> None:
    out = home / "comparison"
    make_comparison(out)
    state = out / "tune" / "experiment_state-1.json"
    state.parent.mkdir()
    state.write_text("{}")
    with restricted([]), pytest.raises(UserError, match=r"1 files with pickles of Ray Tune, for instance tune/exp"):
        trust_trials(out, ComparisonManifest)
    sign_tune_files(out, out / "tune")
    with restricted([]):
        trust_trials(out, ComparisonManifest)
    for planted in ("tune/error.pkl", "tune/vanilla-seed0/checkpoint_000001/_dict_checkpoint.pkl"):
        path = out / planted
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"cos\nsystem\n")
        with restricted([]), pytest.raises(UserError, match=planted):
            trust_trials(out, ComparisonManifest)
        path.unlink()
    for content in ("{} ", "{}", "{}  ", "{}   ", "{}    "):
        state.write_text(content)
        sign_tune_files(out, out / "tune")
    assert Signature(out).holds_file("tune/experiment_state-1.json", b"{}  ")  # a kill can leave one of the last
    assert not Signature(out).holds_file("tune/experiment_state-1.json", b"{} ")
    state.write_text("changed by somebody else")
    with restricted([]), pytest.raises(UserError, match="--trust"):
        trust_trials(out, ComparisonManifest)


def test_a_link_hides_no_pickle_of_tune(home: Path) -> None:
    out = home / "comparison"
    make_comparison(out)
    (out / "tune" / "t").mkdir(parents=True)
    (out / "tune" / "t" / "checkpoint_000000").symlink_to("../../trials")
    with restricted([]), pytest.raises(UserError, match="is a link"):
        trust_trials(out, ComparisonManifest)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"tensors": {"a": {"dtype": "float32", "size": [-1], "chunks": []}}, "parts": []},
        {"tensors": {"a": {"dtype": "qint8", "size": [1], "chunks": []}}, "parts": []},
        {"tensors": {}, "parts": [["a", [0], 0, "../../secret", 0, 16]]},
        {"tensors": {}, "parts": [["a", [0], 0, "__0_0.distcp", -1, 16]]},
    ],
)
def test_shards_are_described_without_pickles(tmp_path: Path, document: JSON) -> None:
    (tmp_path / ".metadata").write_bytes(PICKLE)
    with pytest.raises(UserError, match="cannot be read"):
        ShardReader(tmp_path).read_metadata()
    (tmp_path / "shards.json").write_text(json.dumps(document))
    with pytest.raises(UserError, match="describes no sharded weights"):
        ShardReader(tmp_path).read_metadata()


def test_a_state_that_is_a_pickle_or_lacks_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "algorithm_state.pkl").write_bytes(PICKLE)
    with pytest.raises(UserError, match="checkpoints of earlier versions, which are pickles, are not read"):
        read_state(tmp_path)
    state: dict[Any, Any] = {"a": (1, [2.5, float("inf")]), 3: {"b": torch.arange(3)}, "c": np.float64(0.5), "$d": None}
    write_state(tmp_path / "good", state)
    found: dict[Any, Any] = read_state(tmp_path / "good")
    assert torch.equal(found.pop(3)["b"], state.pop(3)["b"])
    assert found == state
    for text in ('{"$tensor": "0"}', '{"$what": 1}', '{"$dict": [[[], 1]]}', '{"$float": "x"}', "[1]"):
        (tmp_path / "good" / "state.json").write_text(text)
        with pytest.raises(UserError, match="cannot be read as the state of a run"):
            read_state(tmp_path / "good")


def test_a_model_folder_holds_one_model_and_nothing_that_is_loaded_with_it(tmp_path: Path) -> None:
    model = random_chat_model(tmp_path / "qwen", "qwen", context=128)
    (model / "adapter_config.json").write_text("{}")
    with pytest.raises(UserError, match="an adapter"):
        open_model(str(model))
    (model / "adapter_config.json").unlink()
    (model / "model.safetensors").rename(model / "dummy.safetensors")
    (model / "pytorch_model.bin").write_bytes(PICKLE)
    with pytest.raises(UserError, match="no weights"):
        open_model(str(model))


def test_brackets_in_texts_make_no_links(capsys: pytest.CaptureFixture[str]) -> None:
    make_console(force_terminal=True).print(Table("[link=http://evil]a[/link]", title="[/nope]"))
    said = capsys.readouterr().out
    assert "[link=http://evil]a[/link]" in said
    assert "\x1b]8" not in said


def test_a_planted_link_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    folder = RunFolder(tmp_path / "run")
    os.symlink(victim, folder.path / "config.yaml.new")
    folder.write_config({"seed": 1})
    assert victim.read_text() == "kept"
    assert folder.read_config() == {"seed": 1}
    os.symlink(victim, folder.path / "metrics.jsonl")
    with pytest.raises(OSError, match=r"symbolic link|Too many levels"):
        folder.metrics.append({"round": 1})
    assert victim.read_text() == "kept"
    with pytest.raises(UserError, match="is a link"):
        RunFolder(tmp_path / "run")
