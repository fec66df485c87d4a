"""Floor 5½: the web page for operators, as ``partage web`` serves it; ``console`` starts it.

`rings`, `sampled`, `told` and `watched` remember what was seen, `views` says what a page shows of
it, `pictures` and `pages` draw it: cores without I/O. `watcher` asks the cluster, once for all who
look; `app` and `serving` answer browsers.
"""
