"""Scripts for `ScriptedEngine`, whose behaviour is known; rollouts in the order of their jobs; profiles of labels."""

import random
from collections.abc import Callable, Sequence

from envs.diagnosis import Diagnosis, Label, TurnDiagnosis
from envs.dialogue import Dialogue
from envs.profile import FailureProfile
from envs.task import Task
from envs.verifier import Outcome, TurnVerdict
from policies.engine import GenRequest
from policies.prompting import ChatFormat
from policies.rollouts import RolloutJob, Rollouts
from policies.trajectory import Trajectory
from tests.policies.scripted_engine import ScriptedEngine

Answer = Callable[[GenRequest], Sequence[int]]


class DiesAtOnce(ScriptedEngine):
    """An engine that never lives to answer again."""

    async def restart(self) -> None:
        await super().restart()
        self.die_after(1)


def seen(*rollouts: tuple[Sequence[Label], float]) -> FailureProfile:
    """The profile of these rollouts, each the labels of its turns and its reward."""
    profile = FailureProfile()
    for labels, reward in rollouts:
        profile.add(diagnosis_of(*labels, success=reward == 1), reward)
    return profile


def diagnosis_of(*labels: Label, success: bool = False) -> Diagnosis:
    """A diagnosis with these labels, turn by turn."""
    turns = tuple(TurnDiagnosis(i, label, "", TurnVerdict(i, Outcome.UNSCORED)) for i, label in enumerate(labels))
    return Diagnosis("a_task", "base", turns, success=success)


def says(form: ChatFormat, *texts: str) -> Answer:
    """Says these texts in turn, by the request's seed in the order that seeds are first seen in."""
    seen: dict[int, int] = {}
    return lambda request: form.completion(texts[seen.setdefault(request.seed, len(seen)) % len(texts)])


async def collected(
    rollouts: Rollouts, jobs: Sequence[RolloutJob], *, after: Callable[[int], None] = lambda done: None
) -> list[Trajectory]:
    """Plays all jobs; `after` gets the number of finished ones, each time one finishes."""
    done: dict[int, Trajectory] = {}
    async for place, trajectory in rollouts.play(jobs):
        done[place] = trajectory
        after(len(done))
    return [done[place] for place in range(len(jobs))]


def oracle(form: ChatFormat, tasks: Sequence[Task]) -> Answer:
    """Plays the ground truth of these tasks: calls of a turn in one completion, then an end of the turn."""
    script = oracle_script(form, tasks)
    return lambda request: script[request.prompt_ids]


def oracle_script(form: ChatFormat, tasks: Sequence[Task]) -> dict[tuple[int, ...], tuple[int, ...]]:
    """What `oracle` says to each prompt."""
    script: dict[tuple[int, ...], tuple[int, ...]] = {}
    for task in tasks:
        dialogue = Dialogue(task, dialect=form.dialect)
        _, info = dialogue.reset()
        prompt = form.opening(info["messages"], info["tools"])
        while not dialogue.over:
            turn = task.turns[dialogue.turn]
            acts = turn.ground_truth and not dialogue.trace.turns[dialogue.turn]
            said = form.dialect.render_calls(turn.ground_truth) if acts else "Done."
            script[prompt] = form.completion(said)
            *_, info = dialogue.step(said)
            if not dialogue.over:
                prompt = (*prompt, *script[prompt], *form.continuation(info["messages"]))
    return script


def babble(form: ChatFormat, vocabulary: int, *, tasks: Sequence[Task] = ()) -> Answer:
    """Random tokens, calls of the ground truth among them: a function of the request alone."""
    calls = [call for task in tasks for turn in task.turns for call in turn.ground_truth]

    def answer(request: GenRequest) -> list[int]:
        rng = random.Random(f"{request.seed} {len(request.prompt_ids)}")
        kind = rng.random()
        if calls and kind < 0.6:
            return list(form.completion(form.dialect.render_calls(rng.sample(calls, rng.randint(1, 2)))))
        length = rng.randrange(1, 30) if kind < 0.95 else request.max_tokens
        tokens = [rng.randrange(vocabulary) for _ in range(length)]
        return [token for token in tokens if token not in form.stop_token_ids or kind < 0.95] + [
            form.completion("")[0]
        ] * (request.max_tokens if kind >= 0.95 else 1)

    return answer
