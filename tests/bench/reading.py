"""Does a curator learn to read failures, or one text by heart? `tiny-hidden` without a solver.

    python -m tests.bench.reading IMITATED LR SEED

A made-up profile shows the tools that have entered; one whose guideline was found hardly fails two windows later. So
credit is exact, and the recipe of the curator's learning is all that differs. Prints a row a window.
"""

import copy
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import Qwen2ForCausalLM

from envs.diagnosis import Diagnosis, Label
from envs.errors import UserError
from envs.hidden_conventions import BASE, ENTERING, SETS, TURNS, HiddenTool, tool_set
from envs.interface import Interface
from envs.profile import FailureProfile
from policies import tiny
from policies.curator.proposal_text import messages_for, read_proposal
from policies.models import open_model
from policies.prompting import ChatFormat
from policies.tiny.hidden import draw_diagnosis, helping, hidden_source

WINDOWS, PROPOSALS, STAGE, ROLLOUTS = 24, 24, 4, 64
"""Windows, proposals of each, windows between two entries of tools, and rollouts of a profile."""
LEARNT_AFTER, LEARNT_RATE, KL = 2, 0.8, 0.1
IMITATED = {"never": 0, "once": 1, "thrice": 3, "always": WINDOWS}
"""In how many windows the text by which a tool is found is imitated, in the prompt in which it was written."""


@dataclass
class Found:
    """The text by which tools were found, in tokens, and in how many windows it was imitated."""

    prompt: list[int]
    answer: list[int]
    imitated: int = 0


def profile_of(rng: random.Random, window: int, tools: Sequence[HiddenTool], found: dict[str, int]) -> FailureProfile:
    profile = FailureProfile()
    for _ in range(ROLLOUTS):
        tool = rng.choice(tools[-ENTERING:] if rng.random() < 0.5 else tools)
        learnt = window >= found.get(tool.name, WINDOWS) + LEARNT_AFTER
        turns = tuple(draw_diagnosis(rng, turn, tool, LEARNT_RATE if learnt else 0.0) for turn in range(TURNS))
        profile.add(Diagnosis("made up", BASE, turns, all(turn.label is Label.PASS for turn in turns)), 0.0)
    return profile


def logprobs(model: Qwen2ForCausalLM, each: Found) -> torch.Tensor:
    logits = model(torch.tensor([each.prompt + each.answer])).logits[0, len(each.prompt) - 1 : -1]
    return torch.log_softmax(logits, -1)[torch.arange(len(each.answer)), torch.tensor(each.answer)]


def main(imitated: str, lr: float, seed: int) -> None:
    hidden_source()
    opened = open_model(tiny.HIDDEN)
    form = ChatFormat.load(opened.path, opened.dialect)
    model = Qwen2ForCausalLM.from_pretrained(opened.path, dtype=torch.float32)
    reference = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, eps=1e-5, weight_decay=0.0)
    torch.manual_seed(seed)
    rng, all_tools = random.Random(f"reading {seed}"), tool_set(seed % SETS)
    found: dict[str, int] = {}
    texts: list[Found] = []
    print("| window | proposals that help | tools they name | found | imitated |\n| --- | --- | --- | --- | --- |")
    for window in range(WINDOWS):
        tools = all_tools[: ENTERING * (1 + window // STAGE)]
        plain = Interface.plain()
        prompt = list(form.chat(messages_for(profile_of(rng, window, tools, found), incumbent=plain, before=plain)))
        with torch.no_grad():
            rows = model.generate(torch.tensor([prompt] * PROPOSALS), do_sample=True, top_k=0, max_new_tokens=120)
        helped, named = 0, set[str]()
        for row in rows.tolist():
            end = next((at for at in range(len(prompt), len(row)) if row[at] in form.stop_token_ids), None)
            answer = row[len(prompt) : end + 1] if end else []
            try:
                guidelines = read_proposal(form.text(answer)).guidelines
            except UserError:
                continue
            hits = {tool.name for tool in tools if any(helping(text, [tool]) for text in guidelines)}
            helped, named = helped + bool(hits), named | hits
            if hits - found.keys():
                texts.append(Found(prompt, answer))
                found |= dict.fromkeys(hits - found.keys(), window)
        used = [each for each in texts if each.imitated < IMITATED[imitated]]
        for each in used:
            each.imitated += 1
            taken = logprobs(model, each)
            with torch.no_grad():
                expected = logprobs(reference, each)
            k3 = (expected - taken).exp() - (expected - taken) - 1
            torch.autograd.backward((KL * k3 - (taken - taken.detach()).exp()).mean() / len(used))
        if used:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        print(f"| {window} | {helped} | {len(named)} | {len(found)} | {len(used)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
