"""The page of the server, in a browser, and the JSON that it shows."""
