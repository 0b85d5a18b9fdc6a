"""Samples of problems: made on the spot, kept in files that any tool opens, loaded as tensors."""
