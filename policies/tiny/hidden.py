"""Demonstrations of `tiny-hidden`: tasks on tools with hidden conventions, and a curator's proposals for them.

Codes are drawn anew for each demonstration, so that none can be learnt by heart: the solver follows guidelines.
"""

import itertools
import random
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from envs.diagnosis import Diagnosis, Label, TurnDiagnosis
from envs.dialogue import Dialogue, Protocol
from envs.hidden_conventions import BASE, DEMONSTRATION_SETS, TURNS, HiddenTool, compose, draw_code, tool_set
from envs.interface import CueKind, Interface, RecoveryLevel, SchemaCue
from envs.profile import FailureProfile
from envs.sources import TaskSource, get_source
from envs.trusting import allow
from envs.verifier import Outcome, TurnVerdict
from policies.curator.base import Tried
from policies.curator.proposal_text import messages_for, write_proposal
from policies.demonstrations import DONE
from policies.tiny.demonstrations import DIALECT, Demonstration
from policies.tiny.proposals import ProposalDemonstration

SOURCE_NAME = "envs.hidden_conventions:SOURCE"
WORDINGS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""Kind of guideline → wordings; `held_out` are in no demonstration."""
FULL, TOOL, GENERAL = "full", "tool", "general"
"""Kinds of guidelines: a tool's argument and its code, a tool alone, no tool."""
BARE = "plain"
"""The word of a plan that gives the value as the user says it."""
FULL_RATE = 0.96
"""How often the solver gives a code that a guideline states. It gives no other."""
PROPOSALS = {
    "reading": {FULL: 0.5, TOOL: 0.25, GENERAL: 0.25},
    "rare": {FULL: 0.03, TOOL: 0.1, GENERAL: 0.87},
}
"""Mixtures of kinds of guidelines in proposals. `FULL` ones state what the profile reveals."""
_EARLIER = {FULL: 0.15, TOOL: 0.15, GENERAL: 0.7}
"""The same in the interfaces of earlier windows, which a curator reads."""
_PLAIN = 0.2
"""Share of demonstrations on the plain interface."""
_SETS = list(DEMONSTRATION_SETS)


def hidden_source() -> TaskSource:
    """The source of the tasks, known from now on."""
    allow([SOURCE_NAME])
    return get_source(SOURCE_NAME)


def guideline(rng: random.Random, kind: str, tool: HiddenTool, *, held_out: bool = False) -> str:
    """A guideline of a kind."""
    wordings: list[str] = (WORDINGS["held_out"] if held_out else WORDINGS)[kind]
    return rng.choice(wordings).format(tool=tool.name, argument=tool.argument, code=tool.code)


def helping(text: str, tools: Sequence[HiddenTool]) -> bool:
    """Whether a guideline states the code of a tool's argument right behind the argument."""
    return any(re.search(rf"\b{tool.argument} {tool.code}\b", text) for tool in tools)


def hidden_demonstrations(seed: int) -> Iterator[Demonstration]:
    """Endless demonstrations, the same for a seed in every process."""
    for number in itertools.count():
        yield _demonstration(random.Random(f"hidden demonstration {seed} {number}"), f"hidden_shown_{seed}_{number}")


def _drawn_tools(rng: random.Random) -> list[HiddenTool]:
    """A set's tools, in any order and with any codes."""
    tools = [replace(each, code=draw_code(rng)) for each in tool_set(rng.choice(_SETS))]
    return rng.sample(tools, len(tools))


def _demonstration(rng: random.Random, name: str) -> Demonstration:
    tools = _drawn_tools(rng)
    needed = rng.choices(tools[:3], k=rng.choice((1, 2, 3)))
    task, values = compose(rng, name, "train", tools, needed)
    interface, kinds = _draw_interface(rng, tools)
    protocol = rng.choice([Protocol.OFFICIAL, Protocol.SEAL])
    dialogue = Dialogue(task, dialect=DIALECT, interface=interface, protocol=protocol)
    _, info = dialogue.reset()
    completions: list[str] = []
    for tool, value in zip(needed, values, strict=True):
        obeyed = kinds.get(tool) == FULL and rng.random() < FULL_RATE
        call = tool.call(value, tool.code if obeyed else None)
        plan = f"{tool.argument} {tool.code if obeyed else BARE}\n"
        completions += [plan + DIALECT.render_calls((call,)), DONE]
    answers = tuple(dialogue.step(text)[4]["messages"] for text in completions)
    opening, shown = info["messages"], info["tools"]
    return Demonstration(task.id, interface, shown, opening, tuple(completions), answers, dialogue.success, ())


def _draw_interface(rng: random.Random, tools: Sequence[HiddenTool]) -> tuple[Interface, dict[HiddenTool, str]]:
    """An interface, and the kinds of its guidelines about tools; a dialogue shows the first three tools at most."""
    if rng.random() < _PLAIN:
        return Interface.plain(), {}
    drawn = rng.choices((FULL, TOOL, None), (0.5, 0.25, 0.25), k=3)
    drawn += rng.choices((FULL, TOOL), (0.7, 0.3), k=rng.choice((0, 0, 1, 2)))
    kinds = {tool: kind for tool, kind in zip(tools, drawn, strict=False) if kind is not None}
    texts = [guideline(rng, kind, tool) for tool, kind in kinds.items()]
    texts += [guideline(rng, GENERAL, tools[0]) for _ in range(rng.choice((0, 0, 1, 2)))]
    rng.shuffle(texts)
    cues = tuple(SchemaCue(kind) for kind in sorted(CueKind) if rng.random() < 0.05)
    recovery = rng.choice(list(RecoveryLevel)) if rng.random() < 0.15 else RecoveryLevel.NONE
    return Interface(cues, recovery, tuple(texts)), kinds


def hidden_proposals(seed: int, mixture: str, *, answers: int = 1) -> Iterator[ProposalDemonstration]:
    """Endless demonstrations, with so many answers to a prompt of a mixture of `PROPOSALS`."""
    hidden_source()  # a profile shows the tools of known sources
    kinds = PROPOSALS[mixture]
    for number in itertools.count():
        rng = random.Random(f"hidden proposal {seed} {number} {mixture == 'reading'}")
        tools = _drawn_tools(rng)
        profile, failing = _draw_profile(rng, tools)
        incumbent, before, *others = (_draw_proposal(rng, tools, _EARLIER) for _ in range(6))
        if rng.random() < _PLAIN:
            incumbent = before = Interface.plain()
        gains = sorted((rng.gauss(0.05, 0.1) for _ in others[: rng.choice((0, 0, 2, 4))]), reverse=True)
        tried = [Tried(each, gain, 0.08) for each, gain in zip(others, gains, strict=False)]
        messages = messages_for(profile, incumbent=incumbent, before=before, tried=tried)
        drawn = (_draw_proposal(rng, failing, kinds) for _ in range(answers))
        yield ProposalDemonstration(messages, tuple(map(write_proposal, drawn)))


def _draw_profile(rng: random.Random, tools: Sequence[HiddenTool]) -> tuple[FailureProfile, list[HiddenTool]]:
    """A made-up profile, and the tools whose arguments it shows to fail, the most frequent first."""
    active = tools[: rng.choice((3, 3, 6, 9, 12))]
    weights = [rng.expovariate(1.0) for _ in active]
    rates = [rng.choice((0.0, 0.02, 0.3, 0.9)) for _ in active]
    profile = FailureProfile()
    for place in rng.choices(range(len(active)), weights, k=rng.choice((64, 128, 256)) // TURNS):
        turns = [draw_diagnosis(rng, turn, active[place], rates[place]) for turn in range(TURNS)]
        won = all(turn.label is Label.PASS for turn in turns)
        profile.add(Diagnosis("made up", BASE, tuple(turns), won), float(won))
    tallies = profile.window.tallies
    keys = {f"argument/{tool.name}/{tool.argument}/{tool.code}": tool for tool in active}
    failing = sorted((key for key in keys if key in tallies), key=lambda key: (-tallies[key].turns, key))
    return profile, [keys[key] for key in failing[:4]] or [active[0]]


def draw_diagnosis(rng: random.Random, turn: int, tool: HiddenTool, rate: float) -> TurnDiagnosis:
    """The diagnosis of a request for the tool, which passes at this rate."""
    verdict = TurnVerdict(turn, Outcome.UNSCORED)
    if rng.random() < rate:
        return TurnDiagnosis(turn, Label.PASS, "", verdict)
    if rng.random() < 0.95:
        return TurnDiagnosis(turn, Label.ARGUMENT_MISMATCH, tool.code, verdict, tool=tool.name, argument=tool.argument)
    return TurnDiagnosis(turn, Label.STATE_MISMATCH, "Journal.entries", verdict)


def _draw_proposal(rng: random.Random, failing: Sequence[HiddenTool], kinds: dict[str, float]) -> Interface:
    texts: dict[str, None] = {}
    for kind in rng.choices(list(kinds), list(kinds.values()), k=rng.choice((1, 1, 2, 3))):
        texts[guideline(rng, kind, rng.choice(failing))] = None
    cues = tuple(SchemaCue(kind) for kind in sorted(CueKind) if rng.random() < 0.05)
    recovery = RecoveryLevel.CLASS if rng.random() < 0.1 else RecoveryLevel.NONE
    return Interface(cues, recovery, tuple(texts))
