"""What the broker does, in numbers, for Prometheus; and whether it is well.

| module | responsibility |
|---|---|
| `counters` | plain integers, counted where requests are served |
| `errors` | which error codes an answer carries |
| `collector` | the numbers under Prometheus' names; looked up when somebody asks |

They are served by `headrace.metrics`.
"""
