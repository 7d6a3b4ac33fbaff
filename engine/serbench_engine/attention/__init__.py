"""Attention over a paged KV cache, and the interface that its backends share."""
