"""Runners: what a worker does with a plan, from its table to the sampled ids."""
