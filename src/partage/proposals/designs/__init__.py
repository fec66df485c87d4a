"""The designs and their variants, as a world runs them."""
