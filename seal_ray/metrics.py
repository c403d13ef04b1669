"""All metrics of a run: name, unit and meaning."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from envs.diagnosis import Label
from envs.errors import UserError, unknown_value
from envs.sources import known_sources
from envs.task import Category, sorted_categories
from policies.plain_view import NoView

MAX_ARMS = 16
"""Number of arms of a window with separate metrics."""
PLACEHOLDERS: Mapping[str, tuple[str, ...]] = {
    "CATEGORY": tuple(map(str, Category)),
    "REASON": tuple(map(str, NoView)),
    "ARM": tuple(map(str, range(1, MAX_ARMS + 1))),
    "LABEL": (*Label, "empty_turn_model_response", "instance_mismatch"),  # two labels of SEAL's Table 6 only
}
"""Placeholder at the end of a metric's name → its values. A custom source can have other categories."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, or a family of metrics if the name ends in a placeholder in capitals."""

    name: str
    unit: str
    meaning: str

    def names(self) -> Iterator[str]:
        """The names of the family; a single name without a placeholder."""
        start, _, last = self.name.rpartition("/")
        if last in PLACEHOLDERS:
            yield from (f"{start}/{value}" for value in PLACEHOLDERS[last])
        else:
            yield self.name


METRICS = (
    Metric("round", "count", "Rounds finished, this one included; 0 before the first."),
    Metric("solver/success", "share", "Success of all training rollouts, under any interface."),
    Metric("solver/success_plain", "share", "Success of the training rollouts on the plain interface (hint-off)."),
    Metric("solver/success_shown", "share", "Success of the training rollouts under an interface that is not plain."),
    Metric("solver/success/CATEGORY", "share", "Success of the training rollouts of one category."),
    Metric("solver/reward", "reward", "Mean reward of the training rollouts."),
    Metric("solver/groups", "count", "Groups played."),
    Metric("solver/groups_shown", "count", "Groups with rollouts under an interface that is not plain; pairs count."),
    Metric("solver/groups_replaced", "count", "Groups played instead of groups with equal rewards."),
    Metric("solver/waves", "count", "Waves in which the groups were played; 1 if none was replaced."),
    Metric("solver/groups_kept", "count", "Groups that the learner got."),
    Metric("solver/groups_dropped_equal", "count", "Groups left out since all their rewards are equal."),
    Metric("solver/groups_dropped_short", "count", "Groups left out since faults left them too few rollouts."),
    Metric("solver/groups_dropped_unseen", "count", "Groups left out since no rollout of theirs can be learnt from."),
    Metric("solver/views", "count", "Rollouts under an interface that is not plain that have a plain view."),
    Metric("solver/views/REASON", "count", "Such rollouts without a plain view, by the reason."),
    Metric("solver/hint_stripped_rows", "count", "Hint-stripped rows: rollouts learnt from on their plain view."),
    Metric("solver/hint_stripped_tokens", "tokens", "Their sampled tokens, once for each time they were learnt from."),
    Metric("solver/hint_stripped_ratio_first", "ratio", "Their mean importance ratio at the first step; 0 if none."),
    Metric("solver/hint_stripped_clip_fraction", "share", "Their sampled tokens whose importance ratio was clipped."),
    Metric("solver/off_policy_weight", "factor", "Mean off-policy weight of their sampled tokens."),
    Metric("solver/internalised_before", "nats", "Plain less shown log-prob of these rows before the round, a token."),
    Metric("solver/internalised_after", "nats", "The same after the round."),
    Metric("solver/internalised_before/ARM", "nats", "The same before the round, of the rows of an arm of the window."),
    Metric("solver/internalised_after/ARM", "nats", "The same after the round."),
    Metric("solver/rollouts", "count", "Rollouts finished."),
    Metric("solver/left_out", "count", "Rollouts that a custom reward left out."),
    Metric("solver/tasks_seen", "count", "Different tasks that rollouts were played on since the run began."),
    Metric("solver/tokens_sampled", "tokens", "Tokens that the solver sampled."),
    Metric("solver/steps", "count", "Gradient steps."),
    Metric("solver/tokens", "tokens", "Sampled tokens that were learnt from, each as often as it was."),
    Metric("solver/loss", "nats", "GRPO loss, mean over the sampled tokens of all steps."),
    Metric(
        "solver/kl",
        "nats",
        "KL to the reference policy (k3), mean over sampled tokens of rows that are not hint-stripped.",
    ),
    Metric("solver/clip_fraction", "share", "Sampled tokens whose importance ratio was clipped."),
    Metric("solver/capped_fraction", "share", "Sampled tokens whose importance weight was capped."),
    Metric("solver/kl_sampler", "nats", "KL divergence of the sampler to the learner (k3), mean over sampled tokens."),
    Metric("solver/ratio_first", "ratio", "Mean importance ratio at the first mini-batch: 1; 0 without sampled rows."),
    Metric("solver/ratio_first_error", "nats", "Root mean square log-ratio of a token at the first mini-batch."),
    Metric("solver/gradient_norm", "norm", "Norm of the last step's gradient, before clipping."),
    Metric("solver/learning_rate", "rate", "Learning rate of the last optimizer step."),
    Metric("solver/out_of_memory", "count", "Steps since the start that were repeated with smaller micro-batches."),
    Metric("solver/gpu_memory_gib", "GiB", "Peak GPU memory of the first learner's tensors; 0 on a CPU."),
    Metric("solver/weight_mean", "factor", "Mean diagnosis weight of the advantages."),
    Metric("solver/weight_max", "factor", "Largest diagnosis weight of an advantage."),
    Metric("diagnosis/share/LABEL", "share", "Turns of the training rollouts with this label."),
    Metric("diagnosis/rho/LABEL", "factor", "Weight of this label in this round."),
    Metric("diagnosis/faults", "count", "Dialogues lost to faults."),
    Metric("interface/guidelines", "count", "Guidelines of the incumbent interface."),
    Metric("interface/changed", "0 or 1", "Whether the incumbent interface differs from the round before."),
    Metric("interface/plain_share", "share", "Groups on the plain interface only."),
    Metric("curator/proposals", "count", "Interfaces that the curator proposed."),
    Metric("curator/rejections", "count", "Proposals that were rejected."),
    Metric("curator/reward", "curator.reward", "Mean reward of the window's proposals, at its end."),
    Metric("curator/reward_best", "curator.reward", "The best proposal's."),
    Metric("curator/promoted", "0 or 1", "Whether another arm replaced the incumbent at the window's end."),
    Metric("curator/arms", "count", "Arms of a window that begins, without the plain one."),
    Metric("curator/gain", "curator.reward", "Posterior mean of the incumbent's value, at the window's end."),
    Metric("curator/gain_error", "curator.reward", "Standard deviation of the same."),
    Metric("curator/better", "probability", "Largest probability that an arm is better than the incumbent."),
    Metric("curator/entropy", "nats", "Mean −log p of a token of the window's proposals: the curator's entropy."),
    Metric("curator/probes", "count", "Proposals that turn probes scored."),
    Metric("curator/probe_tokens", "tokens", "Tokens that turn probes sampled."),
    Metric("curator/probe_gain", "difference", "Gain over the plain interface in probed turns, mean over proposals."),
    Metric("curator/credit", "difference", "The same from the probes of all windows (posterior mean)."),
    Metric("curator/credit_best", "difference", "The best proposal's."),
    Metric("curator/helping", "share", "Probed proposals whose posterior gain is above 0 by its own error."),
    Metric("curator/loss", "loss", "Loss of the curator's update."),
    Metric("curator/kl", "nats", "KL of the curator from its first policy, a token."),
    Metric("curator/ratio_first_error", "nats", "As the solver's, of the curator's update."),
    Metric("curator/gradient_norm", "norm", "Norm of the curator's gradient, before clipping."),
    Metric("curator/learning_rate", "rate", "Learning rate of the curator's step."),
    Metric("task_writer/proposals", "count", "Specifications of tasks that the task writer wrote."),
    Metric("task_writer/rejections", "count", "Rejected ones: unreadable, known, too deep, or without a task."),
    Metric("task_writer/groups", "count", "Groups that played written tasks."),
    Metric("task_writer/share", "share", "The same, of all groups."),
    Metric("task_writer/probe_tokens", "tokens", "Tokens of probes of new tasks, and of held-out tasks."),
    Metric("task_writer/reward", "task_writer.reward", "Mean reward of the window's specifications, at its end."),
    Metric("task_writer/reward_best", "task_writer.reward", "The best specification's."),
    Metric("task_writer/loss", "loss", "Loss of the task writer's update."),
    Metric("task_writer/kl", "nats", "KL of the writer from its first policy, a token."),
    Metric("task_writer/ratio_first_error", "nats", "As the solver's, of the task writer's update."),
    Metric("task_writer/gradient_norm", "norm", "Norm of the task writer's gradient, before clipping."),
    Metric("task_writer/learning_rate", "rate", "Learning rate of the task writer's step."),
    Metric("pool/tasks", "count", "Written tasks in the pool."),
    Metric("pool/unplayed", "count", "Written tasks that were never played."),
    Metric("pool/left_out", "count", "The easiest and the hardest written tasks, which are not drawn again."),
    Metric("pool/retired", "count", "Written tasks that were removed since the run began."),
    Metric("pool/depth", "requests", "The user's requests of a task, mean over the pool."),
    Metric("pool/success", "share", "Plain success on a played task, discounted; mean over the pool."),
    Metric("pool/middle", "share", "Played tasks with a success from a quarter to three quarters."),
    Metric("perf/round_seconds", "s", "The whole round."),
    Metric("perf/propose_seconds", "s", "Proposals of curator and task writer."),
    Metric("perf/probe_seconds", "s", "Turn probes, a part of the same."),
    Metric("perf/rollout_seconds", "s", "Playing the dialogues, and waiting for new weights to arrive."),
    Metric("perf/curate_seconds", "s", "Values of arms and written tasks, and updates of curator and task writer."),
    Metric("perf/advantage_seconds", "s", "Advantages, diagnosis weights and packing."),
    Metric("perf/learn_seconds", "s", "The learner's update."),
    Metric("perf/sync_seconds", "s", "Storing new weights and sending them to every engine, which loads them later."),
    Metric("perf/evaluation_seconds", "s", "The evaluation."),
    Metric("perf/checkpoint_seconds", "s", "Writing the checkpoint."),
    Metric("perf/tokens_per_second", "tokens/s", "Tokens sampled over `perf/rollout_seconds`."),
    Metric("perf/engine_restarts", "count", "Engines restarted since the run began or was resumed."),
    Metric("perf/runner_restarts", "count", "Env runners restarted since the run began or was resumed."),
    Metric("perf/peak_memory_gib", "GiB", "Peak host memory of the run's process, with a learner in it."),
    Metric("evaluation/success", "share", "Success on the evaluation tasks, on the plain interface."),
    Metric("evaluation/success/CATEGORY", "share", "The same for one category."),
    Metric("evaluation/turns_done", "share", "Turns of evaluation tasks that passed, right abstentions included."),
    Metric("evaluation/dialogues", "count", "Dialogues that the evaluation played."),
)
"""Every metric there is, in the order of the report."""

_NOT_NEGATIVE = ("count", "tokens", "tokens/s", "s", "GiB")
_MOST = 1e15

_BY_CATEGORY: Mapping[str, Metric] = {
    metric.name.removesuffix("CATEGORY"): metric for metric in METRICS if metric.name.endswith("/CATEGORY")
}
"""Beginning of a name that ends in a category → metric."""
_BY_NAME: dict[str, Metric] = {name: metric for metric in METRICS for name in metric.names()}


def register(metrics: Iterable[Metric]) -> None:
    """Adds metrics in this process. Raises `UserError` if a name has another meaning already."""
    for metric in metrics:
        for name in metric.names():
            if _BY_NAME.setdefault(name, metric) != metric:
                raise UserError(f"metric: {name!r:.80} is defined twice; rename one of the two.")


def describe(name: str) -> Metric:
    """The metric of a full name. Raises `UserError` if there is none."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    start, slash, category = name.rpartition("/")
    if start + slash in _BY_CATEGORY and any(category in source.categories for source in known_sources()):
        return _BY_CATEGORY[start + slash]
    raise unknown_value("metric", name, _BY_NAME)


def bounds_of(name: str) -> tuple[float, float]:
    """The smallest and largest possible value of this metric, which may be unknown here."""
    start, slash, _ = name.rpartition("/")
    metric = _BY_NAME.get(name) or _BY_CATEGORY.get(start + slash)
    unit = "" if metric is None else metric.unit
    return (0.0, 1.0) if unit == "share" else (0.0 if unit in _NOT_NEGATIVE else -_MOST, _MOST)


def categories_of(names: Iterable[str]) -> list[str]:
    """The categories in the metrics of these names; the common four if there is no other."""
    family = "evaluation/success/"
    categories = sorted_categories(name.removeprefix(family) for name in names if name.startswith(family))
    return categories if set(categories) - set(Category) else list(map(str, Category))


def mean(values: Iterable[float]) -> float:
    """The mean; nan without values."""
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else float("nan")


def check(metrics: Mapping[str, float | int]) -> None:
    """Raises `ValueError` for an undefined metric and `TypeError` for a value that is no number: both are bugs."""
    for name, value in metrics.items():
        try:
            describe(name)
        except UserError as error:
            raise ValueError(str(error)) from None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"metric {name}: {value!r:.80} is of type {type(value).__name__}, not a float or int.")
