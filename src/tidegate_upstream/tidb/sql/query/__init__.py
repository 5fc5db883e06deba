"""SELECT and what it consists of."""
