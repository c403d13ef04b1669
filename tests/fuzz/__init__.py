"""`make fuzz`: hostile completions through every dialect, protocol and source, and hostile requests to the server."""
