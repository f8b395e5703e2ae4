"""Who may use a server of ours, whatever protocol it speaks, and that nobody listens in.

| module | responsibility |
|---|---|
| `verifier` | what is kept of a password, and whether a password is the right one; pure |
| `users_file` | the file of users: format, mode, replaced as a whole |
| `users` | the users of a running broker |
| `mechanisms` | the broker's side of SASL PLAIN and SCRAM; pure |
| `failed_logins` | how long the answer to a failed log-in waits; pure |
| `tls` | TLS over any transport, and the settings of its context |
"""
