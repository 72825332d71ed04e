"""Parts of tools/real_programs.py."""
