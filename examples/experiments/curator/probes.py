"""`python -m examples.experiments.curator.probes RUN…`: turn probes against what arms gained, and their cost.

The gain of an arm is its success minus the plain arm's, in the first window that played it.
"""

import json
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    probes, played, shares = [], [], []
    for run in map(Path, sys.argv[1:]):
        probes += list(probes_of(run))
        played += list(played_by(run))
        shares += list(token_shares(run))
    within = sum(abs(gain) <= 2 * error for gain, error in probes)
    print(f"probes: {len(probes)}; mean gain {np.mean([gain for gain, _ in probes]):+.3f}")
    print(f"within two standard errors of 0: {within}")
    print(f"tokens of a window's probes, share of its predecessor's: {np.mean(shares):.1%}, at most {max(shares):.1%}")
    if len(played) > 3:
        r = float(np.corrcoef(np.array(played).T)[0, 1])
        low, high = np.tanh(np.arctanh(r) + np.array([-1.96, 1.96]) / np.sqrt(len(played) - 3))
        print(f"correlation with the gain of {len(played)} arms: {r:.2f} [{low:.2f}, {high:.2f}] (Fisher's z)")


def probes_of(run: Path) -> Iterator[tuple[float, float]]:
    """Gain and standard error of each probed proposal of each window, once."""
    seen = set()
    for row in rows(run / "proposals.jsonl"):
        for proposal in row["proposals"]:
            if proposal.get("credit"):
                probe = proposal["credit"]["probe"]
                key = (proposal["id"], probe["gain"], probe["error"])
                if key not in seen:
                    seen.add(key)
                    yield probe["gain"], probe["error"]


def played_by(run: Path) -> Iterator[tuple[float, float]]:
    """Probed and measured gain of each probed arm, in its first window."""
    proposed = {row["round"]: row["proposals"] for row in rows(run / "proposals.jsonl")}
    seen: set[str] = set()
    for window in rows(run / "arms.jsonl"):
        credit_of = {each.get("id"): each.get("credit") for each in proposed[window["round"] - window["rounds"] + 1]}
        plain = next(arm["success"] for arm in window["arms"] if arm["id"] == "plain")
        for arm in window["arms"]:
            credit = credit_of.get(arm["id"])
            if credit and arm["rollouts"] and arm["id"] not in seen:
                yield credit["probe"]["gain"], arm["success"] - plain
            seen.add(arm["id"])


def token_shares(run: Path) -> Iterator[float]:
    """Sampled tokens of each window's probes, as a share of the rollouts of the window before."""
    metrics = {row["round"]: row for row in rows(run / "metrics.jsonl")}
    ends = [0, *(window["round"] for window in rows(run / "arms.jsonl"))]
    for start, end in pairwise(ends):
        tokens = sum(metrics[number]["solver/tokens_sampled"] for number in range(start + 1, end + 1))
        if probed := metrics.get(end + 1, {}).get("curator/probe_tokens"):
            yield probed / tokens


def rows(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text("utf-8").splitlines():
        yield json.loads(line)


if __name__ == "__main__":
    main()
