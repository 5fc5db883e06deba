"""`tidegate cli`: a server's changefeeds from the command line, in the words of TiCDC's `cdc cli`."""
