"""Who a client is.

| module | responsibility |
|---|---|
| `session` | how far a connection's log-in has come; pure |
| `logins` | log-ins at work: a thread for what takes long, delays for what fails |

What is not Kafka's own lies in `headrace.security`: users and their passwords, mechanisms, TLS.
"""
