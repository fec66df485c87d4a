"""Trials of ``partage lab whatif`` whose members run a user's code in a simulated world."""
