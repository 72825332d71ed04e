"""Which optimizer an update is, told from its data flow."""
