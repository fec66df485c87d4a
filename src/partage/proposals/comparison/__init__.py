"""Compares the designs: one workload for all, a grid of workloads, and a report.

- ``workload`` and ``cell`` run one design through the phases of a workload.
- ``grid`` expands the parameters of a comparison and rejects cells that are too large.
- ``claims`` measures what the documents claim about the designs.
- ``report`` writes tables, plots and verdicts.
"""
