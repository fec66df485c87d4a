"""Questions about speed, each asked of this project and of a peer in the same run."""
