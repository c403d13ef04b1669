"""Measures the tiny base: each behaviour's share of right decisions in its own dialogues, plain and under cues."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from envs.diagnosis import Label
from envs.interface import Interface
from envs.interface.value import CueKind, RecoveryLevel, SchemaCue
from envs.task import Category
from envs.trace import CallRecord, Step
from policies.curator.fixed import IDLE
from policies.curator.rules import GUIDELINE_FOR
from policies.rollouts import RolloutJob, Rollouts
from policies.tiny.behaviours import CURATOR_WORDINGS, SOLVER_WORDINGS, Behaviour
from policies.tiny.demonstrations import PRECONDITIONS
from policies.tiny.world import Beat, Composition, generate_composition
from policies.trajectory import Trajectory, derive_seed

PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Count:
    """How often a behaviour was right in the turns that needed it."""

    right: int
    needed: int

    @property
    def share(self) -> float:
        return self.right / max(1, self.needed)

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's interval of the share (95 %)."""
        from scipy.stats import binomtest  # type: ignore[import-untyped]

        interval = binomtest(self.right, max(1, self.needed)).proportion_ci(method="wilson")
        return float(interval.low), float(interval.high)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{100 * self.share:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


@dataclass(frozen=True, slots=True)
class Measured:
    """Counts under one interface: right decisions by behaviour, and successes by category."""

    behaviours: Mapping[Behaviour, Count]
    success: Mapping[str, Count]


def interfaces() -> dict[str, Interface]:
    """The measured interfaces by name.

    They are plain, a guideline for each behaviour as in demonstrations and one of the curator's, the sentences of rules
    and placebo, other cues, and a harmful guideline.
    """
    shown, held_out = SOLVER_WORDINGS.behaviours, CURATOR_WORDINGS.behaviours
    guided = {f"guideline: {each}": Interface(guidelines=(texts[0],)) for each, texts in shown.items()}
    unseen = {f"the curator's: {each}": Interface(guidelines=(texts[0],)) for each, texts in held_out.items()}
    by_rules = (Label.SPURIOUS_TOOL_CALL, Label.RECOVERY_FAILURE, Label.MISSING_TOOL_CALL)
    return {
        PLAIN: Interface.plain(),
        **guided,
        "all guidelines": Interface(guidelines=tuple(texts[0] for texts in shown.values())),
        **unseen,
        "the rules'": Interface(guidelines=tuple(GUIDELINE_FOR[label] for label in by_rules)),
        "the placebo's": IDLE,
        "required cue": Interface(schema_cues=(SchemaCue(CueKind.REQUIRED),)),
        "recovery feedback": Interface(recovery=RecoveryLevel.CLASS),
        "harmful guideline": Interface(guidelines=(SOLVER_WORDINGS.harmful[0],)),
    }


async def measure(rollouts: Rollouts, interface: Interface, *, tasks: int) -> Measured:
    """Plays `tasks` generated dev tasks, the categories in turn, and counts."""
    played_tasks = [generate_composition(number, split="dev") for number in range(tasks)]
    jobs = [RolloutJob(each.task, derive_seed("measure", 0, each.task.id), interface) for each in played_tasks]
    decided: list[tuple[str, bool]] = []
    outcomes: list[tuple[str, bool]] = []
    async for place, trajectory in rollouts.play(jobs):
        decided += decisions(played_tasks[place], trajectory)
        outcomes.append((trajectory.category, bool(trajectory.reward)))
    return Measured(
        {behaviour: _count(decided, behaviour) for behaviour in Behaviour},
        {str(category): _count(outcomes, category) for category in Category},
    )


def _count(outcomes: Sequence[tuple[str, bool]], kind: str) -> Count:
    found = [right for each, right in outcomes if each == kind]
    return Count(sum(found), len(found))


def decisions(composition: Composition, trajectory: Trajectory) -> list[tuple[Behaviour, bool]]:
    """The behaviours that the turns of a dialogue needed, and whether they were right."""
    decided: list[tuple[Behaviour, bool]] = []
    beats = iter(composition.beats)
    for turn, steps in zip(composition.task.turns, trajectory.trace.turns, strict=True):
        calls = [record for step in steps for record in step.calls]
        if not turn.ground_truth:
            behaviour = Behaviour.ABSTAIN if composition.task.category is Category.MISS_FUNC else Behaviour.ASK
            if steps:
                decided.append((behaviour, not calls and not any(step.parse_errors for step in steps)))
            continue
        requests = next(beats)
        failed = next((place for place, record in enumerate(calls) if record.is_error), None)
        if failed is not None:
            # Demonstrations recover from no other failure, for instance a mistake in copying.
            if _lacked_precondition(requests, calls[: failed + 1]):
                name = calls[failed].call.name
                recovered = any(later.clean and later.call.name == name for later in calls[failed + 1 :])
                decided.append((Behaviour.RECOVER, recovered))
        elif len(requests) > 1 and _made(steps, [call.name for call in requests[0].calls]):
            later = [call.name for request in requests for call in request.calls]
            decided.append((Behaviour.SECOND_REQUEST, _made(steps, later)))
    return decided


def _lacked_precondition(requests: Sequence[Beat], calls: Sequence[CallRecord]) -> bool:
    """Whether the last of these calls came without a precondition of its request."""
    made = {record.call.name for record in calls}
    for request in requests:
        names = [call.name for call in request.calls]
        if calls[-1].call.name in names:
            before = names[: names.index(calls[-1].call.name)]
            return any(name in PRECONDITIONS and name not in made for name in before)
    return False


def _made(steps: Sequence[Step], names: Sequence[str]) -> bool:
    """Whether tools of these names were called, at least as often as in the list."""
    return Counter(names) <= Counter(record.call.name for step in steps for record in step.calls)
