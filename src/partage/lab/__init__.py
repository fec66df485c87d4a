"""Floor 4: the laboratory. Whole worlds on a virtual clock, each drawn from one seed.

``world`` is one of them: in ``nature`` is what surrounds its processes (a disk that loses power, a
network that loses connections), in ``brokers`` and ``clients`` are shells around the very cores,
bridge, driver, log and store that serve sockets. ``options`` draws it, ``faults`` happen to it,
``checkers`` judge it by its ``history``, and ``peace`` asks it how it is once all has healed.

``running`` lives through one, ``swarm`` (in ``processes``) and ``spreading`` through many,
``shrinking`` and ``story`` are for those that break a rule. ``rehearsals`` try things on a live
group.
"""
