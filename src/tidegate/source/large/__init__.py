"""Rows too large for a message, made whole: from claim-check files, or from the upstream database."""
