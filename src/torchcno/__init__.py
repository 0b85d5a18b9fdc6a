"""Convolutional Neural Operators: learn PDE solution operators, and know when to trust them."""
