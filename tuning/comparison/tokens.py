"""Sampled tokens as the measure of a run's effort: rows are read over tokens instead of rounds."""

from collections.abc import Mapping, Sequence

from seal_ray.report.files import Row

_SOLVER = "solver/tokens_sampled"
_SAMPLED = ("/tokens_sampled", "/probe_tokens")
"""Ends of the names of metrics that count a round's sampled tokens: of all agents, and of turn probes."""


def spent_tokens(rows: Sequence[Row]) -> dict[int, float]:
    """Round → the tokens that were sampled in training up to its end; empty if the solver's were not counted."""
    spent, total = dict[int, float](), 0.0
    for row in rows:
        if row["round"] and row.get(_SOLVER) is None:
            return {}
        total += sum(value or 0.0 for name, value in row.items() if name.endswith(_SAMPLED))
        spent[row["round"]] = total
    return spent


def tokens_until(rows: Sequence[Row], number: int) -> float | None:
    """The tokens that were sampled in training up to this round; None if they were not counted."""
    return spent_tokens(rows).get(number)


def rows_over_tokens(rows: Sequence[Row], spent: Mapping[int, float], budget: float, rounds: int) -> list[Row]:
    """The rows up to a budget of tokens, with `round` in proportion to tokens, so that the budget is at `rounds`.

    Evaluation metrics at the budget are interpolated between the evaluations before and after it.

    Args:
        spent: `spent_tokens` of the run.
    """
    times = [(rounds * (spent[row["round"]] / budget), row) for row in rows if row["round"] in spent]
    read: list[Row] = [{**row, "round": time} for time, row in times if time <= rounds]
    evaluated = [(time, row) for time, row in times if any(name.startswith("evaluation/") for name in row)]
    before = [pair for pair in evaluated if pair[0] <= rounds]
    after = [pair for pair in evaluated if pair[0] > rounds]
    if before and after and before[-1][0] < rounds:
        (start, left), (end, right) = before[-1], after[0]
        share = (rounds - start) / (end - start)
        names = [name for name in left.keys() & right.keys() if name.startswith("evaluation/")]
        values = {name: (left[name], right[name]) for name in names}
        read.append(
            {"round": rounds}
            | {name: None if None in pair else pair[0] + share * (pair[1] - pair[0]) for name, pair in values.items()}
        )
    return read
