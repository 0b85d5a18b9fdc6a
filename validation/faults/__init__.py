"""Fault injection: what becomes of runs and data when disks, processes and files fail.

`python -m validation.faults` runs all of it and prints a table of tries, survived, lost and silent.
"""
