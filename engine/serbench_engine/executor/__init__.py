"""Executors: where workers run, and how they are started, watched and ended."""
