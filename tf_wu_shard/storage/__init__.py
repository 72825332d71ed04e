"""Where sharded slots live: storage of 1/N per replica behind the user's unchanged variables."""
