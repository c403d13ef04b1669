"""A small comparison on scripted engines, run as the command does but in a process of its own, which tests can kill.

Takes `start`, `resume` or `fail`, and the comparison's folder.
"""

import sys
from pathlib import Path

from rich.console import Console

from envs.errors import SealError
from seal_ray.report.files import Row
from seal_ray.run.cluster import connected
from tests.seal_ray.algorithm.configs import small_config
from tests.seal_ray.algorithm.engines import Half
from tuning.commands import compare as cli
from tuning.commands.shared import event_printer, print_end
from tuning.comparison.collect import ComparisonManifest, collect
from tuning.comparison.plan import ComparisonPlan, check_plan, start
from tuning.comparison.report import write_results
from tuning.running import resume_trials

ROUNDS = 3
KNOWN: Row = {"metrics": {"evaluation/success": 0.25}, "suites": {"plain": {"base": {"a": 1, "b": 0, "c": 0, "d": 0}}}}
"""The evaluation of the model before training; no engine here reaches it."""


def plan(engine: Half) -> ComparisonPlan:
    """Two arms with one and the same settings, so that the second must come to what the first does."""
    config = small_config(engine).curator(kind="fixed").evaluation(interval=2, tasks=4)
    config.training(rounds=ROUNDS, checkpoint_every=1)
    return ComparisonPlan({"cues": config, "twin": config}, range(1), baseline="cues")


def failing(engine: Half) -> ComparisonPlan:
    """One arm, whose learner cannot agree with a script within the tolerance. Its start is known, as `KNOWN`."""
    config = small_config(engine).evaluation(interval=2, tasks=4).training(rounds=ROUNDS, ratio_tolerance=1e-9)
    return ComparisonPlan({"strict": config}, range(1), baseline="strict", starts={"strict": KNOWN})


def main() -> int:
    command, out = sys.argv[1], Path(sys.argv[2])
    console, engine = Console(width=200), Half(pause=0.05)
    with connected():
        on_event = event_printer(console, lambda: collect(out))
        if command == "resume":
            resume_trials(out, ComparisonManifest, on_event=on_event)
        else:
            planned = plan(engine) if command == "start" else failing(engine)
            check_plan(planned, weights=False)
            start(planned, out, on_event=on_event, retries=1, engine_factory=engine)
    comparison = write_results(out)
    cli.print_comparison(console, comparison)
    try:
        print_end(console, comparison)
    except SealError as error:
        console.print(f"failed: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
