"""Text: from characters to token ids and back, stop strings, chat templates."""
