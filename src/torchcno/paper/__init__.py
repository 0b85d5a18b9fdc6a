"""The paper: its published figures, the studies that measure them anew, and the report."""
