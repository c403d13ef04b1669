"""The settings of the section `training`: GRPO, what it learns from, and its optimizer."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from seal_ray.config.section import Count, NotNegative, Positive, Section, Settings, Share


class Training(Section):
    """GRPO and its optimizer."""

    rounds: Count = 75
    """Length of the run; a round is one batch of rollouts and the update from it."""
    groups: Count = 32
    """Groups a round, each of one task."""
    group_size: Annotated[int, Field(ge=2)] = 8
    """Dialogues of a group: one task under one interface, or a pair's, their rewards compared with each other."""
    fill: Literal["drop", "resample"] = "drop"
    """What becomes of groups whose rewards are all equal, which teach nothing: drop leaves them out, resample plays
    new groups in their place until as many teach (DAPO)."""
    fill_limit: Count = 3
    """Groups that resample plays in a round at most, as a multiple of the groups a round."""
    minibatch_groups: Count = 8
    """Groups a gradient step, at most; those that teach are shared out evenly."""
    epochs: Count = 1
    """Times that a round's rollouts are learnt from."""
    view: Literal["plain", "shown"] = "shown"
    """What a rollout under an interface that is not plain is trained on: shown, the prompts that it was sampled with;
    or plain, where its advantage is positive, the plain prompts in their place (an anchored row), and else not at
    all."""
    anchor_weight: str = "one"
    """Weight of a token of an anchored row, by its log-probs on the plain prompts and as sampled: one, shaped,
    truncated, or one's own."""
    anchor_weight_settings: Settings = Field(default_factory=dict)
    """Settings of the anchor weight: low of shaped, or those of one's own."""
    anchor_share: NotNegative = 1.0
    """Factor of the advantages of anchored rows at first; at 0 there are none."""
    anchor_share_end: NotNegative | None = None
    """That factor at the end of the run; None leaves it as it is."""
    anchor_cap: Positive | None = None
    """Largest advantage of an anchored row at first, before the factor; None leaves it out."""
    anchor_cap_end: Positive | None = None
    """That cap at the end of the run; None leaves it as it is."""
    anchor_fade_from: Share = 0.5
    """Share of the run after which factor and cap move to their ends, linearly."""
    internalised: bool = True
    """Whether the log-probs of anchored rows are measured after the round too, with another forward pass over them."""
    baseline: str = "mean"
    """What is subtracted from a group's rewards: mean or pooled (that of the whole group), plain (that of its plain
    rollouts), leave-one-out (RLOO), or one's own."""
    baseline_settings: Settings = Field(default_factory=dict)
    """Settings of a baseline of one's own."""
    advantage: str = "grpo"
    """What they are divided by: grpo (their deviation), dr-grpo (nothing), or one's own."""
    advantage_settings: Settings = Field(default_factory=dict)
    """Settings of the advantage: epsilon of grpo, or those of one's own."""
    loss: str = "grpo"
    """Loss of a token: grpo, cispo, rwr (weighted regression), or one's own, for the curator too. Keys that it does not
    use have no effect."""
    loss_settings: Settings = Field(default_factory=dict)
    """Settings of a loss of one's own."""
    lr: NotNegative = 1e-6
    """Learning rate of AdamW at its highest."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Course of the rate after the warm-up; linear and cosine reach 0 at the end only where all groups teach."""
    warm_up: Annotated[int, Field(ge=0)] = 0
    """Gradient steps over which the learning rate grows."""
    weight_decay: NotNegative = 0.0
    """AdamW's decay of the weights."""
    adam_epsilon: Positive = 1e-8
    """ε of AdamW: weights whose gradients are small beside it are moved little, else every one by about the rate."""
    grad_clip: Positive = 1.0
    """Largest norm of the gradient."""
    clip_low: Positive = 0.2
    """ε of GRPO's clipping below: ratios under 1 − ε teach nothing more where the advantage is negative."""
    clip_high: Positive = 0.2
    """ε of GRPO's clipping above: ratios over 1 + ε teach nothing more where the advantage is positive."""
    dual_clip: Annotated[float, Field(gt=1.0)] | None = 10.0
    """Largest ratio that counts where the advantage is negative; None leaves it out."""
    kl: NotNegative = 0.001
    """Coefficient of the KL divergence to the reference policy; 0 needs none."""
    importance_cap: Positive | None = None
    """Cap of truncated importance sampling; None leaves it out."""
    ratio_tolerance: Positive | None = None
    """Log-ratio of learner to sampler (nats, root mean square over the tokens of a round's first step) at which the run
    stops; None is 0.001 where both are set to float32 and no GPU serves, else 0.2."""
    microbatch_tokens: Count = 16_384
    """Tokens that go through the learner's model at once, those that a group's rows share once; a longer dialogue goes
    alone."""
    group_floor: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    """Share of a group's dialogues that must have been played; a smaller group is dropped."""
    checkpoint_every: Count = 5
    """Rounds between two checkpoints."""
    checkpoints_kept: Count = 2
    """Newest checkpoints that are kept."""

    @property
    def most_groups(self) -> int:
        """Groups that a round plays at most."""
        return self.groups * (self.fill_limit if self.fill == "resample" else 1)

    @property
    def gradient_steps(self) -> int:
        """Gradient steps of the whole run, where no group is dropped."""
        return self.rounds * self.epochs * math.ceil(self.groups / self.minibatch_groups)
