"""Runs calls on the official web search in a process of its own, its service pointed at an address."""

import os
import sys
from typing import Any

from tests.bench.asking import answer_lines
from tests.envs.web_search.stand_in import KEY
from tests.seal_ray.evaluation.official_cli import StandIns


def main() -> None:
    sys.meta_path.append(StandIns())
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call
    from serpapi.serp_api_client import SerpApiClient

    os.environ["SERPAPI_API_KEY"] = KEY

    def results_of(request: dict[str, Any]) -> Any:
        SerpApiClient.BACKEND = request["backend"]
        config = {"WebSearchAPI": {"show_snippet": request["show_snippet"]}}
        where = (config, ["WebSearchAPI"], "parity", f"web_{request['show_snippet']}")
        return execute_multi_turn_func_call(request["calls"], *where)[0]

    answer_lines(results_of)


if __name__ == "__main__":
    main()
