"""Web page for operators, as ``partage web`` serves it.

`lag_history`, `polled_timeline`, `event_timeline` and `cluster_history` keep past observations,
`overview` selects what a page shows, and `timeline_chart`, `lag_charts` and the pages draw it.
These modules do no I/O. `poller` polls the cluster, once for all browsers. `app` and `server`
answer HTTP requests.
"""
