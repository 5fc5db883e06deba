"""Tests of a replica beside its upstream."""
