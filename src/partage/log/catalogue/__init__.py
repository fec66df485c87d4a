"""The catalogue of topics and their configs."""
