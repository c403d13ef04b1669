#!/usr/bin/env bash
# Two machines with eight GPUs each: sbatch docs/examples/slurm.sh --preset qwen2.5-7b --preset seal --name first
# Runs lie below SEAL_RAY_RUNS, on a folder that all machines share. Slurm's signal ends the round and writes a
# checkpoint; `sbatch docs/examples/slurm.sh --resume RUN` resumes it.
#SBATCH --job-name=seal-ray
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@900
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:-.}"
export PATH="$PWD/.venv/bin:$PATH"
export SEAL_RAY_RUNS=${SEAL_RAY_RUNS:-/shared/runs}

# A token of this job's own, which its processes send each other.
RAY_AUTH_TOKEN_PATH=$(mktemp)
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH
python -c 'import secrets; print(secrets.token_hex(32))' >"$RAY_AUTH_TOKEN_PATH"
RAY_AUTH_TOKEN=$(cat "$RAY_AUTH_TOKEN_PATH")
export RAY_AUTH_TOKEN

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
port=$((20000 + SLURM_JOB_ID % 20000))
export RAY_ADDRESS="${nodes[0]}:$port"
gpus=${SLURM_GPUS_ON_NODE:-8}

pids=()
stop() {
    ((${#pids[@]})) && kill "${pids[@]}" 2>/dev/null
    rm -f "$RAY_AUTH_TOKEN_PATH"
}
trap stop EXIT

srun --nodes=1 --ntasks=1 --nodelist="${nodes[0]}" \
    ray start --head --port="$port" --num-gpus="$gpus" --dashboard-host=127.0.0.1 --block &
pids+=($!)
for node in "${nodes[@]:1}"; do
    srun --nodes=1 --ntasks=1 --nodelist="$node" ray start --address="$RAY_ADDRESS" --num-gpus="$gpus" --block &
    pids+=($!)
done

# Until all machines have joined, for five minutes at most.
for _ in $(seq 60); do
    joined=$(ray list nodes --format=json 2>/dev/null | python -c 'import json, sys; print(len(json.load(sys.stdin)))' || echo 0)
    if [[ $joined == "${#nodes[@]}" ]]; then break; fi
    sleep 5
done
if [[ $joined != "${#nodes[@]}" ]]; then
    echo "slurm: $joined of ${#nodes[@]} machines have joined the cluster within five minutes." >&2
    exit 1
fi

seal-ray train "$@" &
run=$!
trap 'kill -TERM "$run"' TERM
wait "$run" || true # a signal ends this wait
wait "$run"
