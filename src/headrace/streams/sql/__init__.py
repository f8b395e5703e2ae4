"""SQL over topics: what `headrace sql` runs, and views, which are pipelines that are written in SQL.

Spark understands and runs the queries. Ours is what is around them: which tables there are, what a view is
kept as and run by, and what is said when something can't be.

| file | |
|---|---|
| `tokens`, `statements`, `clauses` | text to tokens, statements, and the clauses of a query |
| `definitions`, `store` | tables and views, as statements, and where they are kept |
| `infer`, `sample` | the columns of a topic that nobody has described, by its last records |
| `catalog` | which tables there are |
| `shapes` | as what a view can run |
| `frames`, `analysis` | tables as DataFrames, and queries on them |
| `view_rows`, `view_pipeline`, `views` | what a view makes of its tables; as a pipeline; made and dropped |
| `bounded`, `live`, `results` | run a query: up to now, or on and on; its rows as JSON |
| `engine` | runs statements |
| `sentences`, `completion` | what Spark's errors mean; what a shell offers |
"""
