"""What strangers send, at random, by number or by time, within memory and time a case."""
