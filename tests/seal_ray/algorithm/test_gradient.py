"""Rows for the learner: how a round's groups are shared out over gradient steps."""

from __future__ import annotations

import pytest
from seal_ray.training.advantages_to_rows import even_parts


@pytest.mark.parametrize(
    ("count", "most", "lengths"),
    [(0, 5, []), (1, 5, [1]), (5, 5, [5]), (6, 5, [3, 3]), (11, 5, [3, 4, 4]), (16, 5, [4] * 4), (3, 1, [1] * 3)],
)
def test_groups_are_shared_out_evenly_and_in_order(count: int, most: int, lengths: list[int]) -> None:
    groups = list(range(count))
    parts = list(even_parts(groups, most=most))
    assert [len(part) for part in parts] == lengths
    assert [group for part in parts for group in part] == groups
