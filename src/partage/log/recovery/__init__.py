"""Opening of partition logs, recovery after a crash, and truncation of damaged logs."""
