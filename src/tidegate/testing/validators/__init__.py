"""What has to hold of everything that a feed delivered, whatever went wrong on the way."""
