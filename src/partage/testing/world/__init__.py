"""Simulated worlds for a user's asyncio code: our broker and the code on one deterministic loop."""
