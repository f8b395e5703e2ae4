"""Who a client is, and that nobody listens in.

| module | responsibility |
|---|---|
| `verifier` | what is kept of a password, and whether a password is the right one; pure |
| `users_file` | the file of users: format, mode, replaced as a whole |
| `users` | the users of a running broker |
| `mechanisms` | the broker's side of SASL PLAIN and SCRAM; pure |
| `session` | how far a connection's log-in has come; pure |
| `logins` | log-ins at work: a thread for what takes long, delays for what fails |
| `tls` | TLS over any transport, and the settings of its context |
"""
