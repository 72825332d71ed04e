"""The documentation: every code block of every page is run, and the site is built and looked at."""
