"""Samples of problems: made on the spot, kept in files that the field can open, loaded as tensors."""
