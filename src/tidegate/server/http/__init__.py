"""The server's HTTP side: TiCDC's OpenAPI v2 on FastAPI, who may ask, and the bounds of a request."""
