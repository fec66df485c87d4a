"""Shared vocabulary: ids, error codes, settings (layer 0). It has no behaviour."""
