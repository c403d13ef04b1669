"""`python -m tests.bench.random_model Qwen/Qwen2.5-7B-Instruct FOLDER`: random weights in the shape of a real model.

For time and memory where its weights cannot be had. The tokenizer and the chat template are the tiny model's, with
names for the rest of the vocabulary, so that all that such a model samples is text. It wins no dialogue: runs with
`environment.reward=policies.models.stand_in:token_parity` have something to learn all the same.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from policies.models import open_model


def write(name: str, folder: Path) -> None:
    config = AutoConfig.from_pretrained(open_model(name, weights=False).path)
    config.bos_token_id, config.eos_token_id = 0, 1
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    tiny = open_model("tiny").path
    for file in ("chat_template.jinja", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(tiny / file, folder)
    tokenizer = json.loads((tiny / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    taken = max(vocabulary.values()) + 1
    vocabulary |= {f"zq{number}": number for number in range(taken, config.vocab_size)}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    print(f"{sum(each.numel() for each in model.parameters()) / 1e9:.2f} billion random weights in {folder}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    write(given.name, given.folder)
