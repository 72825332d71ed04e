"""Which optimizer an update is, recognised from its data flow."""
