"""Weights: finding them, reading them under the transformers library's names, converting the embedded model's."""
