"""Topics and partition logs of this broker: opening, writing, reading and maintenance."""
