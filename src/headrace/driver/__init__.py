"""Drivers seen from outside: the processes that run pipelines, without the Spark that runs in them.

| module | responsibility |
|---|---|
| `process` | whether a process that was noted down is still the same, and alive |
| `status` | what a query does, as its driver writes it down for others |
| `event_time` | how far event time has come in a pipeline, and what it waits for; a value |
| `waiting` | why windows have not ended yet, in sentences; pure |
| `restarts` | whether a driver that has ended is started again, and when; pure |
| `supervise` | a driver as a child process, started again when it dies |
| `lag` | how far queries are behind, asked of the broker |
| `metrics` | statuses as Prometheus' numbers |
| `metrics_thread` | serves them |
"""
