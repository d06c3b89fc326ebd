"""The server of the web page."""
