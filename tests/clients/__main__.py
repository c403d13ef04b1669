"""Starts a server of the tiny model, and plays the dialogues of `dialogues.py` in each environment (folders)."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.seal_ray.serving.servers import KEY, serving
from tests.watched import SECRETS


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "key"
        key.write_text(KEY, "ascii")
        options = ("--api-key-file", str(key), "--context", "4096", "--response", "512")
        failed = 0
        with serving(Path(folder), "serve", "tiny", *options, environment=SECRETS) as server:
            for environment in sys.argv[1:]:
                print(environment, flush=True)
                command = (f"{environment}/bin/python", "-W", "ignore", Path(__file__).with_name("dialogues.py"))
                # LiteLLM would fetch a list of prices.
                variables = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
                failed |= subprocess.run([*command, f"{server.url}/v1", KEY, "tiny"], env=variables).returncode
    sys.exit(failed)


if __name__ == "__main__":
    main()
