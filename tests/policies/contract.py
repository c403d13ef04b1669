"""What every engine keeps, checked in the same words for each."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from policies.engine import Finish, GenRequest, GenResult
from tests.policies.served import E, Served

PROMPT = tuple(range(20, 60))


def check_alone_is_as_among_others(
    served: Served[E], requests: Sequence[GenRequest], *runs: Sequence[GenResult]
) -> None:
    """Every seventh request, asked alone, gives what it gave in each run among all others."""
    for index in range(0, len(requests), 7):
        alone = served.one(requests[index])
        for run in runs:
            assert run[index].token_ids_T == alone.token_ids_T
            assert run[index].sampled_logprobs_T == pytest.approx(alone.sampled_logprobs_T, abs=1e-4)


def check_a_stop_token_ends_the_completion_and_is_kept(served: Served[E]) -> None:
    free = served.one(GenRequest(PROMPT, max_tokens=16, seed=3))
    stop = free.token_ids_T[5]
    stopped = served.one(GenRequest(PROMPT, max_tokens=16, seed=3, stop_token_ids=(stop,)))
    assert stopped.finish is Finish.STOP
    assert stopped.token_ids_T == free.token_ids_T[: free.token_ids_T.index(stop) + 1]
