"""Commands of ``partage lab``: simulated worlds, and what-if simulations of live groups."""
