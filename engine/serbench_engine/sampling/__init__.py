"""Sampling: from logits to token ids, without hidden state."""
