"""Message diagrams of the designs, drawn from runs in the simulator.

- ``recorder`` runs a small world and records its messages, as a list of steps.
- ``labels`` describes messages, records and actions in a few words.
- ``text_diagram`` draws the steps as text.
"""
