"""Floor 4: the laboratory. A whole world on a virtual clock, drawn from one seed.

``disk`` loses power, ``network`` loses connections; ``broker`` and ``consumer`` are shells around
the very cores, bridge, driver, log and store that serve sockets.
"""
