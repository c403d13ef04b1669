"""`make bench`: the world against BFCL's official code, side by side in one run. Prints what it measured.

Both sides play the same ground truths, one call a step, on the same machine, in alternating rounds.

* steps: calls executed on fresh simulators, a step each, neither parsed nor judged.
* verifications: from the calls of a finished trajectory to its verdict; ours has the ground truth cached, as in
  training, the official checker executes it anew every time.
* dialogues: played and judged. The official side executes each step, then runs its checker; ours is a whole `Dialogue`,
  which also parses completions, checks schemas, renders observations and labels every turn.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache

from envs.bfcl.tasks import load_tasks
from envs.dialects import DIALECTS
from envs.dialogue import Dialogue
from envs.task import Task
from envs.verifier import Verifier, prepare
from tests.bench.asking import Asked

ROUNDS = 5
TASKS = 200


def our_steps(tasks: Sequence[Task]) -> int:
    """Executes every call; returns their number."""
    calls = 0
    for task in tasks:
        world = prepare(task).start()
        for turn in task.turns:
            for call in turn.ground_truth:
                world.execute(call)
                calls += 1
    return calls


@cache
def completions(task: Task) -> tuple[str, ...]:
    """The completions of the ground truth, made before the clock starts."""
    dialect = DIALECTS["qwen"]
    return tuple(
        text for turn in task.turns for text in (*(dialect.render_calls([call]) for call in turn.ground_truth), "Done.")
    )


def our_dialogues(tasks: Sequence[Task]) -> int:
    """Plays whole dialogues from text; returns their number."""
    for task in tasks:
        dialogue = Dialogue(task)
        dialogue.reset()
        for completion in completions(task):
            dialogue.step(completion)
        assert dialogue.success
    return len(tasks)


def our_verifications(tasks: Sequence[Task]) -> int:
    """Executes and judges finished trajectories; returns their number."""
    for task in tasks:
        world = prepare(task).start()
        verifier = Verifier(task)
        for turn in task.turns:
            if turn.ground_truth:
                verifier.add_calls()
            for call in turn.ground_truth:
                verifier.add_result(world.execute(call).text)
            verifier.end_turn(world.state())
        assert verifier.success
    return len(tasks)


def timed(work: Callable[[Sequence[Task]], int], tasks: Sequence[Task]) -> float:
    """Items a second."""
    started = time.perf_counter()
    done = work(tasks)
    return done / (time.perf_counter() - started)


def main() -> None:
    # Ground truths of more than 20 calls a turn cannot be played one call a step.
    playable = [t for t in load_tasks().values() if all(len(turn.ground_truth) <= 20 for turn in t.turns)]
    tasks = playable[:: len(playable) // TASKS][:TASKS]
    works = {"steps": our_steps, "verifications": our_verifications, "dialogues": our_dialogues}
    ours: dict[str, list[float]] = {what: [] for what in works}
    theirs: dict[str, list[float]] = {what: [] for what in works}
    for task in tasks:
        prepare(task)
    names = [task.id for task in tasks]
    with Asked("-m", "tests.bench.official_speed") as official:
        for index in range(ROUNDS + 1):
            for what, work in works.items():
                pair = timed(work, tasks), float(official.ask(what=what, names=names))
                if index:  # the first round warms up
                    ours[what].append(pair[0])
                    theirs[what].append(pair[1])
            sys.stderr.write(f"round {index} of {ROUNDS}\n")
    lines = [f"{len(tasks)} BFCL ground truths, one call a step, {ROUNDS} rounds; median (min to max) a second"]
    for what in works:
        ratios = [a / b for a, b in zip(ours[what], theirs[what], strict=True)]
        lines.append(
            f"{what:14} ours {_spread(ours[what]):28} official {_spread(theirs[what]):24} "
            f"ratio {statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
        )
    resets = timed(lambda some: len([Dialogue(task).reset() for task in some]), tasks)
    lines.append(f"a dialogue's reset, prompt text included: {1e3 / resets:.2f} ms")
    sys.stdout.write("\n".join(lines) + "\n")


def _spread(rates: Sequence[float]) -> str:
    return f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


if __name__ == "__main__":
    main()
