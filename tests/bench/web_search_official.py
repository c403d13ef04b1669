"""Runs calls on the official web search, its service pointed at an address, a JSON object a line in, one a line out."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from tests.envs.web_search.stand_in import KEY
from tests.seal_ray.evaluation.official_cli import StandIns


def main() -> None:
    sys.meta_path.append(StandIns())
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call
    from serpapi.serp_api_client import SerpApiClient

    os.environ["SERPAPI_API_KEY"] = KEY
    replies = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        SerpApiClient.BACKEND = request["backend"]
        config = {"WebSearchAPI": {"show_snippet": request["show_snippet"]}}
        results, _ = execute_multi_turn_func_call(
            request["calls"], config, ["WebSearchAPI"], "parity", f"web_{request['show_snippet']}"
        )
        replies.write(json.dumps(results) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
