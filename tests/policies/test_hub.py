"""Models of the hub by name, through its own client: fetched once, pinned, offline, refused in one sentence."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.policies.chat_models import random_chat_model
from tests.policies.hub_server import COMMIT, Hub, hub

_OPEN = """
import sys
from envs.errors import UserError
from policies.models import open_model
try:
    model = open_model(sys.argv[1])
    print(model.path, model.name, model.dialect.name)
except UserError as error:
    print("refused:", error)
"""
"""Run in a process of its own: the client reads its environment when it is imported."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    folder = random_chat_model(tmp_path_factory.mktemp("hub") / "model", "qwen")
    (folder / "pytorch_model.bin").write_bytes(b"what nobody should fetch")
    with hub({"owner/model": folder}, {"owner/gated": "GatedRepo"}) as running:
        yield running


def opened(name: str, home: Path, endpoint: str, **environment: str) -> str:
    # Engines that earlier tests started in this process have set it.
    here = {key: value for key, value in os.environ.items() if key != "HF_HUB_OFFLINE"}
    shown = subprocess.run(
        [sys.executable, "-c", _OPEN, name],
        env={**here, "HF_HOME": str(home), "HF_ENDPOINT": endpoint, **environment},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    return shown.stdout.strip().splitlines()[-1]


def test_a_model_is_fetched_once_and_then_needs_no_network(server: Hub, tmp_path: Path) -> None:
    path, name, dialect = opened("owner/model", tmp_path, server.address).split()
    assert (name, dialect) == ("model", "qwen")
    assert Path(path).is_relative_to(tmp_path)
    assert Path(path).name == COMMIT
    assert not any(asked.endswith("pytorch_model.bin") for asked in server.asked)
    server.asked.clear()
    assert opened("owner/model", tmp_path, server.address).split()[0] == path
    assert server.asked == [], "what is there is taken as it is, by every actor of a run"
    assert opened("owner/model", tmp_path, "http://127.0.0.1:9", HF_HUB_OFFLINE="1").split()[0] == path


def test_what_is_there_in_part_is_fetched_whole(server: Hub, tmp_path: Path) -> None:
    path = Path(opened("owner/model", tmp_path, server.address).split()[0])
    for file in path.glob("*.safetensors"):
        file.unlink()
    assert opened("owner/model", tmp_path, server.address).split()[0] == str(path)
    assert list(path.glob("*.safetensors"))


def test_weights_without_their_tokenizer_or_template_are_not_the_whole(server: Hub, tmp_path: Path) -> None:
    path = Path(opened("owner/model", tmp_path, server.address).split()[0])
    for name in ("tokenizer.json", "chat_template.jinja"):
        (path / name).unlink()
        assert opened("owner/model", tmp_path, server.address).split()[0] == str(path)
        assert (path / name).is_file()


def test_a_revision_is_part_of_the_name(server: Hub, tmp_path: Path) -> None:
    server.asked.clear()
    assert opened("owner/model@v1", tmp_path, server.address).split()[1:] == ["model", "qwen"]
    assert any(asked.startswith("/api/models/owner/model/revision/v1") for asked in server.asked)
    assert "it has no such revision" in opened("owner/model@v9", tmp_path, server.address)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("owner/missing", "there is no such model, or it is private"),
        ("owner/gated", "its licence must be accepted with an account first"),
    ],
)
def test_what_the_hub_refuses_names_the_remedy(name: str, reason: str, server: Hub, tmp_path: Path) -> None:
    said = opened(name, tmp_path, server.address)
    assert said.startswith(f"refused: model: {name} is no folder here, and the hub did not give it ({reason});")
    assert f"`hf download {name}`" in said


def test_a_hub_out_of_reach_names_the_remedy(tmp_path: Path) -> None:
    said = opened("owner/model@v1", tmp_path, "http://127.0.0.1:9")
    assert "it is not in the cache, and the hub cannot be reached" in said
    assert "`hf download owner/model --revision v1`" in said
    said = opened("owner/model", tmp_path, "http://127.0.0.1:9", HF_HUB_OFFLINE="1")
    assert "it is not in the cache" in said
