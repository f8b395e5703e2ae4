"""Write batches to an index of OpenSearch or Elasticsearch, to the same effect however often."""
