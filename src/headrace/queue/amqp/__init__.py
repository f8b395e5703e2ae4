"""AMQP 0-9-1 on the wire, without I/O: bytes in, events out, bytes back.

values      texts and field tables, with limits on depth and size
methods     methods and properties, by the library `pamqp`'s tables of them
frames      a byte stream cut into frames, and content cut into frames
connection  one client's connection: handshake, channels, what is an error of whom
session     a connection's wishes carried out on the broker, and what the broker wants sent
logins      PLAIN and AMQPLAIN
"""
