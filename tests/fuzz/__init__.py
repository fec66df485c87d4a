"""Damaged frames, messages, record batches and stored state, as many as there is time for."""
