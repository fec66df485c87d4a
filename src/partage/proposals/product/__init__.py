"""The product's coordinator and consumer in the simulator of the proposals.

The state machines of the product run unchanged. The adapters here convert their outcomes to those
of the other designs. `two_phase` and `consumer_protocol` use them.
"""
