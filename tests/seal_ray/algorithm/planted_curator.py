"""A small curator that prefers none of the planted world's cues."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import torch
from torch.nn import functional
from transformers import Qwen2Config, Qwen2ForCausalLM

from envs.interface import Interface
from envs.profile import FailureProfile
from policies import tiny
from policies.curator.proposal_text import messages_for, write_proposal
from policies.models import open_model
from policies.prompting import ChatFormat
from policies.tiny.proposals import proposal_demonstrations
from tests.seal_ray.algorithm.planted import CUES


def proposal(cue: str) -> str:
    return write_proposal(Interface(guidelines=(cue,)))


def uniform_curator(folder: Path, *, steps: int = 240) -> Path:
    """Saves a small model that writes one of the four proposals, each about as often, whatever it reads."""
    shutil.copytree(tiny.FOLDER, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json", "recipe.json"))
    base = open_model(tiny.NAME)
    form = ChatFormat.load(base.path, base.dialect)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=int(base.config["vocab_size"]),
        hidden_size=96,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=base.config["eos_token_id"],
        pad_token_id=base.config["pad_token_id"],
    )
    model = Qwen2ForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    prompts = [form.chat(each.messages) for each in itertools.islice(proposal_demonstrations(0), 100)]
    prompts.append(form.chat(messages_for(FailureProfile(), incumbent=Interface.plain(), before=Interface.plain())))
    answers = [form.completion(proposal(cue)) for cue in CUES]
    width = max(map(len, answers))
    said_BT = torch.tensor([[*said, *[said[-1]] * (width - len(said))] for said in answers])
    real_BT = torch.tensor([[place < len(said) for place in range(width)] for said in answers])
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, (step + 1) / 20) * (1 - step / steps)
        asked = prompts[step % len(prompts)]
        # What all answers have before them is computed once.
        before = model(torch.tensor([asked[:-1]]), use_cache=True).past_key_values
        before.batch_repeat_interleave(len(answers))
        last_B1 = torch.full((len(answers), 1), asked[-1])
        logits_BTV = model(torch.cat([last_B1, said_BT[:, :-1]], dim=1), past_key_values=before).logits
        losses_BT = functional.cross_entropy(logits_BTV.transpose(1, 2), said_BT, reduction="none")
        optimizer.zero_grad()
        (losses_BT * real_BT).sum().div(real_BT.sum()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.save_pretrained(folder)
    return folder
