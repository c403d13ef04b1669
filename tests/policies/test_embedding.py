"""Vectors of texts: the mean over tokens, by hand; which models are taken."""

import json
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from envs.errors import UserError
from policies.embedding import Embedder
from tests.policies.tiny_encoder import make_encoder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("encoder"))


def test_a_vector_is_the_scaled_mean_of_the_tokens_whatever_stands_beside_it(encoder: Path) -> None:
    texts = ["The customer lives in Seattle", "coffee", "", "a " * 500]
    found = Embedder(str(encoder))(texts * 20)
    tokenizer, model = AutoTokenizer.from_pretrained(encoder), AutoModel.from_pretrained(encoder).eval()
    for place, text in enumerate(texts):
        ids = torch.tensor([tokenizer(text, truncation=True, max_length=64).input_ids])
        with torch.inference_mode():
            mean = model(ids).last_hidden_state[0].mean(0)
        for row in found[place :: len(texts)]:
            assert row == pytest.approx((mean / mean.norm()).numpy(), abs=1e-5)
    assert found.shape == (80, 32)
    assert found.dtype == np.float32


def test_the_folder_says_how_long_a_text_may_be(encoder: Path, tmp_path: Path) -> None:
    short = make_encoder(tmp_path)
    (short / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 4, "do_lower_case": True}))
    assert Embedder(str(short))(["name is michael"]) == pytest.approx(Embedder(str(encoder))(["name is"]), abs=1e-5)


@pytest.mark.parametrize(
    ("module", "settings", "taken"),
    [
        ("1_Pooling", {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, True),
        ("1_Pooling", {"pooling_mode": "mean"}, True),
        ("1_Pooling", {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}, False),
        ("1_Pooling", {"pooling_mode": "lasttoken"}, False),
        *(("2_Normalize", {}, True), ("2_Dense", {"in_features": 32}, False)),
    ],
)
def test_a_model_that_pools_in_another_way_is_refused(
    tmp_path: Path, module: str, settings: dict[str, object], taken: bool
) -> None:
    folder = make_encoder(tmp_path)
    (folder / module).mkdir()
    (folder / module / "config.json").write_text(json.dumps(settings))
    with nullcontext() if taken else pytest.raises(UserError, match="mean of its tokens"):
        Embedder(str(folder))


@pytest.mark.parametrize("name", ["nowhere", "../x/y/z", ""])
def test_a_name_that_means_nothing_is_one_sentence(name: str) -> None:
    with pytest.raises(UserError, match=r"^embeddings: .* is no folder and no hub's OWNER/NAME\.$|has no"):
        Embedder(name)
