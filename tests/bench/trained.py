"""What trained models came to on a benchmark, by arm: means over seeds, and paired differences to plain GRPO.

`python -m tests.bench.trained FILE` reads a line a model: `{"arm": …, "seed": …, "results": …}`, with the `results` of
the `summary.json` that `seal-ray evaluate` wrote of it, and prints a table in Markdown. `--add ARM SEED SUMMARY` adds
such a line before.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seal_ray.statistics import mean_estimate
from tuning.comparison.findings import markdown_table, shown

BASELINE = "vanilla"
MEASURES = {"won, %": "success", "turns done, %": "turns_done"}
"""Column → key of a category's results."""


def table_of(rows: Sequence[Mapping[str, Any]], category: str = "all") -> list[str]:
    """A row an arm, in the order of the rows: its measures, and their differences by seed to the baseline's."""
    by_arm: dict[str, dict[int, Mapping[str, float]]] = defaultdict(dict)
    for row in rows:
        by_arm[row["arm"]][row["seed"]] = row["results"][category]
    head = ["arm", "seeds", *(name for column in MEASURES for name in (column, f"− {BASELINE}"))]
    other = by_arm.get(BASELINE, {})
    lines = []
    for arm, found in by_arm.items():
        cells = [arm, ", ".join(map(str, sorted(found)))]
        for key in MEASURES.values():
            pairs = [found[seed][key] - other[seed][key] for seed in sorted(found.keys() & other.keys())]
            cells.append(shown(mean_estimate([each[key] for each in found.values()])))
            cells.append("" if arm == BASELINE or not pairs else shown(mean_estimate(pairs), sign=True))
        lines.append(cells)
    return markdown_table(head, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--add", nargs=3, metavar=("ARM", "SEED", "SUMMARY"))
    chosen = parser.parse_args()
    if chosen.add is not None:
        arm, seed, summary = chosen.add
        row = {"arm": arm, "seed": int(seed), "results": json.loads(Path(summary).read_text("utf-8"))["results"]}
        with chosen.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    rows = [json.loads(line) for line in chosen.file.read_text("utf-8").splitlines()]
    for category in rows[0]["results"]:
        print(f"\n{category}\n")
        print("\n".join(table_of(rows, category)))


if __name__ == "__main__":
    main()
