"""AMQP 0-9-1 on the wire, without I/O: bytes in, events out, bytes back.

| module | responsibility |
|---|---|
| `values` | texts and tables where they stand in a frame |
| `methods` | methods, by the library `pamqp`'s tables of them |
| `frames` | a byte stream cut into frames; the frames that come and go with every message |
| `channel` | what has come of the message that is being published on a channel |
| `events` | what comes of a client's bytes |
| `connection` | one client's connection: handshake, channels, heartbeats, and what an error ends |
| `session` | a connection's wishes carried out on the broker, and what the broker wants sent |
| `operations` | what each method does on the broker, and what is answered |
| `refusals` | what a client does wrong, as reply codes |
"""
