"""From a queue to a URL: each message is posted, acknowledged by 2xx, tried again, and at last given up.

| module | responsibility |
|---|---|
| `request` | a message as the headers of a request, signed; pure |
| `retry` | what an answer means, and when to try again; pure |
| `pusher` | takes messages, posts them, and acknowledges them |
| `metrics` | what it counts |
"""
