"""Every setting, by section: name, type, default, bounds and meaning; those of training are in `training.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from envs.errors import UserError, check_known, unknown_value
from envs.interface.value import MAX_GUIDELINES
from envs.sources import GENERATED
from policies import tiny
from seal_ray.config.fields import complaint, current, with_current_keys
from seal_ray.config.section import Count, NotNegative, Positive, Rank, Settings, Share, Temperature
from seal_ray.config.section import S as S
from seal_ray.config.section import Section as Section
from seal_ray.config.training import Training as Training
from seal_ray.config.writer import Writer as Writer


class Environment(Section):
    """What is played in training."""

    source: str = GENERATED
    """The task source of the training tasks, one's own as package.module:NAME, or several, each with its share, as
    ONE:0.75+OTHER:0.25; docs/sources.md lists them."""
    split: str = "train"
    """The part that training tasks come from."""
    division: str | None = None
    """How tasks are divided into parts; of the benchmark scenario, category (leaky, as published), or a JSON file."""
    categories: Annotated[list[str], Field(min_length=1)] | None = None
    """Task categories, drawn in turn; None is all of the source's."""
    difficulty: str | None = None
    """Difficulty of generated tasks, in training and evaluation: a code, for instance t2-3_c1-2_d1-3_s2-4, or long."""
    tasks: Count | None = None
    """Different training tasks, gone through in epochs; None is all of them, of generated ones new ones for ever."""
    sampler: Literal["uniform", "success"] = "uniform"
    """How they are drawn: uniform takes all as they come, success fewer of those whose success is near 0 or 1."""
    sampler_floor: Annotated[float, Field(gt=0.0, le=1.0)] = 0.2
    """The least probability with which the sampler success takes a task that comes up; 1 takes all."""
    protocol: Literal["seal", "until-failure", "official"] = "seal"
    """Rules of a training dialogue; until-failure is seal, ended by the first turn that is checked and does not pass.
    Evaluation always plays those of its source, the official ones."""
    reward: str = "success"
    """Reward of a dialogue: success (1 or 0), progress (share of its turns that were done), or one's own."""
    reward_settings: Settings = Field(default_factory=dict)
    """Settings of a reward of one's own."""
    abstention_weight: NotNegative = 0.5
    """Weight of a turn without ground truth in the progress reward."""


class Engine(Section):
    """Where completions are sampled."""

    kind: Literal["auto", "vllm", "transformers"] = "auto"
    """What serves the model; auto is vLLM where it is installed."""
    dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    """What the engines compute in, and hold the weights in. On a CPU that has no products in a half type they take
    float32, which is many times as fast there."""
    num_engines: Count = 1
    """Engines, each an actor of its own; a group is played on one of them."""
    concurrent: Count = 64
    """Dialogues under way on each engine at once."""
    num_cpus_per_engine: NotNegative = 1.0
    """CPUs that Ray sets aside for each engine."""
    threads: Count | None = None
    """Threads that each engine computes with on a CPU; None is one, or as many as the environment says."""
    cache_share: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """The share of a cache that would hold so many dialogues at their full context. Less takes less memory; where
    dialogues fill it, some wait, and are computed again."""
    num_gpus_per_engine: NotNegative = 0.0
    """GPUs that Ray sets aside for each engine; below 1 where a learner is on the same GPU."""
    gpu_memory_share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.9
    """Share of a GPU's memory that an engine takes at most, weights and cache; less where a learner is on the same GPU.
    So much must be free when it starts."""


class Solver(Section):
    """The model that plays and learns."""

    model: str = tiny.NAME
    """A model by name (docs/models.md): tiny, tiny-rare, smollm2-135m-warm, a Hugging Face model folder, or a hub's
    OWNER/NAME."""
    dialect: str | None = None
    """How it writes calls; None is what the model says or suggests (docs/solver.md)."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """What the learner computes in; float32 on a CPU that has no products in bfloat16. Its weights and moments always
    are float32."""
    prompt: Count = 8192
    """Tokens of a dialogue's opening at most."""
    response: Count = 4096
    """Tokens of one completion at most."""
    context: Count = 16_384
    """Tokens of a dialogue at most."""
    steps: Count | None = 20
    """Completions of a dialogue at most; None is no limit but the context."""
    temperature: Temperature = 1.0
    """Temperature of the sampling in training."""
    lora_rank: Rank = 0
    """Rank of the LoRA adapter that learns; 0 trains all weights."""
    lora_alpha: Count = 32
    """Scale of the LoRA adapter: what it adds counts lora_alpha / lora_rank."""
    lora_targets: list[str] = Field(
        default_factory=lambda: ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        min_length=1,
    )
    """Names of the model's layers that the LoRA adapter is added to."""
    gradient_checkpointing: bool = False
    """Computes a layer's activations again in the backward pass instead of keeping them: slower, far less memory."""


class Curator(Section):
    """Who proposes the training-time interface, and how much of the training sees it."""

    kind: str = "rules"
    """none, fixed, placebo (idle guidelines), rules (the released closed loop), llm (a frozen language model),
    coevolved (one that learns), or one's own."""
    kind_settings: Settings = Field(default_factory=dict)
    """Settings of a curator of one's own."""
    interface: str | None = None
    """JSON file of the interface that fixed shows and that rules adds guidelines to; None is the kind's own."""
    update_every: Count = 2
    """Rounds between two proposals."""
    min_count: Count = 8
    """Turns with a label in the window before its guideline is considered."""
    min_prevalence: Share = 0.10
    """Share of a label in all failed turns of the window before its guideline is considered."""
    max_reward: Share = 0.6
    """Mean reward of the rollouts with a label, from which on its guideline is left out."""
    keep: Annotated[int, Field(ge=0, le=MAX_GUIDELINES)] = 3
    """Guidelines that the rules show at once; 0 shows their base interface unchanged."""
    plain_share: Share = 0.25
    """Share of groups on the plain interface at first; one a round always is, so that hint-off success is known."""
    plain_share_end: Share | None = None
    """That share at the end of the fade-out; None leaves it as it is."""
    fade_from: Share = 0.5
    """Share of the run after which the fade-out begins; it is linear, and done in the last round. There is none where
    that comes no sooner than the last round, as in a run of two."""
    pairs: bool = False
    """Whether a group under an interface that is not plain is a pair: half of its dialogues plain, half under it."""
    show: Literal["always", "when_failing"] = "always"
    """When the second half of a pair is played: always, or when_failing, only where all plain dialogues fail."""
    model: str | None = None
    """Model that writes proposals. None is the solver's: as an adapter on its engines where the solver is one too, else
    on an engine of its own."""
    engine: Literal["auto", "vllm", "transformers"] = "auto"
    """What serves a curator with an engine of its own."""
    context: Count = 4096
    """Tokens of its prompt and proposal together at most."""
    response: Count = 512
    """Tokens of a proposal at most."""
    proposals: Count = 3
    """Proposals that are written for one profile."""
    played: Count | None = None
    """Arms beside the plain one and the incumbent at most: accepted proposals of different text, and with the posterior
    one of an earlier window. None is all proposals."""
    pick: Literal["first", "likeliest", "varied"] = "first"
    """Which of the proposals are played where more are written: the first ones; those whose tokens its writer found
    likeliest in the mean, which leaves out what came of unlucky draws; or of these those that say something else than
    each other and than what was tried."""
    extends: bool = False
    """Whether a language model's proposal is shown with what is in force, its cues and guidelines added to these; else
    it is shown in its place."""
    tasks: Literal["drawn", "common"] = "drawn"
    """Tasks of a window's arms: drawn is one of its own for each group (as published), common the same for all arms."""
    share_out: Literal["turns", "thompson", "by_category"] = "turns"
    """How groups are shared out over arms: in turn, by draws from the posterior (Thompson sampling), or half of them in
    turn and half by draws of what arms do for the category of the group's task."""
    guideline_tokens: Count = 256
    """Tokens that a proposal may add to the solver's prompt as guidelines."""
    retries: Annotated[int, Field(ge=0)] = 2
    """Times that a text which is no interface is sampled again, where the engine has no grammar."""
    temperature: Temperature = 1.0
    """Temperature at which proposals are sampled."""
    reward: str = "gain"
    """Value of an arm: gain (success above the plain interface), frontier or alpha (success near one half: 4p(1-p),
    without its bias in few rollouts, or GenEnv's formula), transfer (what training under it does for the plain
    interface), internalised (what it did), or one's own."""
    reward_settings: Settings = Field(default_factory=dict)
    """Settings of a curator's reward of one's own."""
    choose: Literal["margin", "posterior"] = "margin"
    """Which arm takes the incumbent's place: margin looks at a window's values alone (as published), posterior asks for
    a probability, from all windows."""
    margin: NotNegative = 0.05
    """How far the value of a proposal must lie above that of the incumbent to take its place."""
    promote_at: Annotated[float, Field(ge=0.5, lt=1.0)] = 0.8
    """Probability that it does, above which the posterior has an arm take the incumbent's place."""
    prior: Positive = 0.1
    """Standard deviation of an arm's value in the posterior before it was played; the mean is 0, the plain arm's."""
    discount: Annotated[float, Field(gt=0.0, le=1.0)] = 0.9
    """What a window still counts in the posterior one window later."""
    noise: Literal["pooled", "by_category"] = "pooled"
    """Variance of a rollout in the posterior: that of all tasks, or one for each category, drawn towards it."""
    advantage: Literal["group", "centred"] = "group"
    """Advantages of proposals: group is GRPO's (as published), centred their value less the mean, undivided."""
    rejection_step: Positive = 0.1
    """How far a rejected proposal lies below the worst accepted one where advantages are centred."""
    lora_rank: Rank = 0
    """Rank of the adapter of a curator that learns on an engine of its own; 0 trains all weights. On the solver's
    engines its adapter has the solver's rank."""
    lr: NotNegative = 1e-6
    """Learning rate of the curator's AdamW."""
    kl: NotNegative = 0.001
    """Coefficient of the KL divergence to the curator's first policy."""


class Diagnosis(Section):
    """What is kept of the diagnoses."""

    trajectories_kept: Annotated[int, Field(ge=0)] = 8
    """Trajectories of each round written to the run's folder."""


class Reweighting(Section):
    """Diagnosis-guided advantage weights (SEAL eq. 10-12)."""

    mode: Literal["none", "fixed", "dynamic"] = "fixed"
    """No weights, the table's, or weights that start there and follow the failure profile."""
    rho: Literal["paper", "default"] = "paper"
    """The table of label weights: SEAL's Table 6, or ours over the finer labels."""
    overrides: dict[str, Positive] = Field(default_factory=dict)
    """Label → weight, instead of the table's."""
    low: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    """The smallest weight of a trajectory, and of a label in dynamic mode."""
    high: Annotated[float, Field(ge=1.0)] = 2.0
    """The largest."""
    alpha: NotNegative = 1.0
    """How far the failure profile moves a dynamic weight."""
    beta: Annotated[float, Field(gt=0.0, le=1.0)] = 0.25
    """How fast: the step from a dynamic weight to its target at each update."""
    confidence: Count = 32
    """Turns with a label at which a dynamic weight moves in full."""
    budget: Share | None = None
    """Strength of weights that are rescaled to a mean of 1; None leaves them as they are."""
    apply_to: Literal["all", "positive", "negative"] = "all"
    """Which advantages are weighted."""
    warm_up: Annotated[int, Field(ge=0)] = 0
    """Rounds over which the weights grow from 1."""


class Evaluation(Section):
    """What is measured, always on the plain interface and under the protocol of its source, the official one."""

    interval: Annotated[int, Field(ge=0)] = 10
    """Rounds between two evaluations; 0 for none."""
    source: str | None = None
    """The task source that evaluation tasks come from; None is that of training tasks."""
    split: str = "dev"
    """The part that evaluation tasks come from; it must hold no training task."""
    tasks: Count | None = None
    """Number of tasks, the categories in turn; None is the whole part, or 400 where they have no end."""
    suites: list[str] = Field(default_factory=lambda: ["plain"], min_length=1)
    """What is evaluated: plain (the tasks above), and suites of one's own beside it."""
    suites_settings: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Suite → its settings, of suites of one's own."""
    temperature: NotNegative = 0.0
    """Temperature of the sampling in evaluation; 0 is greedy."""


class EnvRunners(Section):
    """The actors that play dialogues; they have no model."""

    num_env_runners: Annotated[int, Field(ge=0)] = 1
    """Actors that play; with 0 the main process does."""
    num_cpus_per_env_runner: NotNegative = 1.0
    """CPUs that Ray sets aside for each env runner."""


class Learners(Section):
    """Where the gradient is computed."""

    num_learners: Annotated[int, Field(ge=0)] = 0
    """Actors that learn, each from a share of every batch; with 0 the main process does."""
    num_cpus_per_learner: NotNegative = 1.0
    """CPUs that Ray sets aside for each learner."""
    num_gpus_per_learner: NotNegative = 0.0
    """GPUs that Ray sets aside for each learner; below 1 where an engine is on the same GPU."""
    fsdp: bool = False
    """Shards weights, gradients and moments over the learners (FSDP2) instead of copying them (DDP)."""
    threads: Count | None = None
    """CPU threads of torch in each process that learns; None leaves them to torch and Ray."""


class FaultTolerance(Section):
    """How much may go wrong before a run stops."""

    restart_failed_env_runners: bool = True
    """Whether an env runner that dies is started again."""
    max_num_env_runner_restarts: Count = 1000
    """Restarts of each env runner."""
    max_engine_restarts: Annotated[int, Field(ge=0)] = 10
    """Restarts of each engine."""
    engine_timeout: Positive = 600.0
    """Seconds that an engine may take to start and hold the weights."""
    retries: Annotated[int, Field(ge=0)] = 1
    """Times that a dialogue is played again after a fault of the environment."""
    step_timeout: Positive = 60.0
    """Seconds that one step of a dialogue may take in the environment. Steps take milliseconds, a second at most; one
    that does not come back ends its dialogue as a fault, its env runner is replaced, and the other dialogues are played
    again with the same seeds."""
    max_fault_share: Share = 0.2
    """Share of a round's dialogues that may be lost to faults."""


SECTIONS: Mapping[str, type[Section]] = {
    "environment": Environment,
    "engine": Engine,
    "solver": Solver,
    "curator": Curator,
    "writer": Writer,
    "diagnosis": Diagnosis,
    "reweighting": Reweighting,
    "training": Training,
    "evaluation": Evaluation,
    "env_runners": EnvRunners,
    "learners": Learners,
    "fault_tolerance": FaultTolerance,
}

_NEVER_IN_EVALUATION = ("interface", "curator", "guidelines", "schema_cues", "recovery", "protocol")


def section_name(kind: type[Section]) -> str:
    return next(name for name, section in SECTIONS.items() if section is kind)


def check_key(section: str, key: str, *, more: Iterable[str] = ()) -> None:
    """Raises `UserError` with the nearest right name for an unknown section or key; `more` keys are known too."""
    check_known("config section", SECTIONS, section)
    key = current(section, key)
    if section == "evaluation" and key in _NEVER_IN_EVALUATION:
        raise UserError(
            f"evaluation.{key}: evaluation always plays the plain interface by its source's rules; leave it out."
        )
    known = list(dict.fromkeys((*SECTIONS[section].model_fields, *more)))
    if key in known:
        return
    others = [f"{name}.{key}" for name, kind in SECTIONS.items() if key in kind.model_fields]
    if others:
        raise UserError(f"{section}.{key}: there is no such key; did you mean {' or '.join(others)}?")
    raise unknown_value(f"config key of {section}", key, known)


def make_section(section: str, values: Mapping[str, Any]) -> Section:
    """The section with these values. Raises `UserError` naming the key, the value and what is allowed."""
    values = with_current_keys(section, values)
    for key in values:
        check_key(section, key)
    try:
        return SECTIONS[section].model_validate(dict(values))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise complaint(section, SECTIONS[section].model_fields, values, problem) from None


def section_of(kind: type[S], values: Mapping[str, Any]) -> S:
    found = make_section(section_name(kind), values)
    assert isinstance(found, kind)
    return found
