"""Commands that run a broker (``partage broker``) and repair its files (``partage log``)."""
