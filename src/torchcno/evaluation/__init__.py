"""Evaluation: errors, timing, and what resolution and aliasing do to an operator."""
