"""Reads models from files into plain data: functions, variables, what belongs to what.

It parses and never executes. Whatever a file holds, the answer is data, perhaps with notes of what
could not be read, or one `ModelFileError`.
"""
