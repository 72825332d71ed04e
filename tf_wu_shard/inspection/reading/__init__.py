"""Functions in a model's files as graph views: checked, calls written out, branches in sight."""
