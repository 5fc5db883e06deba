"""The test kit for sinks and sources of users: contract suites, a scripted source, validators."""
