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
| `frames`, `analysis`, `view_rows` | tables as DataFrames, queries on them, and what a view makes of them |
| `bounded`, `live` | run a query: up to now, or on and on |
| `sentences` | what Spark's errors mean, in a sentence |
"""
