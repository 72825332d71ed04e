"""The pass that shards the weight update: analysis, plan and rewrite in a row, and hand-over."""
