"""Command ``partage web``, and its access to the cluster."""
