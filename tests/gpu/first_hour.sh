#!/usr/bin/env bash
# The first hour on a GPU. Part A takes some minutes and needs PyTorch, Transformers and pydantic alone; part B needs the
# whole set-up. With --cpu both are rehearsed on a CPU, smaller. The tables are for docs/gpu.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-.venv/bin/python}

echo "## Part A"
"$python" -m tests.gpu.first_hour "$@"

"$python" -c "import ray, vllm" 2>/dev/null || { echo "Part B needs Ray and vLLM: make setup EXTRA=gpu"; exit 0; }
echo "## Part B"
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
small=(environment.source=toolworld environment.split_scheme=task training.rounds=2 training.groups=8
	training.minibatch_groups=4 evaluation.interval=0 env_runners.num_env_runners=2 --runs "$runs" --wandb off --trust
	environment.reward=policies.models.stand_in:token_parity)
if [ "${1:-}" = --cpu ]; then
	"$(dirname "$python")/seal-ray" train --preset tiny --preset vanilla --name round "${small[@]}"
else
	"$python" -m tests.bench.random_model Qwen/Qwen2.5-7B-Instruct "$runs/random-7b"
	"$(dirname "$python")/seal-ray" train --preset one-gpu-80gb --preset vanilla --name round "${small[@]}" \
		solver.model="$runs/random-7b" solver.dialect=qwen environment.difficulty=long solver.response=256
	"$python" -m tests.bench.learner --device cuda --model smollm2-135m
fi
"$python" - "$runs/round/metrics.jsonl" <<'END'
import json, sys
names = [f"perf/{part}_seconds" for part in ("round", "rollout", "learn", "sync")]
names += ["perf/tokens_per_second", "solver/gpu_memory_gib", "solver/ratio_first_error"]
print("| round |", " | ".join(names), "|")
for line in open(sys.argv[1]):
    row = json.loads(line)
    print("|", row["round"], "|", " | ".join(f"{row[name]:.3f}" for name in names), "|")
END
