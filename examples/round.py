"""One round of SEAL from top to bottom, without Ray, RLlib or vLLM: `python examples/round.py`, a minute on two cores.

A solver plays groups of dialogues, an executable verifier rewards them, each turn gets a label, labels weigh the
advantages of GRPO, and one gradient step follows. Then the same dialogues are played again with the new weights. The
system does the same in `seal_ray/algorithm/`, on Ray's actors. Letters at the end of names are shapes: `_G` members of
a group, `_T` tokens of a trajectory, `_M` sampled tokens of a batch.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import torch
from transformers import AutoModelForCausalLM

from envs.dialogue import Protocol
from envs.interface import Interface
from envs.sources import GENERATED, get_source
from policies.engine.choice import start_engine
from policies.engine.requests import checkpoint_shapes
from policies.models import open_model
from policies.prompting import ChatFormat
from policies.rollouts import RolloutJob, Rollouts
from policies.solver import Budgets, Solver
from policies.trajectory import Trajectory, derive_seed
from seal_ray.config.schema import ReweightingSection
from seal_ray.grpo.advantages import group_advantages
from seal_ray.grpo.attention import choose_attention
from seal_ray.grpo.forward import token_logprobs
from seal_ray.grpo.losses import GRPOLoss, global_mean
from seal_ray.grpo.packing import Row, collate, row_of
from seal_ray.grpo.reweighting import RHO_PAPER, labels_of, reweighted

SEED, GROUPS, GROUP_SIZE, LEARNING_RATE = 0, 8, 8, 3e-4
BUDGETS = Budgets(prompt=2048, response=192, context=3072, steps=20)
GUIDED = Interface(guidelines=("Call nothing when a needed value is missing; ask for it instead.",))
"""What the second half of the groups is shown, on the same tasks. A curator would propose it from earlier failures."""


def jobs_of_round() -> list[list[RolloutJob]]:
    """Tasks, interfaces and seeds: a group is one task under one interface, played with several seeds."""
    groups = []
    source = get_source(GENERATED)
    pool = source.pool("train")
    for number in range(GROUPS):
        task = source.task(pool.task_id(number % (GROUPS // 2)))
        interface = Interface.plain() if number < GROUPS // 2 else GUIDED
        seeds = [derive_seed(SEED, number, member) for member in range(GROUP_SIZE)]
        groups.append([RolloutJob(task, seed, interface, Protocol.SEAL) for seed in seeds])
    return groups


async def play(rollouts: Rollouts, groups: list[list[RolloutJob]]) -> list[list[Trajectory]]:
    """Plays all dialogues side by side. Each is the same whenever it is played with the same weights."""
    jobs = [job for group in groups for job in group]
    played = {place: trajectory async for place, trajectory in rollouts.play(jobs)}
    members = iter(played[place] for place in range(len(jobs)))
    return [[next(members) for _ in group] for group in groups]


def rows_of(groups: list[list[Trajectory]]) -> list[list[Row]]:
    """Rewards → advantages within the group → weights by diagnosis → rows for the learner."""
    rows = []
    for trajectories in groups:
        advantages_G = group_advantages([each.reward for each in trajectories])
        if advantages_G is None:  # all succeeded, or all failed: nothing to compare
            continue
        labels_G = [labels_of(each.diagnosis, "paper") for each in trajectories]
        weighted_G, _ = reweighted(advantages_G, labels_G, ReweightingSection(), RHO_PAPER)
        rows.append([row_of(each, float(advantage)) for each, advantage in zip(trajectories, weighted_G, strict=True)])
    return rows


def learn(model: torch.nn.Module, groups: list[list[Row]]) -> tuple[float, float]:
    """One step of AdamW on the clipped loss. Returns the loss, and how far the first ratio is from 1."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, eps=1e-5)
    loss_of = GRPOLoss(GRPOLoss.Settings(kl=0.0))
    tokens = sum(row.sampled_tokens for group in groups for row in group)
    loss, furthest = 0.0, 0.0
    for group in groups:  # micro-batches, whose gradients add up
        packed = collate([group])  # tokens that its rows share are computed once
        logprobs_M = token_logprobs(model, packed)
        losses = loss_of(logprobs_M, packed.sampled_logprobs_M, packed.advantages_M)
        global_mean(losses.loss_sum, tokens).backward()  # type: ignore[no-untyped-call]
        loss += losses.sums.loss / tokens
        furthest = max(furthest, losses.sums.ratio_max - 1, 1 - losses.sums.ratio_min)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss, furthest


def show(title: str, groups: list[list[Trajectory]]) -> None:
    """Success by what was shown, and the labels of all turns."""
    half = len(groups) // 2
    for name, part in (("plain", groups[:half]), ("guided", groups[half:])):
        members = [each for group in part for each in group]
        labels = Counter(str(label) for each in members for label in each.diagnosis.labels)
        success = sum(each.reward for each in members) / len(members)
        print(f"{title:7} {name:7} success {success:5.1%}  {', '.join(f'{k} {v}' for k, v in labels.most_common(4))}")


async def main() -> None:
    folder = open_model("tiny")
    model = AutoModelForCausalLM.from_pretrained(folder.path, dtype=torch.float32)
    model.set_attn_implementation(choose_attention(model.config, model.device, half=False))
    engine = await start_engine("transformers", folder, context=BUDGETS.context, dtype="float32", concurrent=64)
    try:
        rollouts = Rollouts(Solver(engine, ChatFormat.load(folder.path, folder.dialect), BUDGETS))
        jobs = jobs_of_round()
        before = await play(rollouts, jobs)
        show("before", before)

        groups = rows_of(before)
        loss, furthest = learn(model, groups)
        rows = [row for group in groups for row in group]
        tokens = sum(row.sampled_tokens for row in rows)
        print(f"learnt from {len(rows)} of {GROUPS * GROUP_SIZE} dialogues, {tokens} sampled tokens")
        print(f"loss {loss:.4f}; the engine's and the learner's probabilities differed by {furthest:.1e} at most")

        state = model.state_dict()
        await engine.update_weights({name: state[name] for name in checkpoint_shapes(folder.path)}, version=1)
        show("after", await play(rollouts, jobs))
    finally:
        await engine.close()


if __name__ == "__main__":
    asyncio.run(main())
