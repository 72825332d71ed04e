"""The oracle for replicas of one process: every verb in its plainest form."""
