"""Headrace: a streaming platform in one Python package.

    import headrace

    with headrace.Broker() as broker:
        print(broker.bootstrap)     # any Kafka client can use this address

Pipelines on Spark live in `headrace.streams`; importing `headrace` alone needs no Spark and no Java.
"""
