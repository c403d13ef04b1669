"""The settings of the section `writer`: who writes training tasks, how many are played, and how a writer learns."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from seal_ray.config.section import Count, NotNegative, Rank, Section, Settings, Share, Temperature


class Writer(Section):
    """Who writes training tasks, as specifications, and how much of the training plays them."""

    kind: str = "none"
    """none, static (a fixed set), random (specifications at random), shuffled (those of another run, each window those
    of another window: a placebo), llm (a frozen language model), learning (one that learns), or one's own."""
    share: Share = 0.5
    """Share of training tasks that are written ones at first, as far as the pool has so many."""
    share_end: Share | None = None
    """That share at the end of the run; None leaves it as it is."""
    share_from: Share = 0.0
    """Share of the run after which it moves to its end, linearly."""
    update_every: Count = 2
    """Rounds between two times that tasks are written, and at whose end the writer learns: a window."""
    specifications: Count = 12
    """Specifications that are written for one profile; static writes them once."""
    recorded: str | None = None
    """Folder of the run whose specifications shuffled writes; {seed} in its name stands for the run's own seed."""
    depth: Count | None = None
    """Requests of the user that a specification may have at most; None is what the task source allows."""
    capacity: Count = 256
    """Written tasks that the pool holds at most."""
    filtering: Annotated[float, Field(ge=0.0, lt=0.5)] = 0.1
    """Share of the played tasks that are not drawn again at either end, the easiest and the hardest."""
    discount: Annotated[float, Field(gt=0.0, le=1.0)] = 0.9
    """What a rollout still counts in a task's success one window later."""
    max_age: Count | None = None
    """Windows after which a written task goes; None keeps it while there is room."""
    model: str | None = None
    """Model that writes specifications, for instance tiny-writer, on an engine of its own. None is the solver's: as an
    adapter on its engines where the solver is one too, else on an engine of its own."""
    engine: Literal["auto", "vllm", "transformers"] = "auto"
    """What serves a writer with an engine of its own."""
    context: Count = 4096
    """Tokens of its prompt and specification together at most."""
    response: Count = 512
    """Tokens of a specification at most."""
    retries: Annotated[int, Field(ge=0)] = 2
    """Times that a text which is no specification is sampled again, where the engine has no grammar."""
    temperature: Temperature = 1.0
    """Temperature at which specifications are sampled."""
    reward: str = "alpha"
    """Value of a written task: alpha (GenEnv's, for a success near one half), progress (change of success on its
    neighbours), probe (gain on held-out tasks), or one's own."""
    reward_settings: Settings = Field(default_factory=dict)
    """Settings of the reward: alpha and beta of alpha, near of progress, or those of one's own."""
    probes: Count = 16
    """Held-out tasks that the reward probe plays at the begin and the end of each window."""
    update: str = "grpo"
    """How a writer learns: grpo, as a curator does; rwr, reward-weighted regression as GenEnv has it; or one's own."""
    update_settings: Settings = Field(default_factory=dict)
    """Settings of the update: advantage and rejection_step of grpo, reward_temperature of rwr, or those of one's
    own."""
    lora_rank: Rank = 0
    """Rank of the adapter of a writer that learns on an engine of its own; 0 trains all weights. On the solver's
    engines its adapter has the solver's rank."""
    lr: NotNegative = 1e-6
    """Learning rate of the writer's AdamW."""
    kl: NotNegative = 0.001
    """Coefficient of the KL divergence to the writer's first policy."""
