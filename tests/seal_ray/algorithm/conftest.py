"""Shared by the tests of whole rounds."""

from functools import partial

import pytest

from seal_ray.grpo.posterior import Posterior
from seal_ray.proposing import arms


@pytest.fixture
def wide_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the few rollouts of these runs can distinguish arms; otherwise the curator writes nothing."""
    monkeypatch.setattr(arms, "Posterior", partial(Posterior, prior=1.0))
