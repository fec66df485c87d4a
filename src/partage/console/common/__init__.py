"""Code that several command families use: the cluster client, options, output, errors, signals."""
