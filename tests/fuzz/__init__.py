"""Fuzzer for frames, messages, record batches and stored state."""
