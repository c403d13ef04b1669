"""The time that a language model as curator adds to a round, at equal rollouts: `python -m tests.bench.curator`.

Some windows of the tiny preset with a curator that learns. It adds its proposals, the values of its arms and
its own update; all else is the same round.
"""

import time

from seal_ray.algorithm.config import make_config
from seal_ray.run.cluster import connected

WINDOWS = 3
GOAL = 0.15


def main() -> None:
    config = make_config(["tiny", "coevolved"], overrides=["evaluation.interval=0"])
    added = rest = 0.0
    with connected():
        algorithm = config.build_algo()
        algorithm.train()  # the first window is not measured: everything is loaded in it
        algorithm.train()
        for _ in range(WINDOWS * config.spec.curator.update_every):
            started = time.perf_counter()
            result = algorithm.train()
            curator = float(result["perf/propose_seconds"]) + float(result["perf/curate_seconds"])
            added += curator
            rest += time.perf_counter() - started - curator
        algorithm.stop()
    print(
        f"{WINDOWS} windows took {rest + added:.1f} s, of that {added:.1f} s for the curator: a round takes "
        f"{added / rest:.1%} longer with it (goal at most {GOAL:.0%})"
    )


if __name__ == "__main__":
    main()
