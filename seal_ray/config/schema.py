"""Every setting of a run, by section: name, type, default, bounds and meaning.

The sections `curator` and `task_writer` are unions on `kind`: each kind has its own settings. `sections.py` makes
sections of values, `resolve.py` turns them into a `RunSpec`.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from envs.sources import GENERATED
from policies import tiny
from policies.engine import LEAST_TEMPERATURE

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
NotNegative = Annotated[float, Field(ge=0.0)]
S = TypeVar("S", bound="Section")


class Section(BaseModel):
    """A group of settings. Values are checked strictly: text is not converted to a number."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class EnvironmentSection(Section):
    """The training tasks, the rules of a dialogue, and its reward."""

    source: str = GENERATED
    """Source of the training tasks: a name, package.module:NAME, or a mixture ONE:0.75+OTHER:0.25 (docs/sources.md)."""
    split: str = "train"
    """Split that training tasks come from."""
    split_scheme: str | None = None
    """How tasks are split, or a JSON file. The benchmark has scenario and category; None is the source's default."""
    categories: Annotated[list[str], Field(min_length=1)] | None = None
    """Task categories, drawn in turn; None is all categories of the source."""
    difficulty: str | None = None
    """Difficulty of generated tasks, in training and evaluation: a code such as t2-3_c1-2_d1-3_s2-4, or long."""
    tasks: Count | None = None
    """Number of different training tasks, repeated in epochs; None is all of them, or new generated ones forever."""
    protocol: Literal["seal", "until-failure", "official"] = "seal"
    """Rules of a training dialogue; until-failure is seal, ended by the first checked turn that does not pass.
    Evaluation always uses the rules of its source."""
    reward: str = "success"
    """Reward of a dialogue: success (1 or 0), progress (share of its turns that passed), or package.module:NAME."""


class EngineSection(Section):
    """The engines that sample completions."""

    kind: Literal["auto", "vllm", "transformers"] = "auto"
    """Inference engine; auto is vLLM if it is installed."""
    dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    """Dtype of weights and computation; CPUs without instructions for half precision use the faster float32."""
    num_engines: Count = 1
    """Number of engines, each a Ray actor; each group is played on one of them."""
    concurrent: Count = 64
    """Dialogues in progress on each engine at once."""
    num_cpus_per_engine: NotNegative = 1.0
    """CPUs that Ray reserves for each engine."""
    threads: Count | None = None
    """CPU threads of each engine, or of each of its ranks; None is one, or OMP_NUM_THREADS."""
    tensor_parallel: Count = 1
    """Ranks that share an engine's model (vLLM only): num_gpus_per_engine GPUs of one machine, or processes on CPUs."""
    cache_share: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """KV cache size, as a share of what `concurrent` dialogues of full context need; in a full cache dialogues wait."""
    num_gpus_per_engine: NotNegative = 0.0
    """GPUs that Ray reserves for each engine; below 1 if a learner uses the same GPU."""
    gpu_memory_share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.9
    """Largest share of a GPU's memory for an engine's weights and cache; it must be free when the engine starts."""
    sleep: bool = False
    """Whether engines release their GPU's memory while learners compute; vLLM on GPUs only."""
    batch_invariant: bool = False
    """Whether log-probs are independent of other requests, which is slower; vLLM on GPUs only (H100 or newer)."""


class SolverSection(Section):
    """The model that plays and learns."""

    model: str = tiny.NAME
    """A model by name (docs/models.md), a Hugging Face model folder, or a hub's OWNER/NAME."""
    dialect: str | None = None
    """How the model writes tool calls; None is detected from the model (docs/solver.md)."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Dtype in which the learner computes; weights and moments are float32."""
    prompt: Count = 8192
    """Largest number of tokens of a dialogue's opening."""
    response: Count = 4096
    """Largest number of tokens of one completion."""
    context: Count = 16_384
    """Largest number of tokens of a dialogue."""
    steps: Count | None = 20
    """Largest number of completions of a dialogue; None is limited by the context alone."""
    temperature: Annotated[float, Field(ge=LEAST_TEMPERATURE)] = 1.0
    """Sampling temperature in training."""
    lora_rank: Annotated[int, Field(ge=0, le=512)] = 0
    """Rank of the LoRA adapters, for all agents; alpha is twice the rank. 0 trains all weights."""
    gradient_checkpointing: bool = False
    """Recomputes activations in the backward pass: slower, with far less memory."""


class ProposerSection(Section):
    """A language model that proposes interfaces or tasks once a window."""

    trainable: bool = False
    """Whether it learns from the rewards of its proposals."""
    model: str | None = None
    """Its model, on an engine of its own. None is the solver's model: with solver.lora_rank as an adapter on the
    solver's engines, else a copy on an engine of its own."""
    engine: Literal["auto", "vllm", "transformers"] = "auto"
    """Inference engine of a model with an engine of its own."""
    context: Count = 4096
    """Largest number of tokens of its prompt and proposal together."""
    response: Count = 512
    """Largest number of tokens of a proposal."""
    lr: NotNegative = 1e-6
    """Learning rate of its AdamW, one step a window."""
    kl: NotNegative = 0.001
    """Coefficient of the KL divergence to its first policy."""


class WindowedSection(Section):
    """Windows of an agent that proposes."""

    update_every: Count = 2
    """Rounds of a window, between two proposals; the curator's is also the time between two updates of the diagnosis
    weights."""


class CuratorSection(WindowedSection):
    """Proposes the training-time interface."""

    kind: str = "rules"
    """none, fixed (static cues), placebo (idle guidelines), rules (SEAL's released closed loop), rules-static (its base
    interface alone), llm (a language model), or package.module:NAME."""


class GuidingCuratorSection(CuratorSection):
    """A curator that shows interfaces to a part of the training rollouts."""

    pairs: bool = True
    """Whether half of each group under an arm plays the plain interface, with all rewards in one pool."""
    plain_share: Share = 0.0
    """Share of groups entirely on the plain interface at first; at least one a round is."""
    plain_share_end: Share | None = None
    """That share in the last round, reached linearly from the middle of the run; None keeps it constant."""


class InterfaceCuratorSection(GuidingCuratorSection):
    """A curator with a given interface: fixed shows it, rules adds guidelines to it."""

    interface: str | None = None
    """JSON file of the interface; None is the kind's own."""


class LLMCuratorSection(GuidingCuratorSection, ProposerSection):
    """A language model that proposes interfaces, whose arms are compared on common tasks by a posterior."""

    proposals: Count = 12
    """Proposals written at the start of a window."""
    played: Count = 3
    """Largest number of new arms that are played in a window."""
    pick: Literal["first", "likeliest", "varied"] = "first"
    """Which accepted proposals become arms: the first; those with the highest mean token log-prob; or of these the ones
    that differ most from each other and from what was tried."""
    allocation: Literal["thompson", "by_category"] = "thompson"
    """How groups are allocated to arms: by Thompson sampling, or half of them by it for the category of their task."""
    reward: str = "gain"
    """Value of an arm: gain (success minus plain success), frontier or alpha (success near one half), or
    package.module:NAME."""
    probe_points: Annotated[int, Field(ge=0)] = 0
    """Turn probes of the best proposals: turns of the last window that are sampled again under a proposal. The best by
    probe become arms, and the gain in passed turns is the reward of all. 0 leaves probes out."""
    probe_failing: Share = 0.75
    """Share of probed turns that failed in the last window; the others passed."""
    probe_budget: Share = 0.2
    """Tokens that a window's probes sample at most, by estimate, as a share of the last window's rollouts; it lowers
    probe_points."""


class TaskWriterSection(Section):
    """Writes training tasks as specifications."""

    kind: str = "none"
    """none, static (one fixed set), random, shuffled (another run's, windows shuffled: a placebo), llm (a
    language model), or package.module:NAME."""


class WritingTaskWriterSection(TaskWriterSection, WindowedSection):
    """A task writer that writes."""

    share: Share = 0.5
    """Share of training tasks that are written ones, as far as the pool has so many."""
    specifications: Count = 12
    """Specifications written at the start of a window; static writes them once."""
    depth: Count | None = None
    """Largest number of user requests of a specification; None is the task source's limit."""
    probe_rollouts: Annotated[int, Field(ge=0)] = 0
    """Rollouts of each new task at the start of a window, on the plain interface, so that each has a value before it is
    drawn; 0 for none."""


class RecordedTaskWriterSection(WritingTaskWriterSection):
    """Writes the specifications of another run."""

    recorded: str | None = None
    """Folder of that run; {seed} in its name is replaced by this run's seed."""


class LLMTaskWriterSection(WritingTaskWriterSection, ProposerSection):
    """A language model that writes specifications; if trainable, by reward-weighted regression (GenEnv)."""

    reward: str = "alpha"
    """Value of a written task: alpha (success near one half), progress (change of success on its neighbours),
    held_out_success (gain on held-out tasks), or package.module:NAME."""


class ReweightingSection(Section):
    """Diagnosis-guided advantage weights (SEAL, eq. 10-12)."""

    mode: Literal["none", "fixed", "dynamic"] = "none"
    """No weights, the table's weights, or weights that start there and follow the failure profile."""
    rho: Literal["paper", "default"] = "paper"
    """Table of label weights: SEAL's Table 6, or ours over the finer labels."""
    spurious_tool_call: Positive | None = None
    """Weight of that label instead of the table's."""
    correct_abstention: Positive | None = None
    """Weight of that label instead of the table's."""
    low: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    """Smallest weight of a trajectory, and of a label in dynamic mode."""
    high: Annotated[float, Field(ge=1.0)] = 2.0
    """Largest weight."""
    alpha: NotNegative = 1.0
    """How far the failure profile moves a dynamic weight."""
    beta: Annotated[float, Field(gt=0.0, le=1.0)] = 0.25
    """Step from a dynamic weight to its target at each update."""
    budget: Share | None = None
    """Strength of weights that are rescaled to a mean of 1; None does not rescale."""
    apply_to: Literal["all", "positive", "negative"] = "all"
    """Which advantages are weighted."""


class TrainingSection(Section):
    """GRPO, its optimizer, and checkpoints."""

    rounds: Count = 75
    """Rounds of the run; a round is one batch of rollouts and the update from it."""
    groups: Count = 32
    """Groups a round, each of one task."""
    group_size: Annotated[int, Field(ge=2)] = 8
    """Rollouts of a group, whose rewards are compared with each other."""
    dynamic_sampling: bool = False
    """Whether groups with equal rewards are replaced, up to three times `groups` in all (DAPO)."""
    min_group_completion: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    """Share of a group's rollouts that must not be lost to faults; otherwise the group is dropped."""
    minibatch_groups: Count = 8
    """Largest number of groups of a gradient step; the groups that are kept are distributed evenly."""
    epochs: Count = 1
    """Passes over a round's rollouts."""
    view: Literal["plain", "shown"] = "plain"
    """Prompts of rollouts under an interface in the update: shown, as they were sampled; or plain, the plain view of
    rollouts with a positive advantage (hint-stripped rows), and no row of the others."""
    off_policy_weight: str = "none"
    """Weight of a token of a hint-stripped row, by ρ = π_old(y | plain) / μ(y | shown): none, sqrt (√ρ from 0.2 to 1),
    truncated (ρ up to 1), or package.module:NAME."""
    advantage: str = "grpo"
    """Advantages of a group: grpo, dr-grpo (not divided by the deviation), rloo, or package.module:NAME."""
    loss: str = "grpo"
    """Loss of a token: grpo, cispo, rwr (weighted likelihood), or package.module:NAME; for a curator too."""
    lr: NotNegative = 1e-6
    """Peak learning rate of AdamW."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Learning rate after the warm-up."""
    warm_up: Annotated[int, Field(ge=0)] = 0
    """Gradient steps over which the learning rate grows."""
    adam_epsilon: Positive = 1e-8
    """ε of AdamW."""
    grad_clip: Positive = 1.0
    """Largest norm of the gradient."""
    clip_low: Positive = 0.2
    """Lower clip of the importance ratio, at 1 − clip_low."""
    clip_high: Positive = 0.2
    """Upper clip of the importance ratio, at 1 + clip_high."""
    kl: NotNegative = 0.001
    """Coefficient of the KL divergence to the reference policy; 0 needs no reference."""
    importance_cap: Positive | None = None
    """Cap of truncated importance sampling; None leaves it out."""
    ratio_tolerance: Positive | None = None
    """Largest log-ratio of learner to engine (nats, root mean square over the tokens of a round's first step); beyond
    it the run stops. None is 0.001 in float32 on CPUs, else 0.2, and no bound with staleness."""
    staleness: Annotated[int, Field(ge=0, le=1)] = 0
    """Updates by which rollouts lag behind the learner; 1 plays a round while the last is learnt."""
    microbatch_tokens: Count = 16_384
    """Tokens of one forward pass of the learner; tokens that rows of a group share count once."""
    checkpoint_every: Count = 5
    """Rounds between two checkpoints."""
    checkpoints_kept: Count = 2
    """Number of checkpoints that are kept, the newest; the others have a model, but no state to resume from."""
    trajectories_kept: Annotated[int, Field(ge=0)] | None = None
    """Dialogues in the log of each round or evaluation; None for all."""

    @property
    def max_groups(self) -> int:
        """Largest number of groups that a round plays."""
        return self.groups * (3 if self.dynamic_sampling else 1)

    @property
    def gradient_steps(self) -> int:
        """Gradient steps of the whole run, if no group is dropped."""
        return self.rounds * self.epochs * math.ceil(self.groups / self.minibatch_groups)


class EvaluationSection(Section):
    """Greedy evaluation on the plain interface, under the rules of its task source."""

    interval: Annotated[int, Field(ge=0)] = 10
    """Rounds between two evaluations; 0 for none."""
    source: str | None = None
    """Task source of the evaluation tasks; None is that of the training tasks."""
    split: str = "dev"
    """Split that evaluation tasks come from; it must hold no training task."""
    tasks: Count | None = None
    """Number of tasks, the categories in turn; None is the whole split, or 400 of an endless source."""
    suites: list[str] = Field(default_factory=lambda: ["plain"], min_length=1)
    """Evaluation suites: plain (the tasks above), and custom ones as package.module:NAME."""


class EnvRunnersSection(Section):
    """The actors that play dialogues; they hold no model."""

    num_env_runners: Annotated[int, Field(ge=0)] = 1
    """Number of env runners; with 0 the main process plays."""
    num_cpus_per_env_runner: NotNegative = 1.0
    """CPUs that Ray reserves for each env runner."""


class LearnersSection(Section):
    """The processes that compute gradients."""

    num_learners: Annotated[int, Field(ge=0)] = 0
    """Number of learner actors, each with a share of every batch; with 0 the main process learns."""
    num_gpus_per_learner: NotNegative = 0.0
    """GPUs that Ray reserves for each learner; below 1 if an engine uses the same GPU."""
    fsdp: bool = False
    """Shards weights, gradients and moments over the learners (FSDP2) instead of copying them (DDP)."""
    threads: Count | None = None
    """CPU threads of torch in each learner; None is torch's or Ray's default."""


class FaultToleranceSection(Section):
    """How much may fail before a run stops."""

    engine_timeout: Positive = 600.0
    """Seconds that an engine may take to start and to receive weights."""
    step_timeout: Positive = 60.0
    """Seconds that one step of a dialogue may take. After that the dialogue is a fault, and its env runner replaced."""
    learner_timeout: Positive = 3600.0
    """Seconds that a call of learners in processes of their own may take: the gradient steps of a round, a checkpoint.
    Learners that take longer are killed, and the run ends, or resumes by `train --max-restarts`."""
    max_fault_share: Share = 0.2
    """Largest share of a round's rollouts that may be lost to faults."""


SECTIONS: Mapping[str, type[Section]] = {
    "environment": EnvironmentSection,
    "engine": EngineSection,
    "solver": SolverSection,
    "curator": CuratorSection,
    "task_writer": TaskWriterSection,
    "reweighting": ReweightingSection,
    "training": TrainingSection,
    "evaluation": EvaluationSection,
    "env_runners": EnvRunnersSection,
    "learners": LearnersSection,
    "fault_tolerance": FaultToleranceSection,
}
KINDS: Mapping[str, Mapping[str, type[Section]]] = {
    "curator": {
        "none": CuratorSection,
        "fixed": InterfaceCuratorSection,
        "placebo": GuidingCuratorSection,
        "rules": InterfaceCuratorSection,
        "rules-static": GuidingCuratorSection,
        "llm": LLMCuratorSection,
    },
    "task_writer": {
        "none": TaskWriterSection,
        "static": WritingTaskWriterSection,
        "random": WritingTaskWriterSection,
        "shuffled": RecordedTaskWriterSection,
        "llm": LLMTaskWriterSection,
    },
}
"""Section that is a union → kind → its settings."""
