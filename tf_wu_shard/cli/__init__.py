"""The `wu-shard` command, one file a subcommand."""
