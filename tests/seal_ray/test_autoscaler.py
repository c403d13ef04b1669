"""Runs on a cluster that grows: `wait_until_it_fits` with the config that `ray up` leaves on the head node."""

from pathlib import Path
from typing import Any

import pytest
import ray

from seal_ray.algorithm.config import make_config
from seal_ray.config.resolve import RunSpec
from seal_ray.run import cluster
from seal_ray.run.cluster import wait_until_it_fits
from tests.refusal import refusal

CONFIG = """
max_workers: {most}
head_node_type: head
available_node_types:
  head: {{resources: {{CPU: 4}}, max_workers: 0}}
  gpu: {{resources: {{GPU: 8}}, max_workers: 4}}
"""


@pytest.fixture
def spec() -> RunSpec:
    words = ("learners.num_learners=16", "learners.num_gpus_per_learner=0.6", "engine.num_cpus_per_engine=1.0")
    return make_config(overrides=[*words, "engine.num_engines=16", "engine.num_gpus_per_engine=0.4"]).spec


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[dict[str, float]]]:
    """A cluster of one CPU machine that has its GPUs after two looks at it. Returns the requests to its autoscaler."""
    sizes = [{"CPU": 4.0}] * 3 + [{"CPU": 200.0, "GPU": 8.0}, {"CPU": 400.0, "GPU": 16.0}]
    requests: list[list[dict[str, float]]] = []

    def resources() -> dict[str, float]:
        return sizes.pop(0) if len(sizes) > 1 else sizes[0]

    def request_resources(*, bundles: list[dict[str, float]]) -> None:
        requests.append(bundles)

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(ray, "cluster_resources", resources)
    monkeypatch.setattr(ray, "nodes", list)
    monkeypatch.setattr(cluster, "request_resources", request_resources)
    return requests


def test_a_run_waits_for_the_machines_that_the_autoscaler_can_start(
    spec: RunSpec, requested: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "ray_bootstrap_config.yaml").write_text(CONFIG.format(most=4))
    said: list[str] = []
    wait_until_it_fits(spec, said.append, pause=0.01)
    asked, released = requested
    assert sum(bundle.get("GPU", 0.0) for bundle in asked) == pytest.approx(16)
    assert released == []
    assert said[-1] == "waiting for the autoscaler: the cluster has 200 of 32.4 CPUs and 8 of 16 GPUs"


@pytest.mark.parametrize(
    ("config", "lacking"),
    [(CONFIG.format(most=1), "16 GPUs and the cluster has 8;"), ("max_workers: many", "CPUs and the cluster has 4;")],
    ids=["too few machines", "no autoscaler"],
)
def test_a_run_that_never_fits_is_refused(
    config: str, lacking: str, spec: RunSpec, requested: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "ray_bootstrap_config.yaml").write_text(config)
    assert lacking in refusal(wait_until_it_fits, spec, print)
    assert not requested
