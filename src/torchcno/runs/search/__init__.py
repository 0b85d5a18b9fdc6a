"""The search for a configuration: its space, its database of trials, its driver and report."""
