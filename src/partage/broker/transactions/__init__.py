"""The transaction coordinator of a broker."""
