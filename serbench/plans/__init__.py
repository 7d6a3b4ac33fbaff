"""Recorded plans: their file, how they are recorded, and how they are replayed."""
