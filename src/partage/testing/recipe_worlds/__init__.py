"""Simulated worlds of the recipes: several processes with one recipe, under faults.

The recipes promise that two processes never do the same work. These worlds run them as users do, on
the production broker and client in virtual time, and judge these promises by the true time.

- ``scenario`` draws the options of a world from its seed, and ``fault_phase`` causes its faults.
- ``recipe_process`` is one process; it closes its recipe and creates a new one now and then.
- ``election_program``, ``pool_program``, ``single_writer_program``, ``processor_program`` and
  ``membership_program`` run one recipe each, and check it after the faults.
- ``exclusive_work`` judges which process may work, and ``task_rules`` the tasks of a processor.
- ``runner`` runs one world, and ``__main__`` many.
"""
