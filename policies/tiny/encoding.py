"""Demonstrations in tokens, as the small models are trained on them.

Answers to one prompt stand behind it in one row, and share its tokens: a prompt of the task writer's is twenty times as
long as an answer. Each answer reads the prompt and itself, at the positions that it has behind the prompt alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from policies.prompting import ChatFormat
from policies.tiny.demonstrations import Demonstration, split_plan
from policies.tiny.proposals import ProposalDemonstration
from policies.tiny.specifications import SpecificationDemonstration


@dataclass(frozen=True, slots=True)
class Example:
    """A demonstration in tokens: `said_T` marks what the solver says, as a trajectory's mask does.

    `decided` are the places where something is decided: what is said first, first after a plan, and of a tool in it.
    `answers` are the places where answers begin that share the prompt before them; none reads another.
    """

    token_ids_T: tuple[int, ...]
    said_T: tuple[bool, ...]
    decided: tuple[int, ...]
    answers: tuple[int, ...] = ()


def encode(demonstration: Demonstration, form: ChatFormat) -> Example:
    """The tokens as a trajectory of the same dialogue has them."""
    tokens = list(form.opening(demonstration.opening, demonstration.tools))
    said = [False] * len(tokens)
    decided: list[int] = []
    for completion, answer in zip(demonstration.completions, demonstration.answers, strict=True):
        begin = len(tokens)
        decided.append(begin)
        plan, rest = split_plan(completion)
        for name, listed, end in re.findall(r"(\S+) (\S+)(\s)", plan):
            # Which tool it is, whether it is listed, and whether another follows.
            for text, decides in ((name, True), (" ", False), (listed, True), (end, True)):
                decided += [len(tokens)] if decides else []
                tokens += form.tokens(text)
        decided.append(len(tokens))
        tokens += form.completion(rest)
        said += [True] * (len(tokens) - begin)
        heard = form.continuation(answer) if answer else ()
        tokens += heard
        said += [False] * len(heard)
    return Example(tuple(tokens), tuple(said), tuple(decided))


def encode_proposal(demonstration: ProposalDemonstration, form: ChatFormat) -> Example:
    """The tokens as a curator's sample has them. What each guideline is about is decided where it begins."""
    tokens = list(form.chat(demonstration.messages))
    asked = len(tokens)
    decided = [asked]
    head, mark, guidelines = demonstration.answer.partition('"guidelines": ["')
    tokens += form.tokens(head + mark)
    for part in re.split(r'(?<=", ")', guidelines):
        decided.append(len(tokens))
        tokens += form.tokens(part)
    tokens.append(form.completion("")[-1])
    said = [False] * asked + [True] * (len(tokens) - asked)
    return Example(tuple(tokens), tuple(said), tuple(decided))


def encode_specifications(demonstration: SpecificationDemonstration, form: ChatFormat) -> Example:
    """The tokens as a task writer's samples have them, the prompt once. All that is said counts alike."""
    tokens = list(form.chat(demonstration.messages))
    asked = len(tokens)
    begins: list[int] = []
    for answer in demonstration.answers:
        begins.append(len(tokens))
        tokens += form.completion(answer)
    said = (False,) * asked + (True,) * (len(tokens) - asked)
    return Example(tuple(tokens), said, tuple(begins), tuple(begins))


def encode_bare_specifications(demonstration: SpecificationDemonstration, form: ChatFormat) -> Iterator[Example]:
    """Each answer alone, behind the token that begins it: what can be learnt without a prompt, at little cost."""
    begin = form.chat(demonstration.messages)[-1:]
    for answer in demonstration.answers:
        tokens = begin + form.completion(answer)
        yield Example(tokens, (False,) + (True,) * (len(tokens) - 1), (1,))


def shared_prompt_inputs(batch: Sequence[Example], length: int) -> dict[str, torch.Tensor]:
    """What a model reads beside the first `length` tokens of each row: positions, and which token attends to which.

    Empty where no example has answers that share a prompt, since attention is causal as it is.
    """
    if not any(example.answers for example in batch):
        return {}
    answer_BT = torch.zeros(len(batch), length, dtype=torch.long)
    position_BT = torch.arange(length).repeat(len(batch), 1)
    for row, example in enumerate(batch):
        for number, begin in enumerate(example.answers, start=1):
            answer_BT[row, begin:] = number
            position_BT[row, begin:] = torch.arange(length - begin) + example.answers[0]
    same_BTT = answer_BT[:, :, None] == answer_BT[:, None, :]
    seen_BTT = (same_BTT | (answer_BT == 0)[:, None, :]).tril()
    return {"position_ids": position_BT, "attention_mask": seen_BTT[:, None]}


def predicting_places(batch: Sequence[Example], length: int) -> torch.Tensor:
    """The place, in rows laid end to end, whose output predicts the token behind each place.

    It is the place itself, but for an answer's first token, which the prompt's end predicts.
    """
    place_BT = torch.arange(len(batch) * length).view(len(batch), length)
    for row, example in enumerate(batch):
        for begin in example.answers:
            place_BT[row, begin - 1] = place_BT[row, example.answers[0] - 1]
    return place_BT
