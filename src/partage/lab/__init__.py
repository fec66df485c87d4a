"""Deterministic simulator: a whole cluster on a virtual clock, drawn from one seed.

- `world`: one simulation. `brokers` and `clients` are shells around the production state machines,
  bridge, driver, log and store; `environment` has the simulated clock, network, disk and ZooKeeper.
- `options`: draws the shape of a world and the plan of its faults from the seed.
- `faults`: the functions that inject faults.
- `history`: everything that an outside observer could record. `checkers` judge a world by its
  history alone.
- `liveness`: checks that a healed world becomes stable within a bounded time.
- `runner` runs one world; `swarm` (with `worker_pool`) and `spark_swarm` run many.
- `shrinker` and `trace` explain a world that broke a rule.
- `whatif`: simulates events on a copy of a live group.
"""
