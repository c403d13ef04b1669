"""Demonstrations in tokens, for the training of the small models.

Several answers to one prompt share its tokens in one row: a task writer's prompt is twenty times as long as an answer.
Each answer attends to the prompt and itself, at the positions right behind the prompt.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from policies.prompting import ChatFormat
from policies.tiny.demonstrations import Demonstration, split_plan
from policies.tiny.proposals import ProposalDemonstration


@dataclass(frozen=True, slots=True)
class Example:
    """A demonstration in tokens: `said_T` marks the solver's tokens, as a trajectory's mask does.

    `decided` are the places of decisions: the first token of a completion and after its plan, and a tool's name and
    listing in the plan. `answers` are the begins of answers that share the prompt before them; none reads another.
    """

    token_ids_T: tuple[int, ...]
    said_T: tuple[bool, ...]
    decided: tuple[int, ...]
    answers: tuple[int, ...] = ()


def encode(demonstration: Demonstration, form: ChatFormat) -> Example:
    """The tokens of a trajectory of the same dialogue."""
    tokens = list(form.opening(demonstration.opening, demonstration.tools))
    said = [False] * len(tokens)
    decided: list[int] = []
    for completion, answer in zip(demonstration.completions, demonstration.answers, strict=True):
        begin = len(tokens)
        decided.append(begin)
        plan, rest = split_plan(completion)
        for name, listed, end in re.findall(r"(\S+) (\S+)(\s)", plan):
            # The decisions are the tool, whether it is listed, and whether another follows.
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
    """The tokens of a curator's samples. The subject of a guideline is decided at its begin."""
    tokens = list(form.chat(demonstration.messages))
    asked = len(tokens)
    decided: list[int] = []
    begins: list[int] = []
    for answer in demonstration.answers:
        begins.append(len(tokens))
        decided.append(len(tokens))
        head, mark, guidelines = answer.partition('"guidelines": ["')
        tokens += form.tokens(head + mark)
        for part in re.split(r'(?<=", ")', guidelines):
            decided.append(len(tokens))
            tokens += form.tokens(part)
        tokens.append(form.completion("")[-1])
    said = [False] * asked + [True] * (len(tokens) - asked)
    return Example(tuple(tokens), tuple(said), tuple(decided), tuple(begins) if len(begins) > 1 else ())


def encode_specifications(demonstration: ProposalDemonstration, form: ChatFormat) -> Example:
    """The tokens of a task writer's samples, with the prompt once and without decisions."""
    tokens = list(form.chat(demonstration.messages))
    asked = len(tokens)
    begins: list[int] = []
    for answer in demonstration.answers:
        begins.append(len(tokens))
        tokens += form.completion(answer)
    said = (False,) * asked + (True,) * (len(tokens) - asked)
    return Example(tuple(tokens), said, tuple(begins), tuple(begins))


def encode_bare_specifications(demonstration: ProposalDemonstration, form: ChatFormat) -> Iterator[Example]:
    """Each answer alone, behind the token that begins it: cheap training without a prompt."""
    begin = form.chat(demonstration.messages)[-1:]
    for answer in demonstration.answers:
        tokens = begin + form.completion(answer)
        yield Example(tokens, (False,) + (True,) * (len(tokens) - 1), (1,))


def shared_prompt_inputs(batch: Sequence[Example], length: int) -> dict[str, torch.Tensor]:
    """A model's inputs for the first `length` tokens of each row in addition to these: positions and attention.

    Empty if no example has answers that share a prompt: causal attention is right then.
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
    """The place, in the concatenated rows, whose output predicts the token behind each place.

    It is the place itself, except that the prompt's end predicts each answer's first token.
    """
    place_BT = torch.arange(len(batch) * length).view(len(batch), length)
    for row, example in enumerate(batch):
        for begin in example.answers:
            place_BT[row, begin - 1] = place_BT[row, example.answers[0] - 1]
    return place_BT
