"""The answers as text, JSON, Markdown and a page."""
