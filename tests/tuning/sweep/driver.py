"""A small sweep on scripted engines, run as the command does but in a process of its own, which tests can kill.

Takes `start` or `resume`, and the sweep's folder. Scripted solvers succeed about half the time, however they learn; a
solver with one completion a dialogue never does. So the swept settings decide, as in a real sweep.
"""

import sys
from pathlib import Path

from rich.console import Console

from seal_ray.run.cluster import connected
from tests.seal_ray.algorithm.configs import small_config
from tests.seal_ray.algorithm.engines import Half
from tuning.commands import sweep as cli
from tuning.commands.shared import event_printer, print_end
from tuning.running import resume_trials
from tuning.sweep.parameter import SweptParameter
from tuning.sweep.plan import SweepPlan, check_plan, start
from tuning.sweep.results import SweepManifest, collect, write_results
from tuning.sweep.space import Space

ROUNDS = 2
"""Rounds of a trial that is not stopped early."""

STEPS = SweptParameter("solver.steps", choices=(20, 1))


def plan(engine: Half) -> SweepPlan:
    """Two points, evaluated after each of two rounds: ASHA's one rung is the first."""
    config = small_config(engine).evaluation(interval=1, tasks=8).training(rounds=ROUNDS, checkpoint_every=1)
    return SweepPlan(config, Space((STEPS,)), scheduler="asha", search="grid", trials=2)


def main() -> int:
    command, out = sys.argv[1], Path(sys.argv[2])
    console, engine = Console(width=200), Half(evaluated=8)
    with connected():
        on_event = event_printer(
            console, lambda: collect(out), on_end=lambda: console.print(cli.trials_table(collect(out)))
        )
        if command == "resume":
            resume_trials(out, SweepManifest, on_event=on_event)
        else:
            planned = plan(engine)
            check_plan(planned, weights=False)
            start(planned, out, on_event=on_event, engine_factory=engine)
    found = write_results(out)
    cli.print_sweep(console, found)
    print_end(console, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
