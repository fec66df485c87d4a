"""What if: a live group as it was found, and what would become of it."""
