"""Sweeps: grids of experiments, measured interleaved, stored repeat by repeat and resumed after any interruption."""
