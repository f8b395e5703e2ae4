"""From the texts in which PostgreSQL writes values to JSON, as Debezium writes it.

A converter takes the text of a value that is not null and gives the JSON of it, both as bytes, so that
numbers pass as they are and nothing is made in between. Converters are chosen once per column, in
converters.py.
"""
