"""Losses, gradients and steps are those of the plain reference; and state goes to disk and back to the last bit."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest
import ray
import torch
from ray.exceptions import RayActorError
from torch import Tensor

from envs.errors import SealError
from envs.roles import SOLVER
from policies.engine.buckets import loaded_module, open_buffer
from policies.engine.requests import checkpoint_shapes
from policies.models import open_model
from seal_ray.grpo import forward
from seal_ray.grpo.rows import Minibatch
from seal_ray.training import learner_group
from seal_ray.training.fsdp import mesh_shape
from seal_ray.training.learner_group import LearnerTimeout, SealLearnerGroup
from seal_ray.training.weights import export_adapter, export_model, full_weights
from tests.policies.models import VOCABULARY
from tests.seal_ray.training.learners import (
    OFF_POLICY_WEIGHT,
    WHOLE,
    PlainLearner,
    assert_equal,
    build_group,
    distance,
    disturb,
    learner_config,
    moments_of,
    set_weights,
    state_of,
)

pytestmark = pytest.mark.usefixtures("cluster")

LEARNERS: dict[str, dict[str, Any]] = {
    "local": {"num_learners": 0},
    "remote": {"num_learners": 1},
    "ddp": {"num_learners": 2},
    "fsdp": {"num_learners": 4, "fsdp": True, "num_cpus_per_learner": 0.25, "machines": 2},
    "fsdp-tied": {"num_learners": 2, "fsdp": True},
}
KINDS: dict[str, dict[str, Any]] = {"full": {}, "lora": {"lora_rank": 4}}
WITHOUT_LORA = ("remote", "fsdp")
CASES = [(learners, kind) for learners in LEARNERS for kind in KINDS if kind == "full" or learners not in WITHOUT_LORA]


class Case:
    """A group with disturbed weights, the same learning written plainly, and rows for both."""

    def __init__(self, learners: str, kind: str, model: Path) -> None:
        self.learners, self.kind = learners, kind
        # Adapters learn with an importance cap; but sharded, all weights do: embeddings are sharded with what is left.
        self.capped = (kind == "lora") != self.sharded
        training: dict[str, Any] = {"importance_cap": 1.1, "adam_epsilon": 1e-4} if self.capped else {"grad_clip": 0.5}
        training["off_policy_weight"] = OFF_POLICY_WEIGHT
        self.config = learner_config(model, solver=KINDS[kind], training=training, **LEARNERS[learners])
        self.group = build_group(self.config)
        if learners == "fsdp-tied":  # as with a large vocabulary, some rows' logits are computed in several chunks
            ray.get([actor.apply.remote(shrink_chunks) for actor in self.group.actors])
        disturb(self.group)
        self.weights = self.group.module_weights(SOLVER)
        # Without the cap, a micro-batch has rows with and without the learner's own log-probs.
        self.plain = PlainLearner(self.config, model, self.weights, stripped=True)
        self.rows = self.plain.minibatches()
        self.minibatches = [Minibatch.of([each[:2], each[2:]]) for each in self.rows]

    @property
    def sharded(self) -> bool:
        return self.learners.startswith("fsdp")

    def learn_more(self, group: SealLearnerGroup) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Two more rounds. Returns what was counted in the last, and weights and optimizer."""
        group.learn(SOLVER, self.minibatches[1:])
        return group.learn(SOLVER, self.minibatches), state_of(group)


def shrink_chunks(learner: Any) -> None:
    del learner
    forward.LOGITS = 4 * VOCABULARY * 16


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def case(request: pytest.FixtureRequest, model: Path, untied: Path, cluster: str) -> Iterator[Case]:
    learners, kind = request.param
    found = Case(learners, kind, untied if learners == "fsdp" else model)
    yield found
    found.group.shutdown()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("machines", "shape"),
    [("aaaa", (4,)), ("aabb", (2, 2)), ("aaabbb", (2, 3)), ("abab", (4,)), ("aaab", (4,)), ("ab", (2,))],
)
def test_weights_are_sharded_inside_machines_that_have_as_many_learners(machines: str, shape: tuple[int, ...]) -> None:
    assert mesh_shape(machines) == shape


def test_steps_equal_the_plain_reference(case: Case) -> None:
    start = {name: tensor.double() for name, tensor in case.weights.items()}
    for _ in range(2):
        found, expected = case.group.learn(SOLVER, case.minibatches), case.plain.learn(case.rows)
        assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-4)
        # The first moment is a sum over the steps' clipped gradients.
        assert distance(moments_of(case.group, "exp_avg"), case.plain.moments("exp_avg")) < 1e-4
        assert distance(moments_of(case.group, "exp_avg_sq"), case.plain.moments("exp_avg_sq")) < 1e-4
        after = case.group.module_weights(SOLVER)
        # AdamW makes much of gradients that are next to nothing, and float32 little of small changes.
        changed = {name: after[name].double() - tensor for name, tensor in start.items()}
        wanted = {name: case.plain.learning[name].detach() - tensor for name, tensor in start.items()}
        assert distance(changed, wanted) < 3e-3
        check_internalised(case)
    assert (found["capped_fraction"] > 0) == case.capped
    assert case.capped or found["clip_fraction"] > 0
    assert found["hint_stripped_ratio_first"] == pytest.approx(1.0, abs=1e-5)
    assert 0.2 < found["off_policy_weight"] < 1.0


def check_internalised(case: Case) -> None:
    """Before and after the round, by the plain reference: the mean over an arm's rows of each row's mean."""
    expected: dict[str, list[list[float]]] = {}
    for rows, before in zip(case.rows, case.plain.proximal, strict=True):
        after = case.plain.values(case.plain.model, rows)
        for row, *both in zip(rows, before, after, strict=True):
            if row.stripped_of is not None:
                sampled = row.sampled_logprobs_T[row.mask_T]
                expected.setdefault(row.stripped_of, []).append(
                    [float((np.array(each) - sampled).mean()) for each in both]
                )
    found = case.group.internalisation(SOLVER)
    assert found.keys() == expected.keys() == {"arm 0", "arm 1"}
    for arm, values in expected.items():
        before, after = np.mean(values, axis=0)
        assert found[arm].rows == len(values)
        assert (found[arm].before, found[arm].after) == pytest.approx((before, after), abs=1e-4)


def test_what_is_restored_goes_on_to_the_last_bit(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved, before = case.group.get_state(), state_of(case.group)
    # Sharded weights are stored only by name.
    assert case.sharded != (saved["learner"].keys() >= {"rl_module", "optimizer"})
    saved["learner"] |= case.group.get_state(WHOLE)["learner"]
    monkeypatch.chdir(tmp_path)  # learners are elsewhere
    path = case.group.save_to_path("state", wait=False)
    assert case.group.is_saving == case.sharded
    counted, expected = case.learn_more(case.group)  # sharded learners write meanwhile
    case.group.finish_saving()
    fresh = case.learners == "local" or (case.learners, case.kind) == ("fsdp", "full")
    restored = build_group(case.config) if fresh else case.group
    restored.restore_from_path(path)
    assert_equal(state_of(restored), before)
    again, found = case.learn_more(restored)
    assert again == counted
    assert_equal(found, expected)
    if fresh:
        restored.shutdown()  # type: ignore[no-untyped-call]
    if case.sharded and fresh:
        check_fewer_learners_restore_unless_shards_are_missing(case, path, before)

    # The state of an earlier step replaces that of a later one.
    case.group.set_state(saved)
    assert_equal(state_of(case.group), before)
    again, found = case.learn_more(case.group)
    assert again == counted
    assert_equal(found, expected)


def check_fewer_learners_restore_unless_shards_are_missing(case: Case, path: str, before: dict[str, Tensor]) -> None:
    for learners in (2, 0):
        local = build_group(case.config.copy(copy_frozen=False).learners(num_learners=learners, fsdp=learners > 0))
        with pytest.warns(UserWarning, match="single process") if not learners else nullcontext():
            local.restore_from_path(path)
        assert_equal(state_of(local), before)
        if learners:
            local.shutdown()  # type: ignore[no-untyped-call]
    shutil.rmtree(Path(path) / "shards")  # as if a checkpoint was copied without its parts
    with pytest.raises(SealError, match="the checkpoint's weights are not there"):
        local.restore_from_path(path)


def test_the_first_learner_writes_the_model_and_what_lora_has_learnt(case: Case, tmp_path: Path) -> None:
    solver = case.config.spec.agents[SOLVER]
    base, state = open_model(solver.model), case.group.module_weights(SOLVER)
    lora = {"rank": solver.lora_rank, "alpha": solver.lora_alpha}
    for dtype in ("float32", "bfloat16"):
        own, adapter, expected = (tmp_path / dtype / name for name in ("own", "adapter", "expected"))
        case.group.export(SOLVER, base, own, dtype=dtype, adapter=adapter)
        export_model(base, state, expected, dtype=dtype, **lora)
        assert (own / "model.safetensors").read_bytes() == (expected / "model.safetensors").read_bytes()
        assert adapter.exists() == bool(solver.lora_rank)
    if solver.lora_rank:
        export_adapter(base, state, tmp_path / "expected", **lora)
        for file in adapter.iterdir():
            assert file.read_bytes() == (tmp_path / "expected" / file.name).read_bytes()


@pytest.mark.parametrize(
    "case", [("local", "full"), ("fsdp", "full"), ("fsdp-tied", "full")], indirect=True, ids="-".join
)
def test_buckets_have_the_whole_weights(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seal_ray.training.learner_group.BUCKET", 1)
    shapes = checkpoint_shapes(Path(case.config.spec.solver.model))
    expected = full_weights(case.group.module_weights(SOLVER), shapes, "bfloat16")
    received: dict[str, Tensor] = {}
    buckets = []
    for bucket in case.group.buckets(SOLVER, shapes, "bfloat16"):
        assert len({loaded_module(name) for name in bucket.shapes}) == 1
        (handle,) = bucket.handles.values()
        received |= open_buffer(handle, bucket.shapes, bucket.dtype, bucket.checksum, torch.device("cpu"))
        buckets.append(bucket)
    assert [bucket.is_last for bucket in buckets] == [False] * (len(buckets) - 1) + [True]
    assert received.keys() == expected.keys()
    assert all(torch.equal(received[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("case", [("local", "full"), ("fsdp", "full")], indirect=True, ids="-".join)
def test_stored_weights_are_those_before_the_learners_learnt_on(case: Case) -> None:
    shapes = checkpoint_shapes(Path(case.config.spec.solver.model))
    expected = full_weights(case.group.module_weights(SOLVER), shapes, "float32")
    case.group.store(SOLVER, shapes, "float32", learns_on=True)
    case.learn_more(case.group)
    changed = full_weights(case.group.module_weights(SOLVER), shapes, "float32")
    stored = case.group.stored(SOLVER)
    assert stored.keys() == expected.keys()
    assert all(torch.equal(stored[name], tensor) for name, tensor in expected.items())
    assert not all(torch.equal(changed[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("case", [("local", "full"), ("ddp", "lora")], indirect=True, ids="-".join)
def test_a_gradient_that_is_not_finite_changes_nothing(case: Case) -> None:
    state, before = case.group.get_state(), state_of(case.group)
    weights = dict(case.group.module_weights(SOLVER))
    name = next(iter(weights))
    weights[name] = torch.full_like(weights[name], torch.nan)
    set_weights(case.group, weights)
    with pytest.raises(SealError, match="gradient of solver is not finite") as caught:
        case.group.learn(SOLVER, case.minibatches)
    assert type(caught.value) is SealError
    found = state_of(case.group)
    assert_equal({key: found[key] for key in found if name not in key}, {k: before[k] for k in before if name not in k})
    case.group.set_state(state)
    assert case.group.learn(SOLVER, case.minibatches)["gradient_norm"] > 0


@pytest.mark.parametrize("case", [("ddp", "lora")], indirect=True, ids="-".join)
def test_the_failure_of_one_learner_is_raised_at_once(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner_group, "GRACE", 1.0)
    ((row,),) = case.plain.minibatches([(20,)])
    wrong = replace(row, token_ids_T=np.full(len(row), VOCABULARY))
    started = perf_counter()
    with pytest.raises(IndexError):
        case.group.learn(SOLVER, [Minibatch.of([[row, wrong]])])
    assert perf_counter() - started < 20
    with pytest.raises(RayActorError):
        case.group.get_state()


def test_a_learner_without_an_answer_is_noticed_and_killed(
    model: Path, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner_group, "GRACE", 1.0)
    group = build_group(learner_config(model, num_learners=1).fault_tolerance(learner_timeout=8.0))
    (learner,) = group.actors
    process = ray.get(learner.apply.remote(lambda _: os.getpid()))
    os.kill(process, signal.SIGSTOP)
    with pytest.raises(LearnerTimeout, match=r"no answer within 8 s \(fault_tolerance\.learner_timeout\)"):
        group.module_weights(SOLVER)
    with pytest.raises(RayActorError):
        group.module_weights(SOLVER)
    group.shutdown()  # type: ignore[no-untyped-call]
