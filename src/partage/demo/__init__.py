"""The main job on real data: flights through a consumer group, then through Spark.

``python -m partage.demo`` (``make demo``) starts a broker, loads a year of New York's flights and
weather, lets three consumers share the flights, kills one, counts that nothing was lost; then
Spark reads both topics, joins them, and its figures are checked against the CSV files.
"""
