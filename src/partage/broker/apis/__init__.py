"""Request handlers, one module for each API or for a few related APIs."""
