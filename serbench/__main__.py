"""``python -m serbench``: the command line. It knows nothing else."""

from serbench.cli.main import main

main()
