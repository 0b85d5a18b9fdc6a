"""The version: `pyproject.toml` reads it here, and a checkout that is not installed has it, too."""

__version__ = "0.2.0"
