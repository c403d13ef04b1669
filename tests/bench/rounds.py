"""What a round of training costs beside engine and learner, and the memory of it: `python -m tests.bench.rounds`.

Some rounds of the tiny preset, as `seal-ray train` runs them. Then the requests of the last of them are sent to the
same kind of engine alone, with no environment, no Ray and no order among them but a dialogue's own: what that takes is
the engine's own time. Overhead is the share of the round that is neither this nor the learner's update.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

import torch

from policies.engine import Engine, GenRequest
from policies.engine.choice import default_kind, start_engine
from policies.engine.requests import checkpoint_shapes
from policies.prompting import ChatFormat
from policies.trajectory import Trajectory, derive_seed
from seal_ray.algorithm.config import make_config
from seal_ray.algorithm.learning.weights import full_weights
from seal_ray.algorithm.seal import Seal
from seal_ray.config import sections
from seal_ray.run.cluster import connected
from tests.bench.memory import Memory

ROUNDS = 4
GOAL_OVERHEAD, GOAL_GIB = 0.15, 6.0


def _requests(trajectory: Trajectory, form: ChatFormat, most: int) -> list[GenRequest]:
    """What the engine was asked in a dialogue, in order; budgets make no difference to what it sampled."""
    return [
        GenRequest(
            trajectory.token_ids_T[: span.begin],
            max_tokens=most,
            seed=derive_seed(trajectory.seed, place),
            stop_token_ids=form.stop_token_ids,
        )
        for place, span in enumerate(trajectory.sampled)
    ]


async def _alone(algorithm: Seal, weights: Mapping[str, torch.Tensor], dialogues: Sequence[list[GenRequest]]) -> float:
    """Seconds that an engine with these weights needs for these dialogues' requests, from an empty cache."""
    solver, settings = algorithm.solver.settings, algorithm.config.section(sections.Engine)
    model = algorithm.solver.model
    engine: Engine = await start_engine(
        default_kind(), model, context=solver.context, dtype=settings.dtype, concurrent=settings.concurrent
    )

    async def one(requests: list[GenRequest]) -> None:
        for request in requests:
            await engine.generate(request)

    try:
        await asyncio.gather(*map(one, dialogues[:16]))  # warms up
        await engine.update_weights(full_weights(weights, checkpoint_shapes(model.path), settings.dtype), 1)
        started = time.perf_counter()
        await asyncio.gather(*map(one, dialogues))
        return time.perf_counter() - started
    finally:
        await engine.close()


def main() -> None:
    config = make_config(["tiny"], overrides=["evaluation.interval=0"])
    with Memory() as memory, connected():
        algorithm = config.build_algo()
        assert isinstance(algorithm, Seal)
        weights: Mapping[str, torch.Tensor] = {}
        for number in range(1, ROUNDS + 1):
            weights = algorithm.solver.weights()  # what the round is sampled with
            started = time.perf_counter()
            result = algorithm.train()
            took = time.perf_counter() - started
            phases = {
                name.removeprefix("perf/").removesuffix("_seconds"): float(value)
                for name, value in result.items()
                if name.startswith("perf/") and name.endswith("_seconds")
            }
            print(f"round {number}: {took:.1f} s: " + ", ".join(f"{k} {v:.2f}" for k, v in phases.items()))
        played = [each for group in algorithm.last_round for each in group.trajectories]
        algorithm.stop()
    form = ChatFormat.load(algorithm.solver.model.path, algorithm.solver.model.dialect)
    dialogues = [_requests(each, form, algorithm.solver.settings.response) for each in played]
    engine = asyncio.run(_alone(algorithm, weights, dialogues))
    overhead = (took - engine - phases["learn"]) / took
    print(
        f"engine alone {engine:.2f} s of rollout {phases['rollout']:.2f} s; overhead outside engine and learner "
        f"{overhead:.1%} of the round (goal under {GOAL_OVERHEAD:.0%}); memory at most {memory.peak / 2**30:.2f} GiB "
        f"(goal {GOAL_GIB:g})"
    )


if __name__ == "__main__":
    main()
