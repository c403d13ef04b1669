"""A world in which one cue helps and one harms: engines that play it, and a small curator that prefers none of them."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional
from transformers import Qwen2Config, Qwen2ForCausalLM

from envs.catalog import find_task
from envs.interface import Interface
from envs.profile import FailureProfile
from envs.task import Category
from policies import tiny
from policies.curator.prompt import messages_for
from policies.curator.proposal_text import write_proposal
from policies.engine import Engine, GenRequest
from policies.engine.choice import start_engine
from policies.engine.scripted import ScriptedEngine
from policies.model_folder import open_model
from policies.prompting import ChatFormat
from policies.tiny.proposals import proposal_demonstrations
from seal_ray.algorithm.engine_actor import EngineSpec
from seal_ray.algorithm.tasks import TaskStream
from seal_ray.config.sections import Environment
from tests.policies.scripts import oracle_script
from tests.seal_ray.algorithm.engines import asked

HELPS, HARMS = "Check", "Guess"
CUES = (HELPS, HARMS, "Smile", "Order")
CHANCES = {HELPS: 0.9, HARMS: 0.1}
"""Guideline → how often a dialogue under it succeeds; half of the others do."""
DIFFICULTY = "t1-1_c1-2_d1-3_s2-4"
TASKS = 16


def proposal(cue: str) -> str:
    return write_proposal(Interface(guidelines=(cue,)))


@dataclass(frozen=True)
class Planted:
    """A factory: the solver's engine plays the planted world, the curator's samples from its model."""

    async def __call__(self, spec: EngineSpec) -> Engine:
        model = open_model(spec.model)
        if spec.agent == "curator":
            return await start_engine(
                "transformers", model, context=spec.context, dtype=spec.dtype, concurrent=spec.concurrent
            )
        form = ChatFormat.load(model.path, model.dialect)
        stream = TaskStream(Environment(tasks=TASKS, difficulty=DIFFICULTY, categories=[Category.BASE]), 0)
        tasks = [find_task(name) for name in sorted({stream.task_id(number) for number in range(TASKS)})]
        script = {asked(form, prompt): said for prompt, said in oracle_script(form, tasks).items()}
        done = form.completion("Done.")

        def answer(request: GenRequest) -> Sequence[int]:
            text = form.text(request.prompt_ids)
            chance = next((CHANCES[cue] for cue in CHANCES if f"- {cue}" in text), 0.5)
            # It is decided at the first completion of a dialogue whether it succeeds.
            first = text.count("<|assistant|>") == 1
            fails = first and random.Random(request.seed).random() >= chance
            return done if fails else script.get(asked(form, request.prompt_ids), done)

        return ScriptedEngine(answer, context=spec.context, vocabulary=int(model.config["vocab_size"]))


def uniform_curator(folder: Path, *, steps: int = 500) -> Path:
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
    model = Qwen2ForCausalLM(config)  # type: ignore[no-untyped-call]
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
