"""Search what a pipeline keeps in an index, from any application.

    with open_index("/data/search", "products") as products:
        for hit in products.search("red AND shoes", limit=5):
            print(hit.score, hit.row["name"])

Spark is not needed.
"""

from headrace.search.index import Hit, Index, open_index

__all__ = ["Hit", "Index", "open_index"]
