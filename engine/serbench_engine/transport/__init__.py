"""Transports: ways to carry payloads between the scheduler's process and the workers'."""
