"""A round without runners ends with one sentence."""

from types import SimpleNamespace
from typing import Any

import pytest

from seal_ray.rollout import dispatch


class DeadRunners:
    """A group of runners that never come back, as RLlib's."""

    local_env_runner = None
    probes = 0

    def num_remote_env_runners(self) -> int:
        return 2

    def healthy_env_runner_ids(self) -> list[int]:
        return []

    def probe_unhealthy_env_runners(self) -> None:
        self.probes += 1

    _worker_manager = SimpleNamespace(fetch_ready_async_reqs=lambda **_: [])


def test_without_a_runner_a_round_ends_after_its_timeout() -> None:
    group, healed = DeadRunners(), 0

    def heal() -> None:
        nonlocal healed
        healed += 1

    plans: list[Any] = [SimpleNamespace(number=0)]
    with pytest.raises(dispatch.RunnersLost, match=r"no env runner came back within 0\.5 s"):
        dispatch.play(group, plans, None, heal=heal, timeout=0.5)  # type: ignore[arg-type]
    assert group.probes
    assert healed
