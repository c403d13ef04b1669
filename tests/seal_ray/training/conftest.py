"""The model that tests of learners learn on."""

from pathlib import Path

import pytest

from tests.policies.models import byte_tokenizer, random_qwen2


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a random Qwen2 with a tokenizer of bytes."""
    folder = random_qwen2(tmp_path_factory.mktemp("qwen2"), seed=1)
    byte_tokenizer(folder)
    return folder


@pytest.fixture(scope="session")
def untied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with an output layer of its own."""
    folder = random_qwen2(tmp_path_factory.mktemp("untied"), seed=1, tied=False)
    byte_tokenizer(folder)
    return folder
