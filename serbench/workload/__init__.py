"""Workloads: which requests an experiment sends, and when."""
